"""Decide a journal's ticks again: with the same policy the same plans come out; with another, what it would have done.

That is what it would have *decided on what was seen*: what was seen followed from what had been decided then. What
another policy would have achieved is a question for the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.host.guard.journal import read_journal, state_from_json
from shoal.host.guard.loop import Record
from shoal.host.policy import make_policy
from shoal.host.types import UNLIMITED, Plan, Policy, Setting


@dataclass(frozen=True, slots=True)
class Replayed:
    """A tick as it was, and the plan as it is decided now. Groups in `differs` would have been limited otherwise."""

    record: Record
    plan: Plan
    differs: tuple[str, ...]


def replay(path: Path, policy: Policy[Any] | None = None) -> Iterator[Replayed]:
    """Every tick of one journal file. Without `policy`, by the one that decided then, from the state that it had then.
    Groups whose loosening the guard withheld at a tick are not compared at it: that was not the policy's decision.
    Raises `Invalid` for what is no journal."""
    head, records = read_journal(path)
    if policy is None:
        policy = make_policy(head.policy, **head.settings)
        state = state_from_json(type(policy.start()), head.state)
    else:
        state = policy.start()
    for record in records:
        plan, state = policy.step(record.snapshot, state)
        settings = {name: one for name, one in plan.settings.items() if one != UNLIMITED}
        plan = replace(plan, settings=settings)
        yield Replayed(record, plan, differing(record, plan))


def differing(record: Record, plan: Plan) -> tuple[str, ...]:
    """Groups whose settings are not the recorded ones, as far as JSON tells floats apart."""
    names = sorted({*plan.settings, *record.plan.settings})
    return tuple(
        name for name in names
        if name not in record.withheld
        and not _same(plan.settings.get(name, UNLIMITED), record.plan.settings.get(name, UNLIMITED))
    )  # fmt: skip


def _same(one: Setting, other: Setting) -> bool:
    return replace(one, share=0.0) == replace(other, share=0.0) and abs(one.share - other.share) <= 1e-9
