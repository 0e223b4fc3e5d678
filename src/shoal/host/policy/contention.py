"""The online model of contention: one number for each best-effort group, what a unit of its share costs.

violation = sum over groups of sensitivity x share. Over the range that matters (losses of some per cent) this holds
within a tenth for quotas and pacing alike, whatever the neighbour writes or reads; sensitivity is followed as it
changes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from dataclasses import dataclass, field, replace

LEAST_SENSITIVITY = 0.25
"""Small enough that a group with it alone is unlimited; not zero, so that a group that turns bad is found soon."""
_FOLLOW_UP, _FOLLOW_DOWN = 0.5, 0.3
"""Weight of the newest observation if it is worse, or better, than predicted, and all before it were so too."""
_LEAST_TRUST = 0.25
"""Of an observation above what is allowed: those are acted on, whatever the errors were before."""
_REMEMBER = 0.8
"""How much of a tick's error is remembered in the next."""
_NOISE = 0.4
"""Of a violation against a pause just before it, in 50 ms each on the machine of docs/results/host.md."""
TOLD = 0.8
"""A group that causes less with all of its share cannot be told from one that causes nothing, and breaks no promise."""
_NOISE_VARIANCE, _DRIFT = 0.1, 0.03
"""Of the violation of one tick; and what of a sensitivity may change in it."""
_JUMP, _BEYOND = 2.0, 4.0
"""An observation is believed at once if it is more than `_JUMP` times what was predicted, off by more than `_BEYOND`
times the usual error, and above what is allowed."""


@dataclass(frozen=True, slots=True)
class Errors:
    """Observed less predicted violation, smoothed: with its sign, and without. A machine whose speed comes and goes
    errs to both sides, so that `mean` stays small; a model that is wrong errs to one.

    Their ratio is the tracking signal of Trigg and Leach (Exponential smoothing with an adaptive response rate, 1967).
    """

    mean: float = 0.0
    size: float = 0.0

    def add(self, error: float) -> Errors:
        mean, size = (
            _REMEMBER * old + (1 - _REMEMBER) * new for old, new in ((self.mean, error), (self.size, abs(error)))
        )
        return Errors(mean, size)

    @property
    def signal(self) -> float:
        return abs(self.mean) / self.size if self.size > 0 else 1.0


@dataclass(frozen=True, slots=True)
class Contention:
    """`sensitivity` is violation per share, by group; a group without one was never observed."""

    sensitivity: Mapping[str, float] = field(default_factory=dict)
    errors: Errors = field(default_factory=Errors)
    variance: Mapping[str, float] = field(default_factory=dict)
    """Variance of each sensitivity."""

    def predict(self, shares: Mapping[str, float]) -> float | None:
        """None while any of these groups is unknown."""
        if any(name not in self.sensitivity for name in shares):
            return None
        return sum(self.sensitivity[name] * share for name, share in shares.items())

    def observe(self, violation: float, shares: Mapping[str, float]) -> Contention:
        """`shares` are of the groups that ran, as they were in force while `violation` was seen. Groups that are new
        divide what the known ones do not explain alike."""
        if not shares or min(shares.values()) <= 0:
            return self
        fresh = [name for name in shares if name not in self.sensitivity]
        if fresh:
            known = sum(self.sensitivity[name] * share for name, share in shares.items() if name in self.sensitivity)
            each = max(LEAST_SENSITIVITY, max(0.0, violation - known) / sum(shares[name] for name in fresh))
            first = dict.fromkeys(fresh, each)
            return replace(self, sensitivity={**self.sensitivity, **first})
        predicted = sum(self.sensitivity[name] * share for name, share in shares.items())
        ratio, error = violation / predicted, violation - predicted
        if violation > 1 and ratio > _JUMP and error > _BEYOND * self.errors.size:
            factor, errors = ratio, self.errors
        else:
            errors = self.errors.add(error)
            trust = max(errors.signal**2, _LEAST_TRUST if violation > 1 and ratio > 1 else 0.0)
            factor = 1 + (_FOLLOW_UP if ratio > 1 else _FOLLOW_DOWN) * trust * (ratio - 1)
        return self._corrected(predicted * (factor - 1), shares, errors)

    def _corrected(self, error: float, shares: Mapping[str, float], errors: Errors) -> Contention:
        """So that the prediction is higher by `error`, divided as a Kalman filter does: among those that are doubted
        most, and run with a share that can explain it."""
        variance = {name: self.variance.get(name, _first_variance(self.sensitivity[name])) for name in shares}
        whole = sum(variance[name] * share**2 for name, share in shares.items())
        sensitivity, left = dict(self.sensitivity), dict(self.variance)
        for name, share in shares.items():
            gain = variance[name] * share
            sensitivity[name] = max(LEAST_SENSITIVITY, sensitivity[name] + error * gain / whole)
            left[name] = (
                variance[name] * (1 - gain * share / (whole + _NOISE_VARIANCE))
                + (_DRIFT * (1 + sensitivity[name])) ** 2
            )
        return Contention(sensitivity, errors, left)

    def probed(self, name: str, share: float, violation: float, least: float = TOLD) -> Contention:
        """`name` ran alone with this share, just after none did: the violation was its own, if it is above the
        `least` that means anything."""
        found = violation / share
        sensitivity = {**self.sensitivity, name: max(LEAST_SENSITIVITY, found) if found > least else LEAST_SENSITIVITY}
        return replace(self, sensitivity=sensitivity, variance={**self.variance, name: (_NOISE / share) ** 2})

    def passed(self, name: str, sensitivity: float, others: Collection[str]) -> Contention:
        """`name` costs this much, not what it was blamed for: the rest of that is the others'."""
        found = max(LEAST_SENSITIVITY, sensitivity)
        rest = [one for one in others if one != name]
        more = max(0.0, self.sensitivity.get(name, found) - found) / max(1, len(rest))
        return replace(
            self, sensitivity={**self.sensitivity, name: found} | {one: self.sensitivity[one] + more for one in rest}
        )

    def keep(self, names: Set[str]) -> Contention:
        if self.sensitivity.keys() <= names:
            return self
        sensitivity, variance = (
            {name: one[name] for name in names if name in one} for one in (self.sensitivity, self.variance)
        )
        return replace(self, sensitivity=sensitivity, variance=variance)


def _first_variance(sensitivity: float) -> float:
    return (1 + sensitivity) ** 2


def divide(
    budget: float, sensitivity: Mapping[str, float], weight: Mapping[str, float], floor: Mapping[str, float]
) -> dict[str, float]:
    """Shares whose violations add up to `budget`, each group's in proportion to its weight: the group that disturbs
    most for its weight is limited most. What a group cannot use (its share would be above 1) goes to the others."""
    shares: dict[str, float] = {}
    open_groups = set(sensitivity)
    left = budget
    while open_groups:
        total = sum(weight[name] for name in open_groups)
        wanted = {name: left * weight[name] / total / sensitivity[name] for name in open_groups}
        settled = {name: floor[name] for name in open_groups if wanted[name] < floor[name]}
        if not settled:
            settled = {name: 1.0 for name in open_groups if wanted[name] >= 1.0}
        if not settled:
            return {**shares, **wanted}
        for name, share in settled.items():
            shares[name] = share
            left -= share * sensitivity[name]
            open_groups.discard(name)
        left = max(left, 0.0)
    return shares
