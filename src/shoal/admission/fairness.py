"""Weighted deficit round robin between tenants (Shreedhar and Varghese 1995), with empty rounds skipped.

Each round every tenant with work earns its weight times the quantum. It starts jobs while its deficit is positive; a
job's whole charge is taken at its start, so the deficit may go below zero and later rounds pay it back. Rounds in
which no tenant could start a job are skipped: tenants wait in a heap, ordered by the round that makes them positive.
So a turn costs one heap operation, however large the charges are.

A tenant that waits for capacity keeps its place: rounds count only as far as the first tenant that still has work. One
that is kept back by its own quota earns one turn at most, and an idle one nothing beyond the payment of its debt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

from shoal.admission.types import TenantState


class Ring:
    """One decision's rounds. `turns` counts the turns given: the cost of the decision."""

    def __init__(
        self, tenants: Mapping[str, TenantState], active: Iterable[str], *, quantum_s: float, turn: str | None
    ) -> None:
        self._tenants = tenants
        self._quantum_s = quantum_s
        names = sorted(active)
        first = next((at for at, name in enumerate(names) if turn is not None and name >= turn), 0)
        self._order = {name: at for at, name in enumerate(names[first:] + names[:first])}
        self._deficit = {name: tenants[name].deficit for name in names}
        self._lent: dict[str, float] = {}
        self._competing: set[str] = set()
        self._kept_back: set[str] = set()
        self._heap: list[tuple[int, int, str]] = []
        self._round = 0
        self.turns = 0

    def enter(self, names: Iterable[str]) -> None:
        """Let these tenants take turns (again)."""
        for name in names:
            self.back(name)

    def back(self, name: str) -> None:
        """The tenant has more to start when its next turn comes."""
        heappush(self._heap, (self._rounds_needed(name), self._order[name], name))

    def next(self) -> str | None:
        """The tenant whose turn it is; None when no tenant is left."""
        if not self._heap:
            return None
        self.turns += 1
        rounds, _, name = heappop(self._heap)
        self._round = rounds
        return name

    def may_go_on(self, name: str) -> bool:
        """True while the tenant's deficit, with what it earned by its turn, is positive."""
        return self._rounds_needed(name) <= self._round

    def charge(self, name: str, amount: float) -> None:
        self._deficit[name] -= amount

    def lend(self, name: str, amount: float) -> None:
        """Charge for this decision's turns only: capacity was kept for a job that is charged when it starts."""
        self._lent[name] = self._lent.get(name, 0.0) + amount
        self._deficit[name] -= amount

    def competes(self, name: str) -> None:
        """The tenant is left with work that only waits for capacity."""
        self._competing.add(name)

    def kept_back(self, name: str) -> None:
        """The tenant is left with work that its own quota keeps back."""
        self._kept_back.add(name)

    def finish(self) -> tuple[dict[str, float], str | None]:
        """The deficits that changed, and whose turn comes next."""
        for name, amount in self._lent.items():
            self._deficit[name] += amount
        first = min(self._competing, key=lambda name: (self._rounds_needed(name), self._order[name]), default=None)
        rounds = self._rounds_needed(first) if first is not None else 0
        changed: dict[str, float] = {}
        for name, state in self._tenants.items():
            deficit = self._deficit.get(name, state.deficit)
            if name in self._competing:
                deficit += rounds * self._quantum_of(name)
            elif deficit or name in self._kept_back:
                deficit = min(self._most_saved(name), deficit + rounds * self._quantum_of(name))
            if deficit != state.deficit:
                changed[name] = deficit
        return changed, first

    def _most_saved(self, name: str) -> float:
        return self._quantum_of(name) if name in self._kept_back else 0.0

    def _quantum_of(self, name: str) -> float:
        return self._quantum_s * self._tenants[name].tenant.weight

    def _rounds_needed(self, name: str) -> int:
        deficit = self._deficit[name]
        return 0 if deficit > 0 else int(-deficit / self._quantum_of(name)) + 1
