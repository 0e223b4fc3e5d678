"""The earliest time and place at which a blocked job can start, given when the running ones are expected to end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from math import inf

from shoal.admission.amounts import Amount
from shoal.admission.capacity import Capacity
from shoal.admission.sites import Sites
from shoal.admission.snapshot import Need, Snapshot, resolve
from shoal.admission.together import among
from shoal.admission.types import NO_SEATS, Running
from shoal.core import ANY

MAX_NAMED = 8
"""The maximum number of jobs that a reason names, of those that must end first."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """`at` is when the job can start (Unix seconds, never before now). `known` is False when an end it rests on is
    unknown or overdue. `holds` is the part of the free capacity that must be kept, by node. `after` are the jobs that
    end before. `rests_on` are those whose capacity it needs: a job that might delay it may not take their place.
    `endless` names those of them that never end by themselves; where there is one, `at` is infinity."""

    job_id: str
    need: Need
    at: float
    known: bool
    holds: tuple[tuple[int, Amount], ...]
    after: tuple[str, ...]
    rests_on: frozenset[str] = frozenset()
    endless: tuple[str, ...] = ()


@dataclass(slots=True)
class Kept:
    """A reservation made in this decision, with its bit in the masks of `Capacity`; `young` while the job may be
    overtaken by those of unknown run time."""

    number: int
    reservation: Reservation
    young: bool


MOST_HELD = 64
"""The most reservations of one decision, on whatever nodes: each is a bit in every mask."""

Waiting = tuple[str, Sites | None]
"""What jobs wait for that share a reservation: a pool, and the nodes where they may be."""


def waits_for(need: Need) -> Waiting:
    return need.pool_name, need.only


def freed_by(snapshot: Snapshot, running: Running, pool: str | None = None) -> Iterable[tuple[int, Amount]]:
    """(node, what it holds there) for each rank of a running job on a node that takes jobs, and has the accelerator
    type `pool` if one is given."""
    nodes = snapshot.nodes
    for rank in running.placement:
        at = nodes.layout.position.get(rank.node)
        if at is None or not nodes.states[at].schedulable:
            continue
        if pool is not None and pool not in nodes.states[at].free_devices:
            continue
        any_type = None
        if ANY in running.resources.accelerators:
            any_type = next((nodes.layout.type_of[at].get(device) for device in rank.devices), None)
        amount = Amount(shared=nodes.layout.shared[at])
        amount.add(resolve(running.resources, any_type), 1, rank.devices)
        yield at, amount


def reserve(
    snapshot: Snapshot,
    capacity: Capacity,
    job_id: str,
    need: Need,
    ranks: int,
    mask: int,
    started: Sequence[tuple[tuple[float, str], Running]],
) -> Reservation | None:
    """Walk the expected ends in order until the gang fits whole. `started` are this decision's own starts, sorted.

    Returns None when it would not fit even after all of them.
    """
    fits = dict(capacity.fitting(need, mask, ranks))
    total = sum(fits.values())
    then: dict[int, Amount] = {}
    ended: dict[int, dict[str, Amount]] = {}
    unknown: set[str] = set()
    endless: dict[str, str] = {}
    at_time = snapshot.now
    for (end, _), running in merge(snapshot.ends.items(), started):
        if total >= ranks:
            break
        at_time = max(at_time, end)
        if not running.stopping and (running.expected_end is None or end <= snapshot.now):
            unknown.add(running.job_id)
        if end == inf:
            endless[running.job_id] = running.endless
        # Jobs that end on other kinds of nodes free nothing usable here, and may be most of the cluster.
        for at, freed in freed_by(snapshot, running, need.pool if need.count else None):
            if not need.may_be_on(at):
                continue
            amount = then.get(at)
            if amount is None:
                amount = then[at] = capacity.free_on(at, mask)
            amount.plus(freed)
            ended.setdefault(at, {}).setdefault(running.job_id, Amount()).plus(freed)
            before = fits.get(at, 0)
            fits[at] = amount.ranks(need, ranks)
            total += fits[at] - before
    if total < ranks:
        return None
    found = _settle(capacity, job_id, need, ranks, mask, at_time, fits, then, ended, unknown)
    names = dict.fromkeys(name for each, name in endless.items() if each in found.rests_on)
    return replace(found, endless=tuple(names))


def _settle(
    capacity: Capacity,
    job_id: str,
    need: Need,
    ranks: int,
    mask: int,
    at_time: float,
    fits: dict[int, int],
    then: dict[int, Amount],
    ended: dict[int, dict[str, Amount]],
    unknown: set[str],
) -> Reservation:
    """Choose as few nodes as possible, close to each other, and work out what of their free capacity has to be kept."""
    left = ranks
    holds: list[tuple[int, Amount]] = []
    after: dict[str, None] = {}
    rests_on: set[str] = set()
    order = sorted(fits.items(), key=lambda each: (-each[1], each[0] in then, each[0]))
    for at, count in among(capacity.levels, order, ranks):
        here = min(count, left)
        if not here:
            break
        left -= here
        now = capacity.free_on(at, mask)
        keep = then.get(at, now).part_for(need, here)
        if at in then:
            after.update(dict.fromkeys(ended[at]))
            rests_on |= _needed(keep, ended[at])
            subtract_freed(keep, now, then[at])
        holds.append((at, keep))
    known = not any(job in unknown for job in after)
    return Reservation(job_id, need, at_time, known, tuple(holds), tuple(after), frozenset(rests_on))


def _needed(wanted: Amount, ended: Mapping[str, Amount]) -> set[str]:
    """Of the jobs that end on a node, those without whose capacity less than `wanted` would be freed; the last to end
    are let off first."""
    spare = Amount()
    for amount in ended.values():
        spare.plus(amount)
    spare.minus(wanted)
    needed = set()
    for job_id, amount in reversed(list(ended.items())):
        if amount.within(spare):
            spare.minus(amount)
        else:
            needed.add(job_id)
    return needed


def subtract_freed(keep: Amount, now: Amount, then: Amount) -> None:
    """Of what will be needed, only what is not freed until then has to be kept of what is free now."""
    for kind in list(keep.devices):
        freed = then.devices[kind] - now.devices.get(kind, 0)
        keep.devices[kind] = max(0, keep.devices[kind] - freed)
    for device, seats in keep.seats.items():
        freed_seats = then.seats[device].minus(now.seats.get(device, NO_SEATS))
        keep.seats[device] = seats.minus(seats.least(freed_seats))
    keep.cpu_milli = max(0, keep.cpu_milli - (then.cpu_milli - now.cpu_milli))
    keep.memory_bytes = max(0, keep.memory_bytes - (then.memory_bytes - now.memory_bytes))
