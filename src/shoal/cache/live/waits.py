"""The part of the time in which jobs wait for data."""

from __future__ import annotations

from collections.abc import Mapping


class Share:
    """From two looks at the seconds that were waited so far, by tenant and job."""

    def __init__(self) -> None:
        self._at = 0.0
        self._before: Mapping[tuple[str, str], float] = {}
        self._shares: dict[tuple[str, str], float] = {}

    def look(self, at: float, waited: Mapping[tuple[str, str], float]) -> None:
        """`at` in monotonic seconds. Several readers may wait at the same time: no part is more than all."""
        passed = at - self._at
        self._shares = {
            pair: min(1.0, max(0.0, seconds - self._before[pair]) / passed)
            for pair, seconds in waited.items() if pair in self._before and passed > 0
        }  # fmt: skip
        self._at, self._before = at, waited

    def of(self, tenant: str, job_id: str) -> float | None:
        return self._shares.get((tenant, job_id))
