"""How rounds are made."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from shoal.core import Invalid


class Ranking(StrEnum):
    """Who comes first. `PRIORITY` is Gavel's: allocation over the fraction of time received since the allocation,
    column by column, the fastest first. `CREDIT` ranks all columns at once by the share that a job should have and the
    time that it is owed, with a bonus for whoever is there already: shares are kept over longer stretches, and jobs
    move much less."""

    PRIORITY = "priority"
    CREDIT = "credit"


@dataclass(frozen=True, slots=True)
class Settings:
    """`keep_s` is how many seconds of running another job must be owed more before one loses its place; `quantum_s`
    the seconds of credit that weigh as much as a whole share; `owed_s` up to how many are remembered, either way (None:
    as many); `min_run_s` how long a job stays where it was put;
    `spare` gives out what no share asks for; `shuffle` seeds the order in which `PRIORITY` visits columns (None: the
    fastest first)."""

    round_s: float = 360.0
    ranking: Ranking = Ranking.CREDIT
    keep_s: float = 3600.0
    quantum_s: float = 3600.0
    owed_s: float | None = None
    min_run_s: float = 0.0
    spare: bool = True
    shuffle: int | None = None

    def __post_init__(self) -> None:
        for name in ("round_s", "quantum_s"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise Invalid(f"{getattr(self, name):g} seconds", where=name, hint="positive and finite")
        for name in ("keep_s", "min_run_s"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise Invalid(f"{getattr(self, name):g} seconds", where=name, hint="at least zero, and finite")
