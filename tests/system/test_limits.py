"""Limits through a live server: what a fork bomb leaves, what garbage collection takes, quotas of tenants."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.engine.local.processes import marked

PROCESSES = 48
OVER = ("SUCCEEDED", "FAILED", "CANCELLED")
BOMB = """
import os, sys, time
born = 0
until = time.monotonic() + 60
while time.monotonic() < until:
    try:
        if os.fork() == 0:
            os.setsid()
        else:
            born += 1
    except OSError:
        if not os.path.exists("refused"):
            open("refused", "w").close()
        time.sleep(0.001)
    if born > 200:  # the bound: a limit that does not hold ends here
        os._exit(3)
"""


def start(home: Home, **settings: str) -> None:
    settings = {"serve__enabled": "off", **settings}
    words = [word for name, value in settings.items() for word in ("--set", f"{name.replace('__', '.')}={value}")]
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "2", *words], home)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    stop_server(home, timeout_s=20)
    assert kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20) in (None, True)


def shoal(home: Home, *words: str, code: int = 0) -> str:
    done = CliRunner().invoke(app, [*words, "--home", str(home.path)])
    assert done.exit_code == code, (words, done.output)
    return done.output


def told(home: Home, *words: str, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [*words, "--json", "--home", str(home.path)])
    assert done.exit_code == code, (words, done.output)
    return json.loads(done.stdout)


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def manifest(path: Path, code: str, **fields: Any) -> str:
    path.write_text(json.dumps({"command": ["python3", "-u", "-c", code], "resources": {"cpus": 0.5}, **fields}))
    return str(path)


@pytest.mark.slow
def test_a_fork_bomb_ends_with_its_time_and_leaves_nothing(home: Home, tmp_path: Path) -> None:
    start(home, jobs__max_processes=str(PROCESSES))
    bomb = manifest(tmp_path / "bomb.json", BOMB, name="bomb", max_runtime="5s", grace="0s")
    job = told(home, "submit", bomb)["id"]
    most = 0

    def over() -> bool:
        nonlocal most
        most = max(most, len(marked(home.path)))
        return told(home, "show", job)["state"] in OVER

    until(over)
    ended = told(home, "show", job)
    # Where the kernel's limit is not ours to set, the supervisor ends a rank that has more (see the engine's page).
    assert (ended["state"], ended["error_code"]) in (("FAILED", "U105-max-runtime"), ("FAILED", "U107-over-limit"))
    if ended["error_code"] == "U105-max-runtime":
        assert list(home.path.rglob("refused")), "it came to its limit"
        assert PROCESSES // 2 < most <= PROCESSES + 1, "and stayed within it, its supervisor counted"
    assert marked(home.path) == []
    assert told(home, "run", manifest(tmp_path / "after.json", "print('well')", name="after"))["state"] == "SUCCEEDED"


def test_garbage_collection_tells_what_it_would_remove_and_then_removes_it(home: Home, tmp_path: Path) -> None:
    start(home, keep__jobs_per_tenant="1")
    code = "open('big', 'wb').write(b'x' * 300_000); print('done')"
    jobs = [told(home, "run", manifest(tmp_path / f"{n}.json", code, name=f"job-{n}"))["id"] for n in range(3)]
    would = told(home, "gc", "--dry-run")
    assert would["dry_run"] is True
    assert sorted(would["jobs"]) == sorted(jobs[:2])
    assert would["freed_bytes"] >= 600_000
    assert "would be freed" in shoal(home, "gc", "--dry-run")
    assert shoal(home, "logs", jobs[0]) == "done\n"
    assert {job["id"] for job in told(home, "jobs")["jobs"]} == set(jobs)
    did = told(home, "gc")
    assert (did["dry_run"], sorted(did["jobs"])) == (False, sorted(jobs[:2]))
    assert did["freed_bytes"] >= 600_000
    assert {job["id"] for job in told(home, "jobs")["jobs"]} == {jobs[2]}
    assert "no job" in shoal(home, "logs", jobs[0], code=3)
    left = [path for path in home.path.rglob("*") if any(job in path.name for job in jobs[:2])]
    assert left == []
    assert shoal(home, "logs", jobs[2]) == "done\n"
    assert told(home, "gc")["jobs"] == []


def test_a_tenants_quota_bounds_disk_and_gives_jobs_their_memory(home: Home, tmp_path: Path) -> None:
    start(home)
    shoal(home, "quota", "default", "--disk", "1MiB", "--default-memory", "96MiB")
    hog = manifest(tmp_path / "hog.json", "x = bytearray(400 << 20); print(len(x))", name="hog")
    job = told(home, "submit", hog)["id"]
    until(lambda: told(home, "show", job)["state"] in OVER)
    ended = told(home, "show", job)
    assert (ended["state"], ended["resources"]["memory_bytes"]) == ("FAILED", 96 << 20)
    assert ended["error_code"] == "U103-out-of-memory"
    assert "memory 96 MiB" in shoal(home, "quota", "default")
    big = manifest(tmp_path / "big.json", "open('big', 'wb').write(b'x' * (3 << 20))", name="big")
    told(home, "run", big)
    waits = manifest(tmp_path / "next.json", "pass", name="next")
    shoal(home, "gc")  # which measures
    assert "files of tenant default take" in shoal(home, "submit", waits, code=1)
    shoal(home, "quota", "default", "--disk", "none", "--default-memory", "none")
    assert "a rank of a job that does not say" not in shoal(home, "quota", "default")
    assert told(home, "run", waits)["state"] == "SUCCEEDED"
