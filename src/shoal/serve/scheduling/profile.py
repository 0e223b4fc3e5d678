"""How long a batch takes, learned while serving: an affine fit over batch sizes and a window of what deviated from it.

The time of a batch of n samples is close to a + b*n for nearly every network (Nexus, SOSP'19): `a` is what a start
costs (launching kernels, reading weights), `b` what each sample adds. Three numbers follow the measurements at their
own pace:

- the level, what one sample takes now, drifts with the machine: an average over the last 16 or so executions (the
  median of the first few, because the very first of a fresh replica are slow);
- the share of the set-up in it belongs to the model and hardly moves: a regression that forgets over hundreds of
  executions, on times divided by the level, so that a slow minute does not bend the shape. It starts at one half, so
  that a model which allows batches is tried with them; a model they bring nothing is found out soon, and tried again
  now and then;
- the tail is the second largest of measured over expected among the last 128 executions, whatever their sizes: their
  99th percentile. An exact window costs as little here as P2 or a t-digest, needs no tuning, and forgets: after a
  change of speed the tail is too careful for at most 128 executions. A single outlier in it moves nothing.

What deviates more than fourfold counts as fourfold for the level, and what takes more than twice as long as twice for
the shape: a pause of the machine in one of the first batches must not speak against all batches.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping
from math import ceil, isfinite
from statistics import median
from typing import Any

_LEVEL_MEMORY = 16
_SHAPE_MEMORY = 256.0
_WINDOW = 128
_START = 8
"""So many measurements make a first estimate."""
_FEW = 20
_UNKNOWN_TAIL = 2.0
"""What the tail is taken for at first; measurements take over within the first `_FEW`."""
_SINGLES = 8
"""Of executions of one sample, which are the most and say least of the shape, it looks at one in so many."""
_CLIP = 4.0
_SHAPE_CLIP = 2.0
_WORTH_BATCHING = 1.1
"""Batches pay when the largest yields at least this many times the samples per second of single ones."""
_TRY_AGAIN = 2000
"""After so many executions without a batch one is tried: a pause of the machine may have spoken against them."""


class ExecutionProfile:
    """Times are seconds of one execution on an otherwise idle executor.

    `setup_s` and `per_sample_s` are the fit's coefficients, `tail` the factor between expected and cautious times,
    `count` how many executions were measured; before the first, times are a guess.
    """

    __slots__ = (
        "_first", "_level", "_n", "_nn", "_ny", "_order", "_recent", "_share", "_singles", "_w", "_y", "count",
        "per_sample_s", "setup_s", "tail",
    )  # fmt: skip

    def __init__(self, guess_s: float = 0.01) -> None:
        self.count = 0
        self.tail = _UNKNOWN_TAIL
        self._share = 0.5
        self._singles = 0
        self._first: list[tuple[int, float]] = []
        self._recent: deque[float] = deque()
        self._order: list[float] = []
        self._forget()
        self._set_level(guess_s)

    def expected_s(self, samples: int) -> float:
        """The mean; what executions are charged until they are measured."""
        return self.setup_s + self.per_sample_s * samples

    def cautious_s(self, samples: int) -> float:
        """Exceeded by about one execution in a hundred; what deadlines are checked against."""
        return (self.setup_s + self.per_sample_s * samples) * self.tail

    @property
    def known(self) -> bool:
        """Whether enough was measured to turn requests away for it."""
        return self.count >= _START

    def quantile_s(self, samples: int, quantile: float) -> float:
        """Any other quantile, as far as the window can tell."""
        if not self._order:
            return self.expected_s(samples)
        return self.expected_s(samples) * self._order[max(0, ceil(quantile * len(self._order)) - 1)]

    def gain(self, max_batch: int) -> float:
        """How many times the samples per second of single executions a full batch yields."""
        return 1.0 / (self._share / max(1, max_batch) + 1.0 - self._share)

    def pays(self, max_batch: int) -> bool:
        """Whether putting requests together is worth it at all."""
        return max_batch > 1 and self.gain(max_batch) >= _WORTH_BATCHING

    def worth_trying(self, max_batch: int) -> bool:
        """Whether to put requests that wait together: because it pays, or to see whether it does by now."""
        return self.pays(max_batch) or (max_batch > 1 and self._singles >= _TRY_AGAIN)

    def fitting(self, most: int, budget_s: float) -> int:
        """The largest batch of at most `most` samples whose cautious time is within the budget; 0 if none is."""
        if self.cautious_s(most) <= budget_s:
            return most
        if self.per_sample_s <= 0.0:
            return 0
        return max(0, min(most, int((budget_s / self.tail - self.setup_s) / self.per_sample_s)))

    def observe(self, samples: int, seconds: float) -> None:
        """One measured execution. Raises ValueError for what cannot have been measured."""
        if samples < 1 or not (isfinite(seconds) and seconds >= 0):
            raise ValueError(f"no execution can have had {samples} samples and taken {seconds} s")
        seconds = max(seconds, 1e-9)
        self.count += 1
        self._singles = 0 if samples > 1 else self._singles + 1
        if self.count <= _START:
            self._first.append((samples, seconds))
            self._begin()
            return
        shape = self._shape(samples)
        ratio = seconds / (self._level * shape)
        clipped = ratio if 1 / _CLIP < ratio < _CLIP else _clip(ratio)
        if samples > 1 or self.count % _SINGLES == 0:
            self._regress(samples, min(clipped, _SHAPE_CLIP) * shape)
            self._refit()
        self._set_level(self._level + (clipped - 1.0) * self._level / _LEVEL_MEMORY)
        self._remember(ratio)

    def as_json(self) -> dict[str, Any]:
        return {
            "level_s": self._level,
            "setup_share": self._share,
            "tail": self.tail,
            "count": self.count,
            "sums": [self._w, self._n, self._nn, self._y, self._ny],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> ExecutionProfile:
        """What `as_json` gave, so that a restarted server need not learn again; the window starts empty."""
        profile = cls(float(stored["level_s"]))
        profile._w, profile._n, profile._nn, profile._y, profile._ny = (float(each) for each in stored["sums"])
        profile.count = int(stored["count"])
        profile._refit()
        profile._set_level(profile._level)
        profile.tail = float(stored["tail"])
        return profile

    def _begin(self) -> None:
        """All anew from the few measurements there are."""
        for _ in range(2):  # the level needs the shape, the shape the level
            self._set_level(median(seconds / self._shape(samples) for samples, seconds in self._first))
            self._forget()
            for samples, seconds in self._first:
                shape = self._shape(samples)
                self._regress(samples, min(_clip(seconds / (self._level * shape)), _SHAPE_CLIP) * shape)
            self._refit()
        self._set_level(median(seconds / self._shape(samples) for samples, seconds in self._first))
        self._recent.clear()
        self._order.clear()
        for samples, seconds in self._first:
            self._remember(seconds / (self._level * self._shape(samples)))

    def _forget(self) -> None:
        """Leaves the prior: a faint memory of a model of which half is set-up."""
        self._w = self._n = self._nn = self._y = self._ny = 0.0
        for samples in (1, 2):
            self._regress(samples, 0.5 + 0.5 * samples, weight=0.1)

    def _regress(self, samples: float, relative: float, weight: float = 1.0) -> None:
        keep = 1.0 - 1.0 / _SHAPE_MEMORY
        self._w = self._w * keep + weight
        self._n = self._n * keep + weight * samples
        self._nn = self._nn * keep + weight * samples * samples
        self._y = self._y * keep + weight * relative
        self._ny = self._ny * keep + weight * samples * relative

    def _refit(self) -> None:
        mean = self._n / self._w
        spread = self._nn / self._w - mean * mean
        if spread > 1e-6:  # else only one size was seen for long: the shape stays as it was
            slope = max(0.0, (self._ny / self._w - mean * self._y / self._w) / spread)
            start = max(0.0, self._y / self._w - slope * mean)
            if slope + start > 0.0:
                self._share = start / (slope + start)

    def _shape(self, samples: int) -> float:
        """A batch's time over that of one sample."""
        return self._share + (1.0 - self._share) * samples

    def _set_level(self, level_s: float) -> None:
        self._level = level_s
        self.setup_s = level_s * self._share
        self.per_sample_s = level_s - self.setup_s

    def _remember(self, ratio: float) -> None:
        recent, order = self._recent, self._order
        if len(recent) == _WINDOW:
            del order[bisect_left(order, recent.popleft())]
        recent.append(ratio)
        insort(order, ratio)
        tail = order[-2] if len(order) > 1 else 1.0
        if self.count < _FEW:
            tail = max(tail, _UNKNOWN_TAIL - (_UNKNOWN_TAIL - 1.0) * self.count / _FEW)
        self.tail = tail if tail > 1.0 else 1.0


def _clip(ratio: float) -> float:
    return min(max(ratio, 1 / _CLIP), _CLIP)


class Profiles:
    """The profiles of all queues, by key; made when first asked for, with `guess_s` for what was never measured."""

    def __init__(self, guess_s: float = 0.01) -> None:
        self.by_key: dict[str, ExecutionProfile] = {}
        self.guess_s = guess_s

    def of(self, key: str) -> ExecutionProfile:
        profile = self.by_key.get(key)
        if profile is None:
            profile = self.by_key[key] = ExecutionProfile(self.guess_s)
        return profile

    def prime(self, key: str, measured: Iterable[tuple[int, float]]) -> None:
        """What the warm-up measured: (samples, seconds)."""
        profile = self.of(key)
        for samples, seconds in measured:
            profile.observe(samples, seconds)
