"""The web page: how heavy it is, how soon it shows something, and what open pages cost submissions.

The page is loaded by Debian's chromium, with an empty cache, from a server with 10,000 jobs. Submissions are measured
in pairs, without pages and with their streams open, in turn, so that a slow moment of the machine meets both. The
streams are read by another process, as browsers would.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import statistics
import sys
import time
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from common import Row, Server, parser, report, server
from submissions import Result, one_connection

from shoal.base.statistics import quantile
from shoal.web.site import Site

CHROMIUM = Path("/usr/bin/chromium")
ROW = "[role=row], tbody tr"
PAGE_KB, VIEW_S, INTERACTION_MS, RATIO = 300, 1.0, 100.0, 0.95


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=10_000)
    arguments.add_argument("--pages", type=int, default=200)
    arguments.add_argument("--pairs", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=4.0, help="of each half of a pair")
    options = arguments.parse_args()
    rows: list[Row] = []
    with server(slots=1) as one:
        client = one.client()
        client.create_tenant("bench", quota={"accelerators": 1, "queued_jobs": 10_000_000}, sandbox="none")
        token = client.create_token("bench").token
        for node in client.nodes():
            client.drain_node(node.name, because="a benchmark: all jobs wait")
        rows += submissions(one, token, options)
        while (known := count(client)) < options.jobs:
            rate(one, token, 1.0)
            if count(client) == known:
                raise SystemExit("no job could be submitted")
        rows += view(one, client, known)
    return report("the web page", rows, as_json=options.json)


def count(client: Any) -> int:
    return sum(client.status().jobs.values())


# --- the page in a browser ---


def view(one: Server, client: Any, jobs: int) -> list[Row]:
    if not CHROMIUM.exists() or not Site().built:
        print("no chromium, or the page is not built: its weight and speed are not measured", file=sys.stderr)
        return []
    from playwright.sync_api import sync_playwright

    weights, views, steps = [], [], []
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox", "--disable-gpu"])
        for _ in range(5):
            context = browser.new_context()
            page = context.new_page()
            page.goto(client.web.link().url)
            page.locator(ROW).nth(5).wait_for()
            cookies = context.cookies()
            context.close()
            context = browser.new_context()  # an empty cache, and signed in
            context.add_cookies(cookies)
            page = context.new_page()
            network = context.new_cdp_session(page)
            network.send("Network.enable")
            sizes: dict[str, float] = {}
            ours: set[str] = set()
            network.on("Network.requestWillBeSent", lambda told, ours=ours: _of_page(told, ours))
            network.on("Network.loadingFinished", lambda told, sizes=sizes: _finished(told, sizes))
            began = time.perf_counter()
            page.goto(f"{one.url}/ui/jobs", wait_until="commit")
            page.locator(ROW).nth(5).wait_for()
            views.append(time.perf_counter() - began)
            weights.append(sum(size for name, size in sizes.items() if name in ours) / 1000)
            steps += page.evaluate(_SCROLL)
            context.close()
        browser.close()
    weight, first, step = statistics.median(weights), statistics.median(views), quantile(steps, 0.95)
    return [
        Row("page weight to the first useful view, compressed", weight, "kB", f"<= {PAGE_KB}", weight <= PAGE_KB),
        Row(f"first useful view, {jobs} jobs", first, "s", f"<= {VIEW_S:g}", first <= VIEW_S),
        Row("scrolling, until the next frame, p95", step, "ms", f"<= {INTERACTION_MS:g}", step <= INTERACTION_MS),
    ]


_SCROLL = """async () => {
    const list = [...document.querySelectorAll("*")].find(one => one.scrollHeight > one.clientHeight + 500
        && ["auto", "scroll"].includes(getComputedStyle(one).overflowY)) ?? document.scrollingElement;
    const frame = () => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    const found = [];
    for (let n = 0; n < 30; n++) {
        const began = performance.now();
        list.scrollTop += 400;
        await frame();
        found.push(performance.now() - began);
    }
    return found;
}"""


def _of_page(told: dict[str, Any], ours: set[str]) -> None:
    if urlsplit(told["request"]["url"]).path.startswith("/ui"):
        ours.add(told["requestId"])


def _finished(told: dict[str, Any], sizes: dict[str, float]) -> None:
    sizes[told["requestId"]] = told["encodedDataLength"]


# --- open pages and submissions ---


def submissions(one: Server, token: str, options: Any) -> list[Row]:
    admin = (one.home / "admin.token").read_text().strip()
    without, beside, ratios, alone_ms, beside_ms = [], [], [], [], []
    for _ in range(options.pairs):
        without.append(rate(one, token, options.seconds, alone_ms))
        with pages(one.url, admin, options.pages):
            beside.append(rate(one, token, options.seconds, beside_ms))
        ratios.append(beside[-1] / without[-1])
    ratio = statistics.median(ratios)
    return [
        Row("submissions without open pages", statistics.median(without), "/s"),
        Row(f"  with {options.pages} open pages", statistics.median(beside), "/s"),
        Row("  ratio, median of pairs", ratio, "x", f">= {RATIO}", ratio >= RATIO),
        Row("  CPU of the server per job without them", statistics.median(alone_ms), "ms"),
        Row("  CPU of the server per job with them", statistics.median(beside_ms), "ms"),
        Row("  smallest ratio", min(ratios), "x"),
        Row("  largest ratio", max(ratios), "x"),
    ]


_NUMBERS = itertools.count()
"""Each connection of a run has one of its own: by it, its submissions are new ones."""


def rate(one: Server, token: str, seconds: float, cpu_ms: list[float] | None = None) -> float:
    """Submissions a second; `cpu_ms` gets what each cost the server."""

    async def whole() -> float:
        result, began, before_s = Result(), time.perf_counter(), one.cpu_s()
        until = began + seconds
        await asyncio.gather(
            *(one_connection(one.url, token, result, until=until, number=next(_NUMBERS)) for _ in range(16))
        )
        if result.errors:
            raise SystemExit(f"{result.errors} submissions failed")
        if cpu_ms is not None:
            cpu_ms.append((one.cpu_s() - before_s) / len(result.ids) * 1000)
        return len(result.ids) / (time.perf_counter() - began)

    return asyncio.run(whole())


@contextmanager
def pages(url: str, token: str, number: int) -> Any:
    """Opens `number` event streams as an admin and reads them in another process."""
    context = multiprocessing.get_context("spawn")
    ready, over = context.Event(), context.Event()
    process = context.Process(target=read_streams, args=(url, token, number, ready, over))
    process.start()
    try:
        if not ready.wait(60):
            raise SystemExit("the streams were not open in time")
        yield
    finally:
        over.set()
        process.join(30)


def read_streams(url: str, token: str, number: int, ready: Event, over: Event) -> None:
    async def one(opened: asyncio.Semaphore) -> None:
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port)
        writer.write(
            f"GET /v1/web/stream HTTP/1.1\r\nHost: {place.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
        )
        text = await reader.readuntil(b"hello")
        assert b" 200 " in text, text
        opened.release()
        while await reader.read(1 << 16):
            pass

    async def whole() -> None:
        opened = asyncio.Semaphore(0)
        tasks = [asyncio.create_task(one(opened)) for _ in range(number)]
        for _ in range(number):
            await opened.acquire()
        ready.set()
        while not over.is_set():
            await asyncio.sleep(0.05)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(whole())


if __name__ == "__main__":
    sys.exit(main())
