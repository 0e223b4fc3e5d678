"""One round: from what is declared and was read to how much of each set is wanted."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shoal.cache.daemon.sets import MOST_OBJECTS, DataSet, Rate
from shoal.core import Reason

if TYPE_CHECKING:
    from shoal.cache.policy import Decision


_MOST_RATES = 100_000
"""Pairs of a tenant and a set: a reader that reports ever new sets must not make memory grow for ever."""

_LARGEST = 1 << 60
"""Bytes of an object."""


@dataclass(frozen=True, slots=True)
class Planning:
    """`horizon_s`: a load is worth it when it pays within this time. `memory`: the part that the newest round has in
    the average of reads. `device_bytes_per_s`: what one device could read at most, so that no tenant's declarations
    count for more than its devices read."""

    policy: str = "pf"
    round_s: float = 10.0
    horizon_s: float = 3600.0
    memory: float = 0.05
    device_bytes_per_s: float = 10e9
    weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Round:
    """The last decision, as data. `at` is Unix time; `gap` None without one."""

    at: float = 0.0
    seconds: float = 0.0
    gap: float | None = None
    tenants: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    kept: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, Reason] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {
            "at": self.at, "seconds": self.seconds, "gap": self.gap, "tenants": self.tenants, "kept": self.kept,
            "reasons": {name: one.as_json() for name, one in self.reasons.items()},
        }  # fmt: skip


class Planner:
    """Thread-safe. Knows sets and rates; decides when it is told to."""

    def __init__(self, planning: Planning, chunk_bytes: int, capacity: int, files: int) -> None:
        self.planning = planning
        self.sets: dict[str, DataSet] = {}
        self.weights: Mapping[str, float] = planning.weights
        self.devices: Mapping[str, int] = {}
        """By tenant; one where a tenant has none, or is not known."""
        self.last = Round()
        self._chunk_bytes = chunk_bytes
        self._capacity = capacity
        self._least = capacity / max(files, 1)
        self._rates: dict[tuple[str, str], Rate] = {}
        self._known = 0
        self._reads_per_hour: dict[str, float] = {}
        self.mutex = threading.RLock()

    # --- sense ---

    def set_of(self, url: str) -> str:
        """The declared or pinned set that the object lies in, the innermost; else its folder."""
        with self.mutex:
            above = url
            while "/" in above:
                found = self.sets.get(above)
                if found is not None and (found.listed or found.pinned):
                    return above
                above = above.rpartition("/")[0]
        return url.rpartition("/")[0]

    def see(self, part_of: str, key: str, size: int) -> bool:
        """Remember an object of a set. False, and it is not remembered, where `MOST_OBJECTS` are known, or for a size
        that no object has."""
        if not 0 <= size <= _LARGEST:
            return False
        with self.mutex:
            found = self.sets.setdefault(part_of, DataSet(part_of))
            if key not in found.objects:
                if self._known >= MOST_OBJECTS:
                    return False
                self._known += 1
            found.add(key, size)
            return True

    def mark_declared(self, part_of: str) -> None:
        """Objects below this URL are of this set from now on."""
        with self.mutex:
            self.sets.setdefault(part_of, DataSet(part_of)).listed = True

    def lose(self, part_of: str, key: str) -> None:
        with self.mutex:
            if part_of in self.sets and key in self.sets[part_of].objects:
                self.sets[part_of].discard(key)
                self._known -= 1

    def read(self, tenant: str, part_of: str, count: float) -> None:
        with self.mutex:
            if len(self._rates) < _MOST_RATES or (tenant, part_of) in self._rates:
                self._rate(tenant, part_of).this_round += count

    def reads(self, tenant: str, part_of: str) -> bool:
        """Whether the tenant has read the set lately, or declared it."""
        with self.mutex:
            return (tenant, part_of) in self._rates

    def declared(self, tenant: str, part_of: str) -> float:
        """Bytes a second."""
        with self.mutex:
            found = self._rates.get((tenant, part_of))
            return 0.0 if found is None else found.declared

    def order(self, part_of: str) -> float:
        """Of sets to fetch from, the smaller the sooner: what is read most often saves most a byte."""
        return -self._reads_per_hour.get(part_of, 0.0)

    def declare(self, tenant: str, part_of: str, bytes_per_s: float, epochs: float | None) -> None:
        """0 bytes a second takes a declaration back."""
        with self.mutex:
            found = self._rate(tenant, part_of)
            found.declared, found.epochs = bytes_per_s, epochs

    def declare_all(self, demands: Mapping[tuple[str, str], tuple[float, float | None]]) -> None:
        """By tenant and set: all that the server's jobs read, in place of what it declared before."""
        with self.mutex:
            for pair, rate in self._rates.items():
                if rate.standing and pair not in demands:
                    rate.declared, rate.standing = 0.0, False
            for (tenant, part_of), (bytes_per_s, epochs) in demands.items():
                found = self._rate(tenant, part_of)
                found.declared, found.epochs, found.standing = bytes_per_s, epochs, True
                self.mark_declared(part_of)

    def _rate(self, tenant: str, part_of: str) -> Rate:
        return self._rates.setdefault((tenant, part_of), Rate())

    # --- decide ---

    def round(
        self, held: Mapping[str, int], linked: Mapping[tuple[str, str], float] | None = None, dying: int = 0
    ) -> Round:
        """`held`: bytes that are there of each set. `linked`: the part of a set that a tenant's jobs read by links, by
        tenant and set. `dying`: bytes that readers and jobs hold of what was evicted. Sets the part of each set that is
        wanted."""
        from shoal.cache.policy import POLICIES, decide

        began = time.monotonic()
        with self.mutex:
            for pair, part in (linked or {}).items():
                if pair in self._rates:
                    self._rates[pair].estimate(part, self.planning.round_s)
            names, problem = self._problem(held, self._capacity - dying)
        decision = decide(problem, POLICIES[self.planning.policy])
        with self.mutex:
            for name, part in zip(names, decision.allocation.fractions, strict=True):
                if name in self.sets:
                    self.sets[name].keep(float(part), self._chunk_bytes, self._least)
            for one in self.sets.values():
                if one.pinned:
                    one.keep(1.0, self._chunk_bytes, self._least)
            self.last = self._told(names, decision, time.monotonic() - began)
        return self.last

    def _problem(self, held: Mapping[str, int], capacity: float) -> Any:
        import numpy as np

        from shoal.cache.policy import Mode, Problem
        from shoal.cache.policy.demand import capped

        planning = self.planning
        for rate in self._rates.values():
            rate.end_round(planning.round_s, planning.memory)
        self._rates = {pair: rate for pair, rate in self._rates.items() if not rate.idle}
        self._forget(held)
        sizes = {name: one.size(self._chunk_bytes, self._least) for name, one in self.sets.items()}
        pinned = sum(size for name, size in sizes.items() if self.sets[name].pinned)
        names = [name for name, size in sizes.items() if size > 0 and not self.sets[name].pinned]
        tenants = sorted({tenant for tenant, _ in self._rates} | set(self.weights))
        shape = len(tenants), len(names)
        declared, measured, epochs = np.zeros(shape), np.zeros(shape), np.full(shape, np.inf)
        places = {name: at for at, name in enumerate(names)}
        for (tenant, name), rate in self._rates.items():
            if name in places:
                at = tenants.index(tenant), places[name]
                declared[at], measured[at] = rate.declared, rate.measured
                epochs[at] = np.inf if rate.epochs is None else rate.epochs
        most = planning.device_bytes_per_s * np.array([max(1, self.devices.get(tenant, 1)) for tenant in tenants])
        rate_now = capped(np.where(declared > 0, declared, measured), measured, most)
        size = np.array([sizes[name] for name in names])
        self._reads_per_hour = dict(zip(names, (rate_now.sum(0) / np.maximum(size, 1) * 3600).tolist(), strict=True))
        benefit = np.minimum(rate_now * planning.horizon_s, epochs * size) if len(names) else rate_now
        problem = Problem.of(
            Mode.FRACTION, max(capacity - pinned, 0.0), size, benefit.reshape(shape), tenants=tenants, sets=names,
            weight=[self.weights.get(tenant, 1.0) for tenant in tenants],
            held=np.clip([held.get(name, 0) / sizes[name] for name in names], 0.0, 1.0), loading=size,
        )  # fmt: skip
        return names, problem

    def _forget(self, held: Mapping[str, int]) -> None:
        """Sets of which nothing is there, and that no tenant reads."""
        used = {name for _, name in self._rates}
        for name in [name for name, one in self.sets.items() if not (one.pinned or held.get(name) or name in used)]:
            self._known -= len(self.sets.pop(name).objects)

    def _told(self, names: list[str], decision: Decision, seconds: float) -> Round:
        certificate, problem = decision.certificate, decision.problem
        rows = zip(
            problem.tenants, certificate.saved, certificate.alone, decision.own(), certificate.claim, strict=True
        )
        return Round(
            time.time(), seconds, certificate.gap if certificate.gap < float("inf") else None,
            {
                name: {
                    "saved_bytes_per_s": saved / self.planning.horizon_s, "scaled": saved / alone if alone else 1.0,
                    "over_own_part": saved / own if own else 1.0, "claim": claim,
                }
                for name, saved, alone, own, claim in rows
            },
            dict(zip(names, decision.allocation.fractions.tolist(), strict=True)),
            {name: self._live(reason) for name, reason in decision.explain().items()},
        )  # fmt: skip

    def _live(self, reason: Reason) -> Reason:
        """With reads an hour for each GiB in place of bare numbers."""
        facts = dict(reason.facts)
        per_hour = 3600.0 / self.planning.horizon_s
        text = reason.text
        if "per_unit" in facts:
            facts["reads_per_hour"] = facts.pop("per_unit") * per_hour
        if "next_per_unit" in facts:
            facts["next_reads_per_hour"] = facts.pop("next_per_unit") * per_hour
            text += (
                f" (Reads an hour of each GiB: {facts['next_reads_per_hour']:.2g} there against "
                f"{facts['reads_per_hour']:.2g}.)"
            )
        return Reason(reason.code, text, facts)
