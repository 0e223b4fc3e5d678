"""Targets of loads, and their results.

Latency is always counted from the moment a request was *scheduled* to be sent, not from when it was sent. So a stalled
server (or generator) cannot hide the requests that had to wait for it (coordinated omission; Tene 2013).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shoal.core import Reason
from shoal.inference.types import TensorSpec
from shoal.measure.statistics import Estimate, design_effect, proportion, quantile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

QUANTILES = (0.5, 0.95, 0.99, 0.999)
"""Those reported by default."""

MOST_LAG_S = 0.001
"""A generator whose 99th percentile of lag is below this is never called the bottleneck."""
MOST_LAG_SHARE = 0.1
"""... nor one whose lag is below this share of the median latency it measured."""
MOST_CPU_SHARE = 0.9
"""Above this share of its one core, a generator cannot be trusted to keep its schedule."""
_OWN_FAULT = 0.5
"""A generator that is late with less than this share of its core used was kept from it."""


class Failure(IntEnum):
    """Why a request has no HTTP status; stands in `LoadResult.status` beside the HTTP codes."""

    CONNECT = -1
    LOST = -2
    TIMEOUT = -3
    GARBLED = -4
    UNSENT = -5


_KINDS = {
    Failure.CONNECT: "could not connect",
    Failure.LOST: "connection lost",
    Failure.TIMEOUT: "timeout",
    Failure.GARBLED: "unreadable answer",
    Failure.UNSENT: "never sent",
}


def kind_of(status: int) -> str:
    """`http 503`, `timeout`, ...: what a request ended with."""
    return f"http {status}" if status >= 0 else _KINDS[Failure(status)]


Inputs = Mapping[str, NDArray[Any]]
"""One request's tensors by input name; `BYTES` tensors are object arrays of bytes."""


InputMaker = Callable[[Sequence[TensorSpec], np.random.Generator], Sequence[Inputs]]
"""Makes the requests that a load goes round, at least one. Raises Invalid where a model cannot be served by it."""


@dataclass(frozen=True, slots=True)
class Target:
    """A model on a server that speaks the Open Inference Protocol, as one tenant calls it.

    `url` is the server's root (`http://host:port`, before `/v2`). `token` is sent as a bearer token and never shown.
    `inputs` None sends random tensors with a batch of 1.
    """

    url: str
    model: str
    version: str | None = None
    token: str | None = None
    tenant: str = ""
    inputs: InputMaker | None = None

    def __repr__(self) -> str:
        return f"Target({self.label} at {self.url})"

    @property
    def label(self) -> str:
        """What tables call it."""
        model = f"{self.model}:{self.version}" if self.version else self.model
        return f"{self.tenant}/{model}" if self.tenant else model


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """What the server's statistics endpoint counted during the load: means per request, and per executed batch."""

    requests: int
    executions: int
    queue_s: float
    compute_s: float

    @property
    def batch(self) -> float:
        """Mean batch size, in requests."""
        return self.requests / self.executions if self.executions else 0.0


