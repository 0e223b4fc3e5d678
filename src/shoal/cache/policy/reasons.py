"""Reasons for the part of a set that is kept: for whom it is, and what would change it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.cache.policy.claims import own_parts
from shoal.cache.policy.problem import TINY, Mode
from shoal.core import Reason

if TYPE_CHECKING:
    from shoal.cache.policy.certificate import Certificate
    from shoal.cache.policy.claims import Claims
    from shoal.cache.policy.problem import Allocation, Array, Problem

_ALMOST = 0.9995
"""Shown as 100 %."""

_MORE = 1.01
"""Closer than this, two sets save the same: an optimum balances them."""


def explain(claims: Claims, allocation: Allocation, certificate: Certificate) -> dict[str, Reason]:
    problem, fractions = claims.problem, allocation.fractions
    wanted = problem.weight @ problem.benefit > 0
    fits = (problem.size <= problem.capacity) | (problem.mode is Mode.FRACTION)
    # What a further byte of each set is worth to the objective, and the set in which it is worth most.
    prices = np.divide(certificate.claim, certificate.saved, out=np.zeros_like(certificate.claim),
                       where=certificate.saved > 0)  # fmt: skip
    worth = prices @ problem.benefit / np.maximum(problem.size, TINY)
    candidates = np.flatnonzero(wanted & fits & (fractions < _ALMOST))
    own, kept_alone = own_parts(claims), np.zeros((len(problem.tenants), len(problem.sets)))
    view = _View(
        problem, certificate, (claims.items.value * own).sum(1), fractions, problem.benefit.T * problem.weight, worth,
        int(candidates[worth[candidates].argmax()]) if len(candidates) else None,
    )  # fmt: skip
    for item, of in enumerate(claims.items.of):
        kept_alone[:, of] += own[:, item] * claims.items.part[item]
    found = {
        name: view.reason(at, kept_alone) if wanted[at] else _unwanted(name, float(fractions[at]))
        for at, name in enumerate(problem.sets)
    }
    for at, name in enumerate(problem.tenants):
        if certificate.alone[at] <= 0:
            found[name] = _without_claim(problem, name, at)
    return found


def _unwanted(name: str, fraction: float) -> Reason:
    if fraction > 0:
        text = f"{name}: {fraction:.0%} kept. No tenant asks for it now; it stays while there is room."
        return Reason("retained", text)
    return Reason("no-demand", f"{name}: not kept. No tenant asks for it.")


def _without_claim(problem: Problem, name: str, tenant: int) -> Reason:
    wanted = np.flatnonzero(problem.benefit[tenant] > 0)
    if not len(wanted):
        return Reason("no-demand", f"{name} asks for no data: it gets nothing and costs the others nothing.")
    if problem.mode is Mode.LOTTERY and (problem.size[wanted] > problem.capacity).all():
        least = float(problem.size[wanted].min())
        return Reason(
            "too-large", f"{name} asks only for sets that are larger than the cache: the smallest needs {least:g} "
            f"of {problem.capacity:g}.", {"smallest": least, "capacity": problem.capacity},
        )  # fmt: skip
    return Reason("nothing-to-save", f"{name} would save nothing here: loading its data costs what it would save.")


@dataclass(frozen=True, slots=True)
class _View:
    """What the reasons of all sets have in common. `own` (N,) is what each tenant would save with its part of the
    bytes, `weighted` is (M, N), `worth` (M,), `best` the set in which a further byte is worth most."""

    problem: Problem
    certificate: Certificate
    own: Array
    fractions: Array
    weighted: Array
    worth: Array
    best: int | None

    def reason(self, at: int, own: Array) -> Reason:
        problem, certificate = self.problem, self.certificate
        name, kept = problem.sets[at], float(self.fractions[at])
        tenant = int(self.weighted[at].argmax())
        facts: dict[str, object] = {
            "kept": kept, "tenant": problem.tenants[tenant], "per_unit": self._per_unit(tenant, at),
        }  # fmt: skip
        if problem.mode is Mode.LOTTERY and problem.size[at] > problem.capacity:
            return Reason("too-large", f"{name}: not kept. It is larger than the cache and useful only whole.", facts)
        shown = "all kept" if kept >= _ALMOST else f"{kept:.0%} kept" if kept > 0 else "not kept"
        text = f"{name}: {shown}."
        claim, alone = float(certificate.claim[tenant]), float(own[tenant, at])
        if claim > 0:
            facts |= {"own_part": claim, "kept_with_own_part": alone}
            text += f" {problem.tenants[tenant]} would keep {alone:.0%} with {claim:.0%} of the cache of its own"
            if self.own[tenant] > 0:
                times = float(certificate.saved[tenant] / self.own[tenant])
                facts["saved_over_own_part"] = times
                text += f", and now saves {times:.3g} times as much as that would"
            text += "."
        if kept < _ALMOST:
            more, others = self._next(at)
            facts |= others
            text += more
        return Reason("kept" if kept >= _ALMOST else "partly" if kept > 0 else "not-kept", text, facts)

    def _next(self, at: int) -> tuple[str, dict[str, object]]:
        problem, best = self.problem, self.best
        if best is None or best == at or self.worth[at] <= 0:
            return " The next byte goes to it: a larger cache keeps more of it.", {}
        other = int(self.weighted[best].argmax())
        ratio = float(self.worth[best] / self.worth[at])
        facts: dict[str, object] = {
            "next": problem.sets[best], "next_tenant": problem.tenants[other], "next_worth": ratio,
            "next_per_unit": self._per_unit(other, best),
        }  # fmt: skip
        more = f"saves {ratio:.3g} times as much" if ratio > _MORE else "saves as much"
        return f" The next byte {more} in {problem.tenants[other]}'s {problem.sets[best]}.", facts

    def _per_unit(self, tenant: int, at: int) -> float:
        return float(self.problem.benefit[tenant, at] / max(float(self.problem.size[at]), TINY))
