"""What rounds remember from one to the next, as arrays by job, and as plain data for a file."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from shoal.core import Invalid
from shoal.schedule.rounds.round import Codes
from shoal.schedule.types import Array, Index, Mask

VERSION = 2

WINDOW = 10
"""Over so many rounds what a job received is compared with what its shares promised."""

TOOK = 256
"""So many jobs that ended last say what a long time is."""


_TABLE: Array = np.empty((0, 0))
_PAST: Array = np.empty((0, WINDOW))
_TIMES: Array = np.empty(0)
_COLUMN: Index = np.empty(0, np.intp)
_RAN: Mask = np.empty(0, np.bool_)
_WHY: Codes = np.empty((0, WINDOW), np.int8)


@dataclass(frozen=True, eq=False)
class State:
    """Of the jobs `ids` (m) and columns (n) by name. `settled` is until when time was counted; None before the first
    round. `share` (m, n) is what each job should have, `deficit_s` (m, n) the seconds that it had too little; `column`
    (m,) where the last round put it, or -1, `since` (m,) when; `ran` (m,) whether it ever ran. `worked_s` (m,) is how
    long what it did would have taken where it is fastest, at its least size. `fair` is what is remembered of rounds of
    max-min fairness, which are not carried out, where the policy asks for them. `arrived` (m,) is when a job came, and
    `took_s` (up to TOOK) how long the last jobs took that are no longer there. `promised_s`, `received_s` and `why`
    (m, WINDOW) are what shares came to in each of the last rounds, what was received, and why the job was where it was
    (`Why`; -1 before it was there)."""

    number: int = 0
    settled: float | None = None
    ids: Sequence[str] = ()
    columns: tuple[str, ...] = ()
    share: Array = field(default_factory=lambda: _TABLE)
    deficit_s: Array = field(default_factory=lambda: _TABLE)
    column: Index = field(default_factory=lambda: _COLUMN)
    since: Array = field(default_factory=lambda: _TIMES)
    ran: Mask = field(default_factory=lambda: _RAN)
    worked_s: Array = field(default_factory=lambda: _TIMES)
    arrived: Array = field(default_factory=lambda: _TIMES)
    took_s: Array = field(default_factory=lambda: _TIMES)
    promised_s: Array = field(default_factory=lambda: _PAST)
    received_s: Array = field(default_factory=lambda: _PAST)
    why: Codes = field(default_factory=lambda: _WHY)
    fair: State | None = None

    @property
    def behind_s(self) -> Array:
        """(m,) how many seconds of running where it is fastest each job had less than by max-min fairness."""
        found: Array = np.zeros(len(self.ids)) if self.fair is None else self.fair.worked_s - self.worked_s
        return found

    def as_json(self) -> dict[str, Any]:
        jobs = {}
        for row, name in enumerate(self.ids):
            at = int(self.column[row])
            given: dict[str, Any] = {
                "column": self.columns[at] if at >= 0 else None, "since": float(self.since[row]),
                "ran": bool(self.ran[row]), "share": self._named(self.share[row]),
                "deficit_s": self._named(self.deficit_s[row]),
                "worked_s": float(self.worked_s[row]), "arrived": float(self.arrived[row]),
                "past": [
                    [float(promised), float(received), int(why)]
                    for promised, received, why in zip(
                        self.promised_s[row], self.received_s[row], self.why[row], strict=True
                    )
                ],
            }  # fmt: skip
            jobs[str(name)] = {key: value for key, value in given.items() if value not in (None, 0, {}, False)}
        known = {"version": VERSION, "number": self.number, "settled": self.settled}
        fair = None if self.fair is None else self.fair.as_json()
        return {**known, "took_s": self.took_s.tolist(), "jobs": jobs, "fair": fair}

    def _named(self, values: Array) -> dict[str, float]:
        return {name: float(value) for name, value in zip(self.columns, values, strict=True) if value}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Raises `Invalid` for another version, and for what is no such state."""
        if found.get("version") != VERSION:
            raise Invalid(f"version {found.get('version')!r} of the state of rounds", hint=f"this is {VERSION}")
        try:
            jobs = {str(name): dict(job) for name, job in found["jobs"].items()}
            names = dict.fromkeys(
                str(name)
                for job in jobs.values()
                for name in (*([job["column"]] if job.get("column") else ()), *job.get("share", {}),
                             *job.get("deficit_s", {}))
            )  # fmt: skip
            columns = tuple(names)
            past = np.array([job.get("past") or _NO_PAST for job in jobs.values()], np.float64)
            past = past.reshape(-1, WINDOW, 3)
            settled = None if found["settled"] is None else _number(found["settled"])
            state = cls(
                int(found["number"]), settled, tuple(jobs), columns,
                share=_table(jobs, "share", columns), deficit_s=_table(jobs, "deficit_s", columns),
                column=np.array([columns.index(job["column"]) if job.get("column") else -1 for job in jobs.values()],
                                np.intp),
                since=np.array([_number(job.get("since", 0.0)) for job in jobs.values()]),
                ran=np.array([bool(job.get("ran", False)) for job in jobs.values()], np.bool_),
                worked_s=np.array([_number(job.get("worked_s", 0.0)) for job in jobs.values()]),
                fair=cls.from_json(found["fair"]) if found.get("fair") is not None else None,
                arrived=np.array([_number(job.get("arrived", 0.0)) for job in jobs.values()]),
                took_s=np.array([_number(took) for took in found.get("took_s", ())], np.float64),
                promised_s=past[:, :, 0], received_s=past[:, :, 1], why=past[:, :, 2].astype(np.int8),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid(f"no state of rounds: {error}") from None
        if not np.isfinite(past).all():
            raise Invalid("no state of rounds: what was received is not finite")
        return state


_NO_PAST = [[0.0, 0.0, -1.0]] * WINDOW


def _table(jobs: Mapping[str, Mapping[str, Any]], key: str, columns: tuple[str, ...]) -> Array:
    values = np.zeros((len(jobs), len(columns)))
    for row, job in enumerate(jobs.values()):
        for name, value in job.get(key, {}).items():
            values[row, columns.index(str(name))] = _number(value)
    return values


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number
