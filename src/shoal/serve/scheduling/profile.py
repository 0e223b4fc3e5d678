"""Execution times of batches, learned while serving: an affine fit over batch sizes, a power of the inputs' size where
that explains the times, and a window of what deviated from both.

The time of a batch of n samples is close to a + b*n for nearly every network (Nexus, SOSP'19): `a` is what a start
costs (launching kernels, reading weights), `b` what each sample adds. Where samples differ in size, as texts do, it is
close to a power of the size: 0 where the size does not matter, 1 for most models of sequences, up to 2 for attention.
Four things follow the measurements at their own pace:

- the level, what one sample of the typical size takes now, drifts with the machine: an average over the last 16 or so
  executions (the median of the first few, because the very first of a fresh replica are slow);
- the share of the set-up in it belongs to the model and hardly moves: a regression that forgets over hundreds of
  executions, on times divided by the level, so that a slow minute does not bend the shape. It starts at one half, so
  that a model which allows batches is tried with them; a model they bring nothing is found out soon, and tried again
  now and then;
- the power is a regression of logarithms with the same memory, and counts only where it explains the times;
- the deviations are those of the last 128 executions within the last minute: any quantile of measured over expected
  time can be read off them. Rare outliers so move the 99th percentile but not the median, and are forgotten by time as
  well as by executions.

A deviation of more than fourfold counts as fourfold for the level and the power. For the shape, more than twice the
time counts as twice: a pause of the machine in one of the first batches must not count against all batches.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable
from math import exp, isfinite, log
from statistics import median

_GUESS_S = 0.01
"""For one sample of what was never measured."""
_LEVEL_MEMORY = 16
_SHAPE_MEMORY = 256.0
_WINDOW = 128
_WINDOW_S = 60.0
_START = 8
"""The number of measurements that makes a first estimate."""
_FEW = 20
"""The number of measurements that makes a tail, and tells whether the size explains anything."""
_UNKNOWN_TAIL = 2.0
"""What the tail is taken for at first; measurements take over within the first `_FEW`."""
_SINGLES = 8
"""One in this number of executions of one sample is used: they are the most, and say least of the shape."""
_CLIP = 4.0
_SHAPE_CLIP = 2.0
_EXPLAINED = 0.3
"""The size counts from this part of the times' variance on (of logarithms): by chance twenty do not reach it."""
_STEEPEST = 3.0
_WORTH_BATCHING = 1.1
"""Batches pay when the largest yields at least this many times the samples per second of single ones."""
_TRY_AGAIN = 2000
"""The number of executions without a batch after which one is tried: a pause of the machine may have spoken against
them."""


