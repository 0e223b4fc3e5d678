"""Takes the pictures of the web page: `python docs/tools/screens.py` writes docs/pictures/web-*.png.

A real server runs real jobs of several tenants, which stand for training. The pictures are taken in a real browser:
Debian's chromium, by Playwright. With `--all FOLDER`, every page in light, in dark and as narrow as a telephone.
"""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from shoal import Client
from shoal.base.home import Home, read_server

OUT = Path(__file__).resolve().parents[1] / "pictures"
CHROMIUM = "/usr/bin/chromium"
WIDE, NARROW = (1360, 800), (390, 844)
MOST_BYTES = 150_000
WITHIN_MS = 60_000
SLOTS = 8

TRAIN = """\
import math, sys, time
for step in range(1, 100_000):
    print(f"\\033[32mstep {step}\\033[0m loss={2.1 * math.exp(-step / 90) + 0.2 + 0.03 * math.sin(step):.4f}")
    time.sleep(0.05)
"""
MODEL = """\
import time

class Score:
    def __call__(self, arrays):
        time.sleep(0.012)
        return {"score": arrays["features"].sum(axis=1, keepdims=True)}
"""
SERVICE = {
    "kind": "service",
    "name": "sentiment",
    "models": [{
        "name": "sentiment", "source": "score:Score",
        "inputs": [{"name": "features", "datatype": "FP32", "shape": [-1, 3]}],
        "outputs": [{"name": "score", "datatype": "FP32", "shape": [-1, 1]}],
    }],
    "slo": {"p99": "50ms"},
    "resources": {"cpus": 0.5, "memory": "512MiB"},
}  # fmt: skip


def training(name: str, slots: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name, "command": [sys.executable, "-u", "-c", TRAIN],
        "resources": {"accelerators": slots, "cpus": 0.05, "memory": "128MiB"},
        "metrics": {"regex": {"loss": r"step (?P<step>\d+)\S* loss=(?P<value>[\d.]+)"}}, **more,
    }  # fmt: skip


def short(name: str, code: str = "pass", **more: Any) -> dict[str, Any]:
    return {
        "name": name, "command": [sys.executable, "-c", code],
        "resources": {"cpus": 0.05, "memory": "64MiB"}, **more,
    }  # fmt: skip


@dataclass(frozen=True)
class Shown:
    """What the pictures show, by id."""

    url: str
    link: Callable[[], str]
    running: str
    waiting: str
    failed: str
    service: str


def until(true: Callable[[], bool], within_s: float = 120.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        if time.monotonic() > end:
            raise TimeoutError("the load did not come to where the pictures begin")
        time.sleep(0.1)


@contextmanager
def loaded(home: Path, shared: Path) -> Iterator[Shown]:
    """A server with a load. `shared` is a folder that jobs of every user may read."""
    (shared / "score.py").write_text(MODEL)
    shoal = [sys.executable, "-m", "shoal.cli"]
    settings = ["schedule.policy=max-min", "schedule.round_s=5"]
    sets = [word for one in settings for word in ("--set", one)]
    up = [*shoal, "up", "--detach", "--port", "0", "--slots", str(SLOTS), "--home", str(home), *sets]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
    stop = threading.Event()
    try:
        info = read_server(Home(home))
        assert info is not None
        with Client(info.url, (home / "admin.token").read_text().strip()) as client:
            yield _fill(client, info.url, shared, (home / "admin.token").read_text().strip(), stop)
    finally:
        stop.set()
        with suppress(Exception), Client(info.url, (home / "admin.token").read_text().strip()) as client:
            for service in client.services.list().services:
                client.services.undeploy(service.id)
            for job in client.jobs(limit=500, state=["RUNNING", "QUEUED", "SUSPENDED"]).jobs:
                client.cancel(job.id)
            until(lambda: not client.jobs(state=["RUNNING"]).jobs, 30.0)
        subprocess.run([*shoal, "down", "--home", str(home)], check=False, stdout=subprocess.DEVNULL)


def _fill(client: Client, url: str, shared: Path, token: str, stop: threading.Event) -> Shown:
    client.create_tenant("vision", weight=2.0, quota={"accelerators": 4}, sandbox="none")
    client.create_tenant("speech", sandbox="none")
    client.create_tenant("students", max_priority_class="best-effort", sandbox="none")
    client.create_token("vision", label="ann")
    client.create_token("vision", label="a wall screen", role="viewer")
    environment = {"PYTHONPATH": str(shared)}
    service = client.services.deploy({**SERVICE, "env": environment}, tenant="speech").id
    for name in ("tokenize", "clean-audio", "evaluate-v12"):
        client.submit(short(name), tenant="speech")
    code = "raise SystemExit('CUDA out of memory: 512 MiB wanted, 96 MiB free')"
    failed = client.submit(short("segment-large", code), tenant="vision").id
    running = client.submit(training("resnet-50", 3), tenant="vision").id
    client.submit(training("wav2vec", 2), tenant="speech")
    client.submit(training("course-7", 1, priority_class="best-effort"), tenant="students")
    client.submit(training("course-8", 1, priority_class="best-effort"), tenant="students")
    until(lambda: client.job(running).state == "RUNNING")
    waiting = client.submit(training("detector", 2), tenant="vision").id
    client.submit(training("sweep", 1, array="0-11%2", priority_class="best-effort"), tenant="students")
    paused = client.submit(training("distill", 1), tenant="speech").id
    client.suspend(paused)
    client.planes.create("research", tenant="students")
    until(lambda: client.job(failed).state == "FAILED" and client.services.get(service).state == "READY")
    endpoint = client.services.get(service).endpoints
    assert endpoint is not None
    asked = f"{endpoint.http}/v2/models/sentiment/infer"
    threading.Thread(target=_ask, args=(asked, token, stop), daemon=True).start()
    return Shown(url, lambda: client.web.link().url, running, waiting, failed, service)


def _ask(url: str, token: str, stop: threading.Event) -> None:
    body = {"inputs": [{"name": "features", "shape": [1, 3], "datatype": "FP32", "data": [0.9, 0.1, 0.3]}]}
    with httpx.Client(headers={"Authorization": f"Bearer {token}"}) as client:
        while not stop.wait(0.05):
            with suppress(httpx.HTTPError):
                client.post(url, json=body)


# --- pages ---


def places(shown: Shown) -> dict[str, tuple[str, str]]:
    """Each page: its address below /ui/, and a text that it shows when it is there."""
    job, wait, failed, service = (f"jobs/{one}" for one in (shown.running, shown.waiting, shown.failed, shown.service))
    service = f"services/{shown.service}"
    return {
        "jobs": ("jobs", "resnet-50"), "job": (job, "Life line"), "why": (wait, "Why does it wait?"),
        "failed": (failed, "Why it failed"), "log": (f"{job}/log", "loss="), "metrics": (f"{job}/metrics", "loss"),
        "files": (f"{job}/files", "Files"), "job-events": (f"{job}/events", "Running"),
        "manifest": (f"{job}/manifest", "resnet-50"), "submit": ("submit", "accepted"),
        "services": ("services", "sentiment"), "service": (service, "Latency"), "nodes": ("nodes", "Devices"),
        "tenants": ("tenants", "vision"), "tenant": ("tenants/vision", "Tokens"), "planes": ("planes", "research"),
        "events": ("events", "Running"), "server": ("server", "What it can do here"),
        "settings": ("server/settings", "schedule.round_s"), "doctor": ("server/doctor", "What works"),
        "schedule": ("parts/schedule", "What can be done"),
    }  # fmt: skip


def sign_in(browser: Browser, shown: Shown, size: tuple[int, int], colours: str) -> Page:
    context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=colours)
    context.set_default_timeout(WITHIN_MS)
    page = context.new_page()
    page.goto(shown.link())
    page.get_by_role("heading", name="Jobs").first.wait_for()
    return page


