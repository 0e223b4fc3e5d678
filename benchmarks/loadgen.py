"""MLPerf LoadGen as a referee: its Server scenario against the very same server.

LoadGen (github.com/mlcommons/inference) makes its own Poisson schedule, counts latency from it, and judges with its own
early stopping. It needs the package `mlcommons-loadgen`, which Shoal itself does not.
"""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from shoal.core import Invalid, ShoalError
from shoal.measure.load import Encoding
from shoal.measure.load.oip import prepare
from shoal.measure.load.wire import Pool
from shoal.measure.search.judge import Goal
from shoal.measure.types import Target

_SAMPLES = 1024

Issue = Callable[[int, Callable[[bool], None]], None]
"""`issue(number, done)` begins an inference and returns; `done(good)` is called, from any thread, when it has ended."""


@dataclass(frozen=True, slots=True)
class LoadGenRun:
    """What LoadGen found at one rate. `valid` is its own verdict, early stopping included; it knows no failed request,
    so those are counted beside."""

    rate_per_s: float
    queries: int
    late: int
    latency_s: float
    valid: bool
    failed: int
    told: str

    @property
    def kept(self) -> bool:
        return self.valid and not self.failed


def run_loadgen(issue: Issue, goal: Goal, *, rate_per_s: float, queries: int, seed: int = 1) -> LoadGenRun:
    """One run of the Server scenario of at least so many queries. `latency_s` is the goal's quantile.

    Raises ShoalError where LoadGen is not installed or leaves no result.
    """
    try:
        import mlperf_loadgen as lg
    except ImportError:
        raise ShoalError("LoadGen is not installed", hint="pip install mlcommons-loadgen") from None
    failed = 0

    def issue_all(samples: list[Any]) -> None:
        for sample in samples:
            issue(sample.index, _Done(lg, sample.id, fail))

    def fail() -> None:
        nonlocal failed
        failed += 1

    settings = lg.TestSettings()
    settings.scenario, settings.mode = lg.TestScenario.Server, lg.TestMode.PerformanceOnly
    settings.server_target_qps = rate_per_s
    settings.server_target_latency_ns = round(goal.slo_s * 1e9)
    settings.server_target_latency_percentile = goal.p
    settings.min_query_count, settings.min_duration_ms = queries, 0
    settings.schedule_rng_seed = settings.sample_index_rng_seed = settings.qsl_rng_seed = seed
    with tempfile.TemporaryDirectory(prefix="loadgen-") as directory:
        log = lg.LogSettings()
        log.log_output = lg.LogOutputSettings()
        log.log_output.outdir = directory
        log.enable_trace = False
        system = lg.ConstructSUT(issue_all, _nothing)
        library = lg.ConstructQSL(_SAMPLES, _SAMPLES, _ignore, _ignore)
        try:
            lg.StartTestWithLogSettings(system, library, settings, log, "")
        finally:
            lg.DestroyQSL(library)
            lg.DestroySUT(system)
        found = _details(Path(directory) / "mlperf_log_detail.txt")
    return LoadGenRun(
        rate_per_s=rate_per_s,
        queries=int(found["result_query_count"]),
        late=int(found["result_overlatency_query_count"]),
        latency_s=float(found[f"result_{goal.p * 100:.2f}_percentile_latency_ns"]) / 1e9,
        valid=found["result_validity"] == "VALID",
        failed=failed,
        told=" ".join(str(found.get("early_stopping_result", "")).split()),
    )


def referee(
    issue: Issue, goal: Goal, *, low_per_s: float, high_per_s: float, tolerance: float, queries: int
) -> tuple[float, float]:
    """Halve the interval by LoadGen's verdict alone: the highest rate it found valid (0 if none), and the lowest it did
    not (infinity if none)."""
    if not 0 < low_per_s < high_per_s:
        raise Invalid(f"{low_per_s:g} to {high_per_s:g} is no interval of rates", where="referee")
    if not run_loadgen(issue, goal, rate_per_s=low_per_s, queries=queries).kept:
        return 0.0, low_per_s
    if run_loadgen(issue, goal, rate_per_s=high_per_s, queries=queries).kept:
        return high_per_s, math.inf
    while high_per_s > low_per_s * (1 + tolerance):
        middle = math.sqrt(low_per_s * high_per_s)
        if run_loadgen(issue, goal, rate_per_s=middle, queries=queries).kept:
            low_per_s = middle
        else:
            high_per_s = middle
    return low_per_s, high_per_s


@contextmanager
def oip_system(target: Target, *, encoding: Encoding = Encoding.AUTO, timeout_s: float = 30.0) -> Iterator[Issue]:
    """The target as LoadGen's system under test, with an event loop in a thread of its own."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="loadgen-client", daemon=True)
    thread.start()

    async def begin() -> tuple[Pool, tuple[bytes, ...]]:
        prepared = await prepare(target, encoding=encoding, timeout_s=timeout_s)
        pool = Pool(prepared.address, timeout_s=timeout_s)
        await pool.open()
        return pool, prepared.requests

    def ended(done: Callable[[bool], None], status: int, _: float, __: bytes) -> None:
        done(200 <= status < 300)

    try:
        pool, requests = asyncio.run_coroutine_threadsafe(begin(), loop).result()

        def issue(number: int, done: Callable[[bool], None]) -> None:
            loop.call_soon_threadsafe(pool.send, requests[number % len(requests)], done, ended)

        yield issue
        asyncio.run_coroutine_threadsafe(pool.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class _Done:
    """Tells LoadGen that a query has ended."""

    __slots__ = ("_fail", "_id", "_lg")

    def __init__(self, lg: Any, number: int, fail: Callable[[], None]) -> None:
        self._lg, self._id, self._fail = lg, number, fail

    def __call__(self, good: bool) -> None:
        if not good:
            self._fail()
        self._lg.QuerySamplesComplete([self._lg.QuerySampleResponse(self._id, 0, 0)])


def _details(path: Path) -> dict[str, Any]:
    """LoadGen's own log: one JSON object a line behind a mark."""
    mark = ":::MLLOG "
    if not path.exists():
        raise ShoalError("LoadGen left no result", where=str(path))
    rows = (json.loads(line[len(mark) :]) for line in path.read_text().splitlines() if line.startswith(mark))
    return {row["key"]: row["value"] for row in rows}


def _nothing() -> None:
    pass


def _ignore(samples: Any) -> None:
    pass
