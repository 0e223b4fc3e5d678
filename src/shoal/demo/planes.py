"""Two teams with control planes of their own on the same machines: the same names in both, and one of them floods."""

from __future__ import annotations

import time
from typing import Any

from shoal.contract.lifecycle import JobState
from shoal.demo.play import Demo
from shoal.sdk import Client

_TEAMS = ("north", "south")
_FLOOD, _REGULAR = 40, 3
_SLOTS_EACH = 2
_TENANT, _NAME = "research", "tokenize"
"""What both planes call a tenant and a job of theirs."""
_JOB: dict[str, Any] = {
    "name": _NAME, "command": ["sleep", "0.1"], "resources": {"accelerators": "cpu:1", "cpus": 0.1, "memory": "64MiB"},
}  # fmt: skip
_LOOK_EVERY_S, _PATIENCE_S = 0.1, 60.0


def give_teams_planes(demo: Demo) -> None:
    """One plane submits a flood, and then the other a few jobs, which end while the flood still waits."""
    demo.screen.heading("10. Two teams get control planes of their own; one of them floods")
    planes = {team: _plane(demo, team) for team in _TEAMS}
    flooding, regular = (planes[team] for team in _TEAMS)
    for _ in range(_FLOOD):
        flooding.submit(_JOB, tenant=_TENANT)
    own = [regular.submit(_JOB, tenant=_TENANT) for _ in range(_REGULAR)]
    demo.screen.say(
        f"  both have a tenant `{_TENANT}` with jobs called `{_NAME}`: {_FLOOD} in {_TEAMS[0]}, then {_REGULAR} in "
        f"{_TEAMS[1]}; each team may use {_SLOTS_EACH} of the slots"
    )
    done = _ended(regular)
    left = _counts(flooding)
    waiting = left.get(JobState.QUEUED.value, 0) + left.get(JobState.STARTING.value, 0)
    demo.screen.say(f"  when the last of {_TEAMS[1]} had ended, {waiting} of {_TEAMS[0]} still waited")
    demo.report.extra["planes"] = {"regular": done, "flood": left}
    seen = {job.id for job in regular.jobs(limit=1000).jobs}
    demo.report.check(
        "planes keep teams apart",
        seen == {job.id for job in own} and done.get(JobState.SUCCEEDED.value) == _REGULAR and waiting > 0,
        f"{_TEAMS[1]} sees its {len(seen)} jobs only, and they ended while {waiting} of {_TEAMS[0]}'s waited",
    )
    for team in _TEAMS:
        demo.admin.planes.delete(team, force=True)


def _plane(demo: Demo, team: str) -> Client:
    """A plane with a tenant in it, as its admin sees it."""
    demo.admin.create_tenant(team, quota={"accelerators": _SLOTS_EACH}, sandbox="none")
    made = demo.admin.planes.create(team, tenant=team)
    client = Client(made.url, made.token, environ={})
    demo.after(client.close)
    client.create_tenant(_TENANT)
    demo.screen.say(f"  plane {team} answers at {made.url}")
    return client


def _ended(plane: Client) -> dict[str, int]:
    """Wait until no job of a plane is left to end."""
    give_up_at = time.monotonic() + _PATIENCE_S
    while True:
        found = _counts(plane)
        if all(JobState(state).terminal for state in found) or time.monotonic() > give_up_at:
            return found
        time.sleep(_LOOK_EVERY_S)


def _counts(plane: Client) -> dict[str, int]:
    return {state: count for state, count in plane.status().jobs.items() if count}
