"""All that was reported, by what was measured: the newest reports of each live job, and one for each job that ended."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shoal.base.validation import problems
from shoal.core import Invalid
from shoal.schedule.oracle.samples import Sample
from shoal.schedule.oracle.track import WINDOW, Rate, Report, Track, robust

ENDED_KINDS = 256
"""Kinds that are remembered without a live job, the newest: a tenant that names each job a kind of its own must not
make memory grow for ever."""


class Place(NamedTuple):
    """What was measured: a kind on a column, alone (`beside` empty) or beside another kind."""

    kind: str
    column: str
    beside: str = ""


class Reports:
    """`live` tracks by place and job, `ended` ones by place, and when a place was last seen to be `unfit`."""

    def __init__(self) -> None:
        self.live: dict[Place, dict[str, Track]] = {}
        self.ended: dict[Place, Track] = {}
        self.unfit: dict[Place, float] = {}
        self._of_kind: dict[Place, tuple[float, float]] = {}

    def add(self, sample: Sample) -> None:
        place = Place(sample.kind, sample.column, sample.beside or "")
        self._of_kind.pop(place, None)
        if not sample.fits:
            self.unfit[place] = max(float(sample.at), self.unfit.get(place, -math.inf))
            return
        track = self.live.setdefault(place, {}).setdefault(sample.job, Track())
        track.add(Report(float(sample.at), float(sample.per_s), float(sample.seconds), bool(sample.restarted)))

    def end(self, job: str) -> bool:
        """The job has ended: what it taught about its kind stays, in one report. False if it never reported."""
        places = [place for place, tracks in self.live.items() if job in tracks]
        for place in places:
            track = self.live[place].pop(job)
            if not self.live[place]:
                del self.live[place]
            self.ended.setdefault(place, Track()).add(Report(track.at, track.rate.per_s, 1.0, restarted=False))
            self._of_kind.pop(place, None)
        self._drop_oldest()
        return bool(places)

    @property
    def places(self) -> set[Place]:
        return {*self.live, *self.ended, *self.unfit}

    def of_job(self, place: Place, job: str) -> Rate | None:
        """From the job's own reports, unless its kind has since run out of memory there."""
        track = self.live.get(place, {}).get(job)
        if track is None or self.unfit.get(place, -math.inf) > track.at:
            return None
        return track.rate

    def of_kind(self, place: Place) -> tuple[float, float]:
        """The rate and relative deviation to expect of another job of the kind; zero where it does not fit."""
        if place not in self._of_kind:
            self._of_kind[place] = self._average(place)
        return self._of_kind[place]

    def _average(self, place: Place) -> tuple[float, float]:
        found = [(track.at, track.rate.per_s, track.rate.error) for track in self.live.get(place, {}).values()]
        if place in self.ended:
            found += [(each.at, each.per_s, 0.0) for each in self.ended[place].reports]
        newest = sorted(heapq.nlargest(WINDOW, found))
        if not newest or self.unfit.get(place, -math.inf) > newest[-1][0]:
            return 0.0, 0.0
        among = robust([per_s for _, per_s, _ in newest], [1.0] * len(newest))
        within = math.fsum(error**2 for _, _, error in newest) / len(newest) ** 2
        return among.per_s, math.sqrt(among.spread**2 + among.error**2 + within)

    def _drop_oldest(self) -> None:
        alive = {name for place in self.live for name in (place.kind, place.beside)}
        newest: dict[str, float] = {}
        for place, at in [*((place, track.at) for place, track in self.ended.items()), *self.unfit.items()]:
            if place.kind not in alive:
                newest[place.kind] = max(at, newest.get(place.kind, -math.inf))
        surplus = len(newest) - ENDED_KINDS
        if surplus <= 0:
            return
        dropped = set(heapq.nsmallest(surplus, newest, key=lambda kind: (newest[kind], kind)))
        for place in self.places:
            if place.kind in dropped or place.beside in dropped:
                self.ended.pop(place, None)
                self.unfit.pop(place, None)
                self._of_kind.pop(place, None)

    def as_json(self) -> dict[str, Any]:
        live = [
            [job, *place, [list(report) for report in track.reports]]
            for place, tracks in sorted(self.live.items())
            for job, track in sorted(tracks.items())
        ]
        ended = [[*place, [list(report) for report in track.reports]] for place, track in sorted(self.ended.items())]
        unfit = [[*place, at] for place, at in sorted(self.unfit.items())]
        return {"version": 1, "live": live, "ended": ended, "unfit": unfit}

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> Self:
        """Raises `Invalid` for what `as_json` did not write."""
        found = cls()
        try:
            known = _Written.model_validate(state)
        except ValidationError as error:
            hint = "start the oracle empty: it learns again from the next reports"
            first = problems(error)[0]
            what = f"the state cannot be read: {first.where}: {first.what}"
            raise Invalid(what, where="oracle", hint=hint) from error
        for job, *place, reports in known.live:
            found.live.setdefault(Place(*place), {})[job] = Track(reports)
        found.ended = {Place(*place): Track(reports) for *place, reports in known.ended}
        found.unfit = {Place(*place): at for *place, at in known.unfit}
        return found


_Name = Annotated[str, Field(min_length=1)]
_Reports = Annotated[list[Report], Field(min_length=1)]


class _Written(BaseModel):
    """What `as_json` writes: job, kind, column, beside and reports of live tracks, and less of the others."""

    model_config = ConfigDict(allow_inf_nan=False)

    version: Literal[1]
    live: list[tuple[str, _Name, _Name, str, _Reports]]
    ended: list[tuple[_Name, _Name, str, _Reports]]
    unfit: list[tuple[_Name, _Name, str, float]]