class ExecutionProfile:
    """Times are seconds of one execution on an otherwise idle executor.

    `setup_s` and `per_sample_s` are the fit's coefficients for the typical size, `tail` the factor between expected and
    cautious times, `count` how many executions were measured; before the first, times are a guess. `steps` is what was
    learned of the steps of a model that works in steps.
    """

    __slots__ = (
        "_first", "_level", "_order", "_power", "_recent", "_shape", "_share", "_singles", "_sizes", "count",
        "per_sample_s", "setup_s", "steps", "tail",
    )  # fmt: skip

    def __init__(self) -> None:
        self.count = 0
        self.tail = _UNKNOWN_TAIL
        self.steps: StepProfile | None = None
        self._share = 0.5
        self._power = 0.0
        self._singles = 0
        self._first: list[tuple[int, float]] = []
        self._recent: deque[tuple[float, float]] = deque()  # when, and the ratio
        self._order: list[float] = []
        self._sizes = _Regression(_SHAPE_MEMORY)
        self._forget()
        self._set_level(_GUESS_S)

    def scale(self, size: float) -> float:
        """How many times as long samples of `size` bytes take as those of the typical size."""
        return exp(self._power * (log(size) - self._sizes.x)) if self._power and size > 0 else 1.0

    def expected_s(self, samples: int) -> float:
        """The mean, for the typical size; what executions are charged until they are measured."""
        return self.setup_s + self.per_sample_s * samples

    def cautious_s(self, samples: int) -> float:
        """Exceeded by about one execution in a hundred."""
        return (self.setup_s + self.per_sample_s * samples) * self.tail

    def factor(self, quantile: float) -> float:
        """Between the expected time and the one that this part of the executions stays within; at most the `tail`."""
        order = self._order
        if len(order) < _FEW:
            return self.tail if quantile > 0.5 else 1.0
        return min(self.tail, order[min(len(order) - 1, int(quantile * len(order)))])

    def best_s(self, samples: int) -> float:
        """What none of the executions of the last minute was below; 0 while those are few."""
        return self.expected_s(samples) * self._order[0] if len(self._order) >= _FEW else 0.0

    @property
    def known(self) -> bool:
        """Whether enough was measured to turn requests away for it."""
        return self.count >= _START

    def gain(self, max_batch: int) -> float:
        """How many times the samples per second of single executions a full batch yields."""
        return 1.0 / (self._share / max(1, max_batch) + 1.0 - self._share)

    def pays(self, max_batch: int) -> bool:
        """Whether putting requests together is worth it at all."""
        return max_batch > 1 and self.gain(max_batch) >= _WORTH_BATCHING

    def worth_trying(self, max_batch: int) -> bool:
        """Whether to put requests that wait together: because it pays, or to see whether it does by now."""
        return self.pays(max_batch) or (max_batch > 1 and self._singles >= _TRY_AGAIN)

    def fitting(self, most: int, budget_s: float, factor: float | None = None) -> int:
        """The largest batch of at most `most` samples whose expected time, times `factor` (the tail unless given), is
        within the budget; 0 if none is."""
        factor = self.tail if factor is None else factor
        if (self.setup_s + self.per_sample_s * most) * factor <= budget_s:
            return most
        if self.per_sample_s <= 0.0:
            return 0
        return max(0, min(most, int((budget_s / factor - self.setup_s) / self.per_sample_s)))

    def observe(self, samples: int, seconds: float, *, size: float = 0.0, now: float = 0.0) -> None:
        """One measured execution of samples of `size` bytes each (0: it is not known).

        Raises ValueError for what cannot have been measured.
        """
        if samples < 1 or not (isfinite(seconds) and seconds >= 0):
            raise ValueError(f"no execution can have had {samples} samples and taken {seconds} s")
        seconds = max(seconds, 1e-9)
        self.count += 1
        self._singles = 0 if samples > 1 else self._singles + 1
        if self.count <= _START:
            self._first.append((samples, seconds))
            self._begin(now)
            self._learn_size(size, seconds / self._relative(samples))
            return
        shape = self._relative(samples) * self.scale(size)
        ratio = seconds / (self._level * shape)
        clipped = ratio if 1 / _CLIP < ratio < _CLIP else _clip(ratio)
        if samples > 1 or self.count % _SINGLES == 0:
            self._shape.add(samples, min(clipped, _SHAPE_CLIP) * self._relative(samples))
            self._refit()
        self._learn_size(size, clipped * self._level * self.scale(size))
        self._set_level(self._level + (clipped - 1.0) * self._level / _LEVEL_MEMORY)
        self._remember(ratio, now)

    def forget_before(self, now: float) -> None:
        """What was measured more than a minute ago says nothing of how times deviate now."""
        recent = self._recent
        if recent and recent[0][0] < now - _WINDOW_S:
            while recent and recent[0][0] < now - _WINDOW_S:
                del self._order[bisect_left(self._order, recent.popleft()[1])]
            self._set_tail()

    def _begin(self, now: float) -> None:
        """All anew from the few measurements there are."""
        for _ in range(2):  # the level needs the shape, the shape the level
            self._set_level(median(seconds / self._relative(samples) for samples, seconds in self._first))
            self._forget()
            for samples, seconds in self._first:
                shape = self._relative(samples)
                self._shape.add(samples, min(_clip(seconds / (self._level * shape)), _SHAPE_CLIP) * shape)
            self._refit()
        self._set_level(median(seconds / self._relative(samples) for samples, seconds in self._first))
        self._recent.clear()
        self._order.clear()
        for samples, seconds in self._first:
            self._remember(seconds / (self._level * self._relative(samples)), now)

    def _forget(self) -> None:
        """Leaves the prior: a faint memory of a model of which half is set-up."""
        self._shape = _Regression(_SHAPE_MEMORY)
        for samples in (1, 2):
            self._shape.add(samples, 0.5 + 0.5 * samples, weight=0.1)

    def _refit(self) -> None:
        if self._shape.spread > 1e-6:  # else only one size was seen for long: the shape stays as it was
            slope = max(0.0, self._shape.slope)
            start = max(0.0, self._shape.y - slope * self._shape.x)
            if slope + start > 0.0:
                self._share = start / (slope + start)

    def _learn_size(self, size: float, seconds: float) -> None:
        if size <= 0.0:
            return
        self._sizes.add(log(size), log(seconds))
        explains = self.count >= _FEW and self._sizes.explained > _EXPLAINED
        self._power = min(max(0.0, self._sizes.slope), _STEEPEST) if explains else 0.0

    def _relative(self, samples: int) -> float:
        """A batch's time over that of one sample."""
        return self._share + (1.0 - self._share) * samples

    def _set_level(self, level_s: float) -> None:
        self._level = level_s
        self.setup_s = level_s * self._share
        self.per_sample_s = level_s - self.setup_s

    def _remember(self, ratio: float, now: float) -> None:
        recent, order = self._recent, self._order
        if len(recent) == _WINDOW:
            del order[bisect_left(order, recent.popleft()[1])]
        recent.append((now, ratio))
        insort(order, ratio)
        self.forget_before(now)
        self._set_tail()

    def _set_tail(self) -> None:
        """The second largest, so that one outlier moves nothing: of 128, the 99th percentile."""
        tail = self._order[-2] if len(self._order) > 1 else 1.0
        if len(self._order) < _FEW:
            tail = max(tail, _UNKNOWN_TAIL - (_UNKNOWN_TAIL - 1.0) * len(self._order) / _FEW)
        self.tail = tail if tail > 1.0 else 1.0


