"""The policy of a shared device: who may put work on it now, and how a kernel is launched.

It is compiled once (`native/device/policy.cpp`) and bound here, so that tests and simulator decide as front ends do.
All functions are pure; times are nanoseconds of any one clock. Raises Unavailable where the library was not built.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from enum import IntEnum, IntFlag
from typing import Self

from shoal.device import native


class Class(IntEnum):
    FREE = 0
    GUARANTEED = 1
    BEST_EFFORT = 2


class Verdict(IntEnum):
    GO = 0
    GO_SHARE = 1
    """The minimum share, the longest wait or overdue work of its own lets it pass guaranteed work."""
    WAIT_BUSY = 2
    WAIT_GRACE = 3
    WAIT_BOUND = 4
    WAIT_TURN = 5


class Way(IntEnum):
    """How a kernel is launched."""

    WHOLE = 0
    SLICE = 1
    TICKET = 2


class Ways(IntFlag):
    """What a kernel can do."""

    WHOLE = 1 << Way.WHOLE
    SLICE = 1 << Way.SLICE
    TICKET = 1 << Way.TICKET


@dataclass(frozen=True, slots=True)
class Rules:
    """What is asked of a device, for all its tenants. See `ShoalRules` in native/device/policy.h."""

    bound_ns: int = 50_000
    grace_ns: int = 100_000
    grace_most_ns: int = 300_000
    idle_ns: int = 100_000_000
    idle_bound_ns: int = 2_000_000
    stuck_ns: int = 10_000_000_000
    quantum_ns: int = 2_000_000
    max_wait_ns: int = 0
    min_share_pm: int = 0

    def to_native(self) -> native.NativeRules:
        return native.NativeRules(**asdict(self))

    @classmethod
    def of_native(cls, rules: native.NativeRules) -> Self:
        return cls(**{field.name: getattr(rules, field.name) for field in fields(cls)})


@dataclass(frozen=True, slots=True)
class Tenant:
    """One process that uses the device, as a decision sees it. `name` is for its reason only."""

    cls: Class
    weight: int = 1
    pending: int = 0
    waiting: bool = False
    last_active_ns: int = 0
    progress_ns: int = 0
    gap_ns: int = 0
    outstanding_ns: int = 0
    running_ns: int = 0
    used_ns: int = 0
    overdue_ns: int = 0
    """Of the one that asks: by how much work of its own in other streams exceeds its prediction."""
    name: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: Verdict
    cause: int
    """The tenant that it waits for; its own index when there is none."""
    look_at_ns: int
    reason: str

    @property
    def goes(self) -> bool:
        return self.verdict <= Verdict.GO_SHARE


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of one (kernel, grid, block): means and mean deviations; 0 for never seen."""

    whole_ns: int = 0
    whole_dev_ns: int = 0
    slice_ns: int = 0
    slice_dev_ns: int = 0
    ticket_ns: int = 0
    ticket_whole_ns: int = 0
    slice_blocks: int = 0
    seen: int = 0
    wave_blocks: int = 0
    """How many of its blocks the device runs at once; 0: not known."""
    firsts: int = 0
    """Of each mean how many samples it began with, two bits each: whole, slice, ticket, whole by ticket."""


@dataclass(frozen=True, slots=True)
class Plan:
    way: Way
    blocks: int
    cost_ns: int
    violates: bool


def array(tenants: Sequence[Tenant]) -> ctypes.Array[native.NativeTenant]:
    """As the compiled policy takes them."""
    return (native.NativeTenant * len(tenants))(
        *(native.NativeTenant(**{name: int(getattr(one, name)) for name in _TENANT}) for one in tenants)
    )


_TENANT = [field[0] for field in native.NativeTenant._fields_]


def decide(rules: Rules, tenants: Sequence[Tenant], own: int, *, cost_ns: int, since_ns: int, now_ns: int) -> Decision:
    """May tenant `own` put a piece of `cost_ns` on the device now? It began to wait at `since_ns`."""
    found = native.library().shoal_decide(
        rules.to_native(), array(tenants), len(tenants), own, cost_ns, since_ns, now_ns
    )
    verdict = Verdict(found.verdict)
    return Decision(verdict, found.cause, found.look_at_ns, _reason(verdict, tenants[own], tenants[found.cause], rules))


def bound_ns(rules: Rules, tenants: Sequence[Tenant], now_ns: int) -> int:
    """How much best-effort work may be outstanding now."""
    return int(native.library().shoal_bound(rules.to_native(), array(tenants), len(tenants), now_ns))


def next_gap_ns(rules: Rules, estimate_ns: int, gap_ns: int) -> int:
    """The next estimate of a guaranteed tenant's p95 gap between launches, after one: 0 when the device had work."""
    return int(native.library().shoal_next_gap(rules.to_native(), estimate_ns, gap_ns))


def start_ns(rules: Rules, used_ns: int, weight: int, fair_ns: int) -> int:
    """What a best-effort tenant's fair clock is set to when it begins to wait."""
    return int(native.library().shoal_start(rules.to_native(), used_ns, weight, fair_ns))


def choose(profile: Profile, ways: Ways, *, blocks: int, bound_ns: int) -> Plan:
    """How to launch a best-effort kernel of `blocks` thread blocks so that its pieces stay under the bound."""
    found = native.library().shoal_choose(native.NativeProfile(**asdict(profile)), int(ways), blocks, bound_ns)
    return Plan(Way(found.way), found.blocks, found.cost_ns, bool(found.violates))


def learn(profile: Profile, way: Way, *, blocks: int, took_ns: int) -> Profile:
    """What is known after one more piece has run. By ticket, `blocks` 0 is the time from stop to end."""
    known = native.NativeProfile(**asdict(profile))
    native.library().shoal_learn(known, int(way), blocks, took_ns)
    return Profile(**{field.name: getattr(known, field.name) for field in fields(Profile)})


def _reason(verdict: Verdict, own: Tenant, cause: Tenant, rules: Rules) -> str:
    other = cause.name or f"a {cause.cls.name.lower().replace('_', '-')} tenant"
    match verdict:
        case Verdict.GO if own.cls is not Class.BEST_EFFORT:
            return "goes: guaranteed work never waits"
        case Verdict.GO:
            return "goes: guaranteed work is quiet"
        case Verdict.GO_SHARE:
            return (
                "goes, although guaranteed work is not quiet: its minimum share or its longest wait is due, "
                "or work of its own may wait for it"
            )
        case Verdict.WAIT_BUSY:
            return f"waits: {other} has {cause.pending} launches on the device"
        case Verdict.WAIT_GRACE:
            return f"waits: {other} was active a moment ago"
        case Verdict.WAIT_BOUND:
            return (
                f"waits: with this piece more than {rules.bound_ns / 1000:g} us of best-effort work would be left, "
                f"most of it of {other}"
            )
        case Verdict.WAIT_TURN:
            return f"waits: {other} has had less of the device, for its weight"