@dataclass(frozen=True, slots=True, eq=False)
class LoadResult:
    """All requests of one target in one load, in order of schedule, those of the warm-up included.

    Arrays have shape (n,). Times are in seconds from the load's start: `scheduled_s` when a request should have been
    sent, `sent_s` when it was (nan: never), `done_s` when it ended, well or badly. `lag_s` is the part of the delay
    between schedule and send that is the generator's own fault. `status` holds HTTP codes and `Failure`s.

    The methods count only what was scheduled in the measured window: `duration_s` long, after `warmup_s`. `held_back`
    requests waited in the generator because `max_outstanding` others were unanswered. `cpu_share` is the generator's
    use of its one core, of all targets together.
    """

    tenant: str
    model: str
    scheduled_s: Floats
    sent_s: Floats
    done_s: Floats
    status: Ints
    duration_s: float
    warmup_s: float = 0.0
    lag_s: Floats | None = None
    open_loop: bool = True
    held_back: int = 0
    max_outstanding: int = 0
    cpu_share: float = 0.0
    server: ServerTimes | None = None
    aborted: Reason | None = None

    @property
    def label(self) -> str:
        """What tables call it: `tenant/model`, or the model alone."""
        return f"{self.tenant}/{self.model}" if self.tenant else self.model

    def measured(self) -> Bools:
        """Shape (n,): which requests lie in the measured window."""
        end = self.warmup_s + self.duration_s
        return np.asarray((self.scheduled_s >= self.warmup_s) & (self.scheduled_s <= end))

    def count(self) -> int:
        return int(np.count_nonzero(self.measured()))

    def latencies_s(self) -> Floats:
        """Shape (successes,): from schedule to answer, of the measured requests that succeeded."""
        kept = self.measured() & self._succeeded()
        return np.asarray(self.done_s[kept] - self.scheduled_s[kept])

    def latencies_or_inf_s(self) -> Floats:
        """Shape (measured,): as `latencies_s`, with infinity for a request that failed."""
        kept = self.measured()
        taken = np.where(self._succeeded()[kept], self.done_s[kept] - self.scheduled_s[kept], np.inf)
        return np.asarray(taken)

    def quantile(self, p: float) -> Estimate:
        """Latency in seconds of the measured successes; nan if there are none. The 95 % interval allows for slow
        requests that come in clumps."""
        latencies = self.latencies_s()
        effect = design_effect(latencies > quantile(latencies, p).value)
        return quantile(latencies, p, effect=effect)

    def offered_per_s(self) -> float:
        """Requests per second that were scheduled (closed loop: sent)."""
        return self.count() / self.duration_s

    def completed_per_s(self) -> float:
        """Throughput: successful answers per second that arrived in the measured window, whenever sent."""
        end = self.warmup_s + self.duration_s
        inside = self._succeeded() & (self.done_s >= self.warmup_s) & (self.done_s <= end)
        return int(np.count_nonzero(inside)) / self.duration_s

    def attainment(self, slo_s: float) -> Estimate:
        """Share of the measured requests answered well within the objective; a failure is a miss. The 95 %
        interval allows for misses that come in clumps."""
        good = self.latencies_or_inf_s() <= slo_s
        return proportion(int(np.count_nonzero(good)), len(good), effect=design_effect(good))

    def goodput(self, slo_s: float) -> Estimate:
        """Requests per second answered well within the objective."""
        share, offered = self.attainment(slo_s), self.offered_per_s()
        return Estimate(share.value * offered, share.low * offered, share.high * offered, share.confidence)

    def errors(self) -> dict[str, int]:
        """Measured failures by kind (`http 503`, `timeout`, ...), the most frequent first."""
        failed = self.status[self.measured() & ~self._succeeded()]
        return {kind_of(code): count for code, count in Counter(failed.tolist()).most_common()}

    def failures(self) -> int:
        return int(np.count_nonzero(self.measured() & ~self._succeeded()))

    def lag_quantile_s(self, p: float) -> float:
        """How late the generator itself was, in seconds."""
        if self.lag_s is None:
            return 0.0
        lags = self.lag_s[self.measured()]
        lags = lags[~np.isnan(lags)]
        return float(np.quantile(lags, p)) if lags.size else 0.0

    def bottleneck(self) -> Reason | None:
        """Why these figures say more of the generator than of the server; None if they can be trusted."""
        lag_s, typical_s = self.lag_quantile_s(0.99), self.quantile(0.5).value
        allowed_s = max(MOST_LAG_S, MOST_LAG_SHARE * (typical_s if np.isfinite(typical_s) else 0.0))
        if lag_s > allowed_s:
            return Reason(
                "generator-lag",
                f"the generator was the bottleneck: it sent 1 request in 100 more than {lag_s * 1e3:.2f} ms late "
                f"(allowed here: {allowed_s * 1e3:.2f} ms); it used {self.cpu_share:.0%} of its core"
                + ("" if self.cpu_share > _OWN_FAULT else ", so other processes held it up"),
                {"lag_p99_s": lag_s, "allowed_s": allowed_s, "cpu_share": self.cpu_share},
            )
        if self.cpu_share > MOST_CPU_SHARE:
            return Reason(
                "generator-cpu",
                f"the generator was the bottleneck: it used {self.cpu_share:.0%} of its one core",
                {"cpu_share": self.cpu_share},
            )
        if self.open_loop and self.held_back:
            return Reason(
                "outstanding-cap",
                f"{self.held_back} requests were held back while {self.max_outstanding} others were unanswered; "
                "their wait is counted as latency, but the server did not see the whole load",
                {"held_back": self.held_back, "max_outstanding": self.max_outstanding},
            )
        return None

    def as_json(self, *, slo_s: float | None = None) -> dict[str, Any]:
        """The summary, not the samples; absent numbers are null."""
        bottleneck = self.bottleneck()
        summary: dict[str, Any] = {
            "tenant": self.tenant,
            "model": self.model,
            "loop": "open" if self.open_loop else "closed",
            "duration_s": self.duration_s,
            "warmup_s": self.warmup_s,
            "requests": self.count(),
            "offered_per_s": self.offered_per_s(),
            "completed_per_s": self.completed_per_s(),
            "failures": self.failures(),
            "errors": self.errors(),
            "latency_s": {f"p{100 * p:g}": self.quantile(p).as_json() for p in QUANTILES},
            "generator": {
                "lag_p99_s": self.lag_quantile_s(0.99),
                "cpu_share": self.cpu_share,
                "held_back": self.held_back,
                "max_outstanding": self.max_outstanding,
                "bottleneck": bottleneck.as_json() if bottleneck else None,
            },
            "server": {**asdict(self.server), "batch": self.server.batch} if self.server else None,
            "aborted": self.aborted.as_json() if self.aborted else None,
        }
        if slo_s is not None:
            summary["slo_s"] = slo_s
            summary["attainment"] = self.attainment(slo_s).as_json()
            summary["goodput_per_s"] = self.goodput(slo_s).as_json()
        return summary

    def _succeeded(self) -> Bools:
        return np.asarray((self.status >= 200) & (self.status < 300))


def bottlenecks(named: Iterable[tuple[str, LoadResult]]) -> tuple[Reason, ...]:
    """Where the generator was the bottleneck: of each name and kind of bottleneck the last."""
    found = {}
    for name, result in named:
        if (warning := result.bottleneck()) is not None:
            found[(name, warning.code)] = Reason(warning.code, f"{name}: {warning.text}", warning.facts)
    return tuple(found.values())
