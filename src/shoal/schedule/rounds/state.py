"""State of rounds from one to the next, as arrays by job, and as plain data for a file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shoal.core import Invalid
from shoal.schedule.rounds.round import Codes
from shoal.schedule.types import Array, Index, Mask

if TYPE_CHECKING:
    from shoal.schedule.policy.reference import Reference

VERSION = 3

WINDOW = 10
"""Over this number of rounds, what a job received is compared with what its shares promised."""

TOOK = 256
"""The number of jobs, of those that ended last, that say what a long time is."""


_ARRAYS: Mapping[str, tuple[type, tuple[str, ...]]] = MappingProxyType({
    "share": (np.float64, ("jobs", "columns")), "deficit_s": (np.float64, ("jobs", "columns")),
    "column": (np.intp, ("jobs",)), "since": (np.float64, ("jobs",)), "ran": (np.bool_, ("jobs",)),
    "worked_s": (np.float64, ("jobs",)), "arrived": (np.float64, ("jobs",)), "took_s": (np.float64, ("any",)),
    "promised_s": (np.float64, ("jobs", "rounds")), "received_s": (np.float64, ("jobs", "rounds")),
    "why": (np.int8, ("jobs", "rounds")),
})  # fmt: skip
"""The arrays of a state, with their types and shapes."""


def _empty(name: str) -> Callable[[], Any]:
    kind, shape = _ARRAYS[name]
    return lambda: np.empty([WINDOW if each == "rounds" else 0 for each in shape], kind)


@dataclass(frozen=True, eq=False)
class State:
    """Of the jobs `ids` (m) and columns (n) by name. `settled` is until when time was counted; None before the first
    round. `share` (m, n) is what each job should have, `deficit_s` (m, n) the seconds that it had too little; `column`
    (m,) where the last round put it, or -1, `since` (m,) when; `ran` (m,) whether it ever ran. `worked_s` (m,) is how
    long what it did would have taken where it is fastest, at its least size. `fair` is what is remembered of rounds of
    max-min fairness, which are not carried out, where the policy asks for them, `reference` of max-min fairness in
    fractions of time, for `blend`. `arrived` (m,) is when a job came, and `took_s` (up to TOOK) how long the last jobs
    took that are no longer there. `promised_s`, `received_s` and `why` (m, WINDOW) are what shares came to in each of
    the last rounds, what was received, and why the job was where it was (`Why`; -1 before it was there)."""

    number: int = 0
    settled: float | None = None
    ids: Sequence[str] = ()
    columns: tuple[str, ...] = ()
    share: Array = field(default_factory=_empty("share"))
    deficit_s: Array = field(default_factory=_empty("deficit_s"))
    column: Index = field(default_factory=_empty("column"))
    since: Array = field(default_factory=_empty("since"))
    ran: Mask = field(default_factory=_empty("ran"))
    worked_s: Array = field(default_factory=_empty("worked_s"))
    arrived: Array = field(default_factory=_empty("arrived"))
    took_s: Array = field(default_factory=_empty("took_s"))
    promised_s: Array = field(default_factory=_empty("promised_s"))
    received_s: Array = field(default_factory=_empty("received_s"))
    why: Codes = field(default_factory=_empty("why"))
    fair: State | None = None
    reference: Reference | None = None

    @property
    def behind_s(self) -> Array:
        """(m,) how many seconds of running where it is fastest each job had less than by max-min fairness."""
        found: Array = np.zeros(len(self.ids)) if self.fair is None else self.fair.worked_s - self.worked_s
        return found

    def as_json(self) -> dict[str, Any]:
        return {
            "version": VERSION, "number": self.number, "settled": self.settled, "ids": list(map(str, self.ids)),
            "columns": self.columns, "fair": None if self.fair is None else self.fair.as_json(),
            "reference": None if self.reference is None else self.reference.as_json(),
            **{name: getattr(self, name).tolist() for name in _ARRAYS},
        }  # fmt: skip

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Raises `Invalid` for another version, and for what is no such state."""
        if found.get("version") != VERSION:
            raise Invalid(f"version {found.get('version')!r} of the state of rounds", hint=f"this is {VERSION}")
        try:
            ids, columns = tuple(map(str, found["ids"])), tuple(map(str, found["columns"]))
            sizes = {"jobs": len(ids), "columns": len(columns), "rounds": WINDOW, "any": -1}
            arrays: dict[str, Any] = {
                name: np.array(found[name], kind).reshape([sizes[each] for each in shape])
                for name, (kind, shape) in _ARRAYS.items()
            }
            settled = None if found["settled"] is None else float(found["settled"])
            fair = None if found["fair"] is None else cls.from_json(found["fair"])
            reference = None
            if found.get("reference") is not None:
                from shoal.schedule.policy.reference import Reference

                reference = Reference.from_json(found["reference"])
            state = cls(int(found["number"]), settled, ids, columns, fair=fair, reference=reference, **arrays)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid(f"no state of rounds: {error}") from None
        if not all(np.isfinite(each).all() for each in (np.array(settled or 0.0), *arrays.values())):
            raise Invalid("no state of rounds: a number is not finite")
        if not ((state.column >= -1) & (state.column < len(columns))).all():
            raise Invalid("no state of rounds: a job is in no column that there is")
        return state