def show(page: Page, shown: Shown, name: str) -> None:
    path, text = places(shown)[name]
    page.goto(f"{shown.url}/ui/{path}")
    page.locator("#main").get_by_text(text).first.wait_for()
    page.locator(".spinner, .plot-empty").first.wait_for(state="detached")


def every(browser: Browser, shown: Shown, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for kind, size, colours in (("light", WIDE, "light"), ("dark", WIDE, "dark"), ("narrow", NARROW, "light")):
        page = sign_in(browser, shown, size, colours)
        for name in places(shown):
            show(page, shown, name)
            page.screenshot(path=folder / f"{name}-{kind}.png", full_page=True)
        page.context.close()


PICTURES = {
    "web-jobs": ("jobs", "light", (1360, 620)),
    "web-why": ("why", "light", (1360, 700)),
    "web-log": ("log", "dark", (1360, 620)),
    "web-service": ("service", "light", (1360, 700)),
    "web-tenants": ("tenants", "light", (1360, 560)),
    "web-nodes": ("nodes", "dark", (1360, 560)),
}
"""Name of the file: page, colours, size."""


def pictures(browser: Browser, shown: Shown) -> None:
    time.sleep(75)  # so that lines over time have a length
    for name, (place, colours, size) in PICTURES.items():
        page = sign_in(browser, shown, size, colours)
        show(page, shown, place)
        data = packed(page.screenshot())
        (OUT / f"{name}.png").write_bytes(data)
        sys.stdout.write(f"{name}.png  {len(data) // 1000} kB\n")
        page.context.close()


def packed(data: bytes) -> bytes:
    """With 256 colours at most: a third of the size, and none sees it. Raises ValueError for what is still too big."""
    image = Image.open(io.BytesIO(data)).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    found = io.BytesIO()
    image.save(found, "PNG", optimize=True)
    if found.tell() > MOST_BYTES:
        raise ValueError(f"a picture of {found.tell()} bytes: at most {MOST_BYTES} are wanted")
    return found.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", type=Path, metavar="FOLDER", help="every page, in light, dark and narrow")
    folder = parser.parse_args().all
    with tempfile.TemporaryDirectory(prefix="shoal-screens-") as place:
        Path(place).chmod(0o755)  # jobs look into it
        with loaded(Path(place) / "home", Path(place)) as shown, sync_playwright() as driver:
            browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
            every(browser, shown, folder) if folder else pictures(browser, shown)
            browser.close()


if __name__ == "__main__":
    main()
