"""Tables and texts of `shoal shell`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.base.console.output import duration, put, table
from shoal.core import Capability
from shoal.shell.annotations.check import Claim
from shoal.shell.doctor import rates
from shoal.shell.plan import size


def explained(run: str, entries: Sequence[Mapping[str, Any]]) -> None:
    print(f"run {run}")
    rows = [
        (
            one["pipeline"], one["command"], one["where"], duration(one.get("seconds")),
            size(one.get("moved", 0)) if one["where"] != "here" else "-",
            size(max(0, one.get("kept", 0) - one.get("moved", 0))) if one.get("kept") else "-", one["why"],
        )
        for one in entries
    ]  # fmt: skip
    put(table(("pipeline", "command", "where", "time", "moved", "not moved", "why"), rows, cut_middle=("command",)))


def planned(stages: Sequence[Mapping[str, Any]]) -> None:
    rows = [(one["command"], one["where"], size(one["in_bytes"]), size(one["out_bytes"]), one["why"]) for one in stages]
    put(table(("command", "where", "in", "out", "why"), rows, cut_middle=("command",)))


def status(found: Mapping[str, Any] | None) -> None:
    if found is None:
        print("no agent runs; the next session starts one")
        return
    print(f"the agent runs (pid {found['pid']}): {found['stages']} stages seen, {found['away']} ran on sites, "
          f"{size(found['moved_bytes'])} moved, {size(found['kept_bytes'])} not moved")  # fmt: skip
    sites(found["sites"])


def sites(found: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (one["name"], one["host"], ", ".join(f"{here}={there}" for here, there in one["mounts"].items()),
         _state(one))
        for one in found
    ]  # fmt: skip
    if rows:
        put(table(("site", "host", "folders", "state"), rows))
    else:
        print("there is no site; `shoal shell site add` adds one")


def _state(told: Mapping[str, Any]) -> str:
    if not told["ready"]:
        return told.get("why") or "not connected"
    return f"connected, {rates(told)}" if "round_trip_s" in told else "connected"


def doctor(found: Sequence[Capability]) -> None:
    rows = [(one.name, "yes" if one.available else "no", one.detail, one.consequence) for one in found]
    put(table(("what", "works", "detail", "otherwise"), rows))


def checked(found: Sequence[Claim]) -> None:
    rows = [(one.command, one.claim, "holds" if one.holds else "does not hold", one.detail) for one in found]
    put(table(("command", "claim", "", "detail"), rows))
