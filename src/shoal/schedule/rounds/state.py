"""The mechanism's memory between rounds, as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from shoal.core import Invalid

VERSION = 1


@dataclass(frozen=True, slots=True)
class JobState:
    """One job: the column it runs in or None, with how many accelerators, beside whom, on which machines and since
    when; whether it ever ran; seconds received since the last allocation, shares and seconds owed, by column."""

    column: str | None = None
    accelerators: int = 0
    partner: str | None = None
    nodes: tuple[tuple[int, int], ...] = ()
    since: float = 0.0
    ran: bool = False
    share: Mapping[str, float] = field(default_factory=dict)
    received_s: Mapping[str, float] = field(default_factory=dict)
    owed_s: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """Of all jobs, by id. `settled` is until when time was counted; None before the first round."""

    number: int
    settled: float | None
    jobs: Mapping[str, JobState]

    def as_json(self) -> dict[str, Any]:
        jobs = {}
        for name, job in self.jobs.items():
            given: dict[str, Any] = {
                "column": job.column, "accelerators": job.accelerators, "partner": job.partner,
                "nodes": [list(each) for each in job.nodes], "since": job.since, "ran": job.ran,
                "share": dict(job.share), "received_s": dict(job.received_s), "owed_s": dict(job.owed_s),
            }  # fmt: skip
            jobs[name] = {key: value for key, value in given.items() if value not in (None, 0, {}, [], False)}
        return {"version": VERSION, "number": self.number, "settled": self.settled, "jobs": jobs}

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Raises `Invalid` for another version, and for what is no such state."""
        if found.get("version") != VERSION:
            raise Invalid(f"version {found.get('version')!r} of the state of rounds", hint=f"this is {VERSION}")
        try:
            jobs = {
                str(name): JobState(
                    column=job.get("column"),
                    accelerators=int(job.get("accelerators", 0)),
                    partner=job.get("partner"),
                    nodes=tuple((int(node), int(count)) for node, count in job.get("nodes", ())),
                    since=_number(job.get("since", 0.0)),
                    ran=bool(job.get("ran", False)),
                    share=_numbers(job.get("share", {})),
                    received_s=_numbers(job.get("received_s", {})),
                    owed_s=_numbers(job.get("owed_s", {})),
                )
                for name, job in found["jobs"].items()
            }
            settled = None if found["settled"] is None else _number(found["settled"])
            return cls(int(found["number"]), settled, jobs)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise Invalid(f"no state of rounds: {error}") from None


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{number} is not finite")
    return number


def _numbers(found: Mapping[str, Any]) -> dict[str, float]:
    return {str(name): _number(value) for name, value in found.items()}
