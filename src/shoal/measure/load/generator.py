"""The load generator: sends requests on schedule, whatever the server does, and notes what came of each.

An open loop sends at given moments and never waits for answers, as independent users do; a closed loop has a number of
clients that each wait for their answer before they ask again. Several targets share one process, one event loop and
one clock, so that tenants beside each other can be measured. Where the generator itself is late, it says so.
"""

from __future__ import annotations

import asyncio
import gc
import resource
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import uvloop

from shoal.core import Invalid, Reason, ShoalError
from shoal.measure.load import Encoding
from shoal.measure.load.alarm import Alarm
from shoal.measure.load.oip import Client, Counters, Prepared, prepare
from shoal.measure.load.stream import Stream
from shoal.measure.load.wire import Pool
from shoal.measure.progress import OnProgress, Progress, silent
from shoal.measure.types import Floats, LoadResult, Target

T = TypeVar("T")

_SPARE_FILES = 64
"""File descriptors left for everything that is no connection."""
_LEAD_S = 0.01
"""From the start until the first arrival may be due."""
_LOOK_S = 0.02
"""How often a running load is checked: is it over, is it hopeless, was it asked to stop?"""
_AT_ONCE = 64
"""The number of due requests that are sent before answers are read again: a late generator must not become deaf as
well."""
_PAUSE_S = 0.01
"""A closed loop's client waits so long after a failure, else a refusing server would keep it spinning."""


@dataclass(frozen=True, slots=True, eq=False)
class OpenLoad:
    """Requests to `target` at `arrivals_s`, ascending seconds from the start (see `arrivals`), for `duration_s`; None
    ends with the last arrival."""

    target: Target
    arrivals_s: Floats
    duration_s: float | None = None

    @property
    def end_s(self) -> float:
        return float(self.arrivals_s[-1]) if self.duration_s is None else self.duration_s


@dataclass(frozen=True, slots=True)
class ClosedLoad:
    """`clients` that each send their next request when the last is answered, for `duration_s`."""

    target: Target
    clients: int
    duration_s: float

    @property
    def end_s(self) -> float:
        return self.duration_s


Load = OpenLoad | ClosedLoad


@dataclass(frozen=True, slots=True)
class Settings:
    """How a load is run.

    `warmup_s` is sent but not counted. An answer later than `timeout_s` is a failure. At most `max_outstanding`
    requests of a target are unanswered at once (less where the process may not open that number of files); others are
    held back, which is counted and told. After `give_up_s` of nothing but failures the whole run is aborted."""

    warmup_s: float = 0.0
    timeout_s: float = 30.0
    max_outstanding: int = 1000
    give_up_s: float = 5.0
    encoding: Encoding = Encoding.AUTO
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("timeout_s", "give_up_s", "max_outstanding"):
            if not getattr(self, name) > 0:
                raise Invalid(f"{getattr(self, name)} is not positive", where=name)
        if not self.warmup_s >= 0:
            raise Invalid(f"{self.warmup_s} is negative", where="warmup_s")


Watch = Callable[[Sequence[Floats]], bool]
"""`watch(samples)` gets, for each load, what `Stream.samples` tells; true ends the run early."""


def run_load(
    loads: Sequence[Load], settings: Settings | None = None, *, on_progress: OnProgress = silent
) -> tuple[LoadResult, ...]:
    """Run the loads at the same time; one result for each, in their order. Raises what `prepare` does."""
    return run(drive(loads, settings or Settings(), on_progress=on_progress))


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the event loop that loads are meant for."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


async def drive(
    loads: Sequence[Load],
    settings: Settings,
    *,
    on_progress: OnProgress = silent,
    watch: Watch | None = None,
    late_s: float = float("inf"),
    prepared: Sequence[Prepared] | None = None,
) -> tuple[LoadResult, ...]:
    """As `run_load`, in a running loop. `prepared` saves looking at the targets again; `late_s` is `watch`'s."""
    _check(loads, settings)
    if prepared is None:
        prepared = [
            await prepare(load.target, encoding=settings.encoding, seed=settings.seed, timeout_s=settings.timeout_s)
            for load in loads
        ]
    before = [await _statistics(one) for one in prepared]
    results = await _Session(loads, prepared, settings, on_progress, watch, late_s).run()
    after = [await _statistics(one) for one in prepared]
    return tuple(
        replace(result, server=new.since(old) if new is not None and old is not None else None)
        for result, old, new in zip(results, before, after, strict=True)
    )