class StepProfile:
    """How long a step takes by the rows that are in it, and how many steps a request takes: `steps`, an average over
    the last 16 or so requests."""

    __slots__ = ("_times", "steps")

    def __init__(self) -> None:
        self._times = ExecutionProfile()
        self.steps = 0.0

    def observe(self, steps: int, rows: float, step_s: float, now: float) -> None:
        """A request that was there for this number of steps."""
        if steps < 1:
            return
        self._times.observe(max(1, round(rows)), step_s, now=now)
        self.steps += (steps - self.steps) / min(self._times.count, _LEVEL_MEMORY)

    def step_s(self, rows: int) -> float:
        """The mean."""
        return self._times.expected_s(rows)

    def seats(self, most: int, within_s: float) -> int:
        """The most rows with which a typical request is done in this time; at least one, and all while too little is
        known."""
        if not self._times.known:
            return most
        return max(1, self._times.fitting(most, within_s / max(1.0, self.steps)))


def _clip(ratio: float) -> float:
    return min(max(ratio, 1 / _CLIP), _CLIP)


class _Regression:
    """A straight line through the last `memory` or so points: `x` and `y` are their means, `spread` is x' variance."""

    __slots__ = ("_both", "_keep", "_tall", "_weight", "spread", "x", "y")

    def __init__(self, memory: float) -> None:
        self._keep = 1.0 - 1.0 / memory
        self._weight = self.x = self.y = self.spread = self._tall = self._both = 0.0

    def add(self, x: float, y: float, weight: float = 1.0) -> None:
        """Weighted means and (co)variances, updated in place after West (CACM 1979)."""
        old = self._weight * self._keep
        self._weight = old + weight
        part = weight / self._weight
        dx, dy = x - self.x, y - self.y
        self.x += part * dx
        self.y += part * dy
        self.spread = (1.0 - part) * (self.spread + part * dx * dx)
        self._tall = (1.0 - part) * (self._tall + part * dy * dy)
        self._both = (1.0 - part) * (self._both + part * dx * dy)

    @property
    def slope(self) -> float:
        return self._both / self.spread if self.spread > 0.0 else 0.0

    @property
    def explained(self) -> float:
        """The part of y's variance that the line explains."""
        both = self.spread * self._tall
        return self._both * self._both / both if both > 1e-12 else 0.0


class Profiles:
    """The profiles of all queues, by key; made when first asked for."""

    def __init__(self) -> None:
        self.by_key: dict[str, ExecutionProfile] = {}

    def of(self, key: str) -> ExecutionProfile:
        profile = self.by_key.get(key)
        if profile is None:
            profile = self.by_key[key] = ExecutionProfile()
        return profile

    def prime(self, key: str, measured: Iterable[tuple[int, float]], now: float = 0.0) -> None:
        """What the warm-up measured: (samples, seconds)."""
        profile = self.of(key)
        for samples, seconds in measured:
            profile.observe(samples, seconds, now=now)
