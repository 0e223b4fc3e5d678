"""Settings of rounds."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core import Invalid


@dataclass(frozen=True, slots=True)
class Settings:
    """`keep_s` is by how many seconds the deficit of another job must be larger before one loses its place;
    `time_slice_s` the seconds of deficit that weigh as much as a whole share; `remember_s` up to how many are
    remembered, either way (None: `REMEMBERED` time slices); `min_run_s` how long a job stays where it was put; `spare`
    gives out what no share asks for; `restart_s` is what a job loses by a restart."""

    round_s: float = 360.0
    keep_s: float = 3600.0
    time_slice_s: float = 3600.0
    remember_s: float | None = None
    min_run_s: float = 0.0
    spare: bool = True
    restart_s: float = 0.0

    def __post_init__(self) -> None:
        for name in ("round_s", "time_slice_s"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise Invalid(f"{getattr(self, name):g} seconds", where=name, hint="positive and finite")
        for name in ("keep_s", "min_run_s", "restart_s"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise Invalid(f"{getattr(self, name):g} seconds", where=name, hint="at least zero, and finite")

    @property
    def most_deficit_s(self) -> float:
        """A gang may have to wait for several time slices of others; its deficit by then must not be forgotten."""
        return REMEMBERED * self.time_slice_s if self.remember_s is None else self.remember_s

    @property
    def reserve_s(self) -> float:
        """Places are kept free for a gang at most for so long: then the last of those that stay there can be moved."""
        return self.min_run_s + self.round_s


REMEMBERED = 10.0
"""A job that waits through this number of time slices of others (a gang, behind jobs that keep their places) is still
paid back in full; more would let it keep others out for as long again."""