class _Session:
    """One run of several loads."""

    def __init__(
        self,
        loads: Sequence[Load],
        prepared: Sequence[Prepared],
        settings: Settings,
        on_progress: OnProgress,
        watch: Watch | None,
        late_s: float,
    ) -> None:
        self._loads, self._settings = loads, settings
        self._on_progress, self._watch, self._late_s = on_progress, watch, late_s
        most = _affordable(settings.max_outstanding, len(loads))
        self._pools = [Pool(one.address, timeout_s=settings.timeout_s) for one in prepared]
        self._streams = [
            Stream(load.target, one.requests, pool, max_outstanding=most)
            for load, one, pool in zip(loads, prepared, self._pools, strict=True)
        ]
        self._times, self._owners = _merged(loads, self._streams)
        self._at = 0
        self._end_s = max(load.end_s for load in loads)
        self._epoch_s = 0.0
        self._stopped_s: float | None = None

    async def run(self) -> list[LoadResult]:
        self._alarm = Alarm(self._due)
        try:
            for pool in self._pools:
                await pool.open()
            with _no_collections():
                cpu_s, began_s = time.thread_time(), time.monotonic()
                self._epoch_s = began_s + _LEAD_S
                for stream in self._streams:
                    stream.begin(self._epoch_s)
                self._alarm.set(self._epoch_s)
                for load, stream in zip(self._loads, self._streams, strict=True):
                    if isinstance(load, ClosedLoad):
                        self._start_clients(load, stream)
                aborted = await self._until_over()
                cpu_share = (time.thread_time() - cpu_s) / (time.monotonic() - began_s)
        finally:
            self._alarm.close()
            for pool in self._pools:
                await pool.close()
        return [
            stream.result(
                duration_s=max(min(load.end_s, self._stopped_s or load.end_s) - self._settings.warmup_s, 1e-9),
                warmup_s=self._settings.warmup_s,
                open_loop=isinstance(load, OpenLoad),
                cpu_share=cpu_share,
                aborted=aborted,
            )
            for load, stream in zip(self._loads, self._streams, strict=True)
        ]

    def _now(self) -> float:
        return time.monotonic() - self._epoch_s

    def _due(self) -> None:
        """Send what is due, and wake up for the next."""
        times, owners, at = self._times, self._owners, self._at
        last = min(at + _AT_ONCE, len(times))
        while at < last and times[at] <= (now_s := self._now()):
            owners[at].issue(times[at], now_s)
            at += 1
        self._at = at
        if at < len(times):
            self._alarm.set(self._epoch_s + times[at])

    def _start_clients(self, load: ClosedLoad, stream: Stream) -> None:
        loop = asyncio.get_running_loop()

        def ask() -> None:
            now_s = self._now()
            if now_s < load.duration_s and self._stopped_s is None:
                stream.issue(now_s, now_s)

        def answered(good: bool) -> None:
            if good:
                ask()
            else:
                loop.call_later(_PAUSE_S, ask)

        stream.on_end = answered
        for _ in range(load.clients):
            loop.call_later(_LEAD_S, ask)

    async def _until_over(self) -> Reason | None:
        """Returns when every request has ended; or at once, with the reason, if the run is hopeless."""
        while True:
            await asyncio.sleep(_LOOK_S)
            now_s = self._now()
            self._on_progress(self._progress(now_s))
            for stream in self._streams:
                if (reason := stream.hopeless(now_s, self._settings.give_up_s)) is not None:
                    self._stop(now_s)
                    return reason
            if self._stopped_s is None and self._enough(now_s):
                self._stop(now_s)
            sent_all = self._at == len(self._times) and (now_s >= self._closed_end_s() or self._stopped_s is not None)
            if sent_all and all(stream.idle for stream in self._streams):
                return None

    def _enough(self, now_s: float) -> bool:
        return self._watch is not None and self._watch(
            [stream.samples(now_s, self._late_s) for stream in self._streams]
        )

    def _closed_end_s(self) -> float:
        return max((load.duration_s for load in self._loads if isinstance(load, ClosedLoad)), default=0.0)

    def _stop(self, now_s: float) -> None:
        self._stopped_s = now_s
        self._times, self._owners, self._at = [], [], 0
        for stream in self._streams:
            stream.forsake()

    def _progress(self, now_s: float) -> Progress:
        return Progress(
            elapsed_s=max(0.0, now_s),
            total_s=self._end_s,
            sent=sum(stream.issued for stream in self._streams),
            done=sum(stream.answered for stream in self._streams),
            failed=sum(stream.failed for stream in self._streams),
        )


def _merged(loads: Sequence[Load], streams: Sequence[Stream]) -> tuple[list[float], list[Stream]]:
    """All open loads as one schedule: when, and whose turn it is."""
    due = [(stream, load.arrivals_s) for load, stream in zip(loads, streams, strict=True) if isinstance(load, OpenLoad)]
    if not due:
        return [], []
    times = np.concatenate([arrivals for _, arrivals in due])
    owners = np.repeat(np.arange(len(due)), [len(arrivals) for _, arrivals in due])
    order = np.argsort(times, kind="stable")
    return times[order].tolist(), [due[at][0] for at in owners[order].tolist()]


def _check(loads: Sequence[Load], settings: Settings) -> None:
    if not loads:
        raise Invalid("there is nothing to run", where="loads")
    for load in loads:
        label = load.target.label
        if isinstance(load, OpenLoad):
            arrivals = load.arrivals_s
            if not len(arrivals):
                raise Invalid("nothing arrives", where=label, hint="raise the rate or the duration")
            if not np.isfinite(arrivals).all() or arrivals[0] < 0 or (np.diff(arrivals) < 0).any():
                raise Invalid("arrivals must be seconds from 0 on, in ascending order", where=label)
        elif load.clients < 1:
            raise Invalid(f"{load.clients} clients send nothing", where=label)
        if not load.end_s > settings.warmup_s:
            raise Invalid(
                f"the load ends after {load.end_s:g} s, before its warm-up of {settings.warmup_s:g} s is over",
                where=label,
                hint="lengthen the one or shorten the other",
            )


async def _statistics(one: Prepared) -> Counters | None:
    """None where there are none, be it because the server is away: the load's own figures stand without."""
    try:
        async with Client(one.target.url, token=one.target.token, timeout_s=5.0) as client:
            return await client.statistics(one.target.model, one.target.version)
    except ShoalError:
        return None


def _affordable(max_outstanding: int, loads: int) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    room = (soft - _SPARE_FILES) // loads if soft != resource.RLIM_INFINITY else max_outstanding
    if room < 1:
        raise Invalid(
            f"{loads} loads need more than the {soft} files that this process may open",
            hint="raise the limit with `ulimit -n`",
        )
    return min(max_outstanding, room)


@contextmanager
def _no_collections() -> Iterator[None]:
    """A collection of garbage stops everything for milliseconds; a load makes none worth it."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
