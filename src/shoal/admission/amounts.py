"""Amounts of what nodes have: devices, places on devices that can be shared, cores and memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from shoal.admission.snapshot import Layout, Need
from shoal.admission.types import NO_SEATS, NodeKind, Seats, Shared
from shoal.core import Share


@dataclass(slots=True)
class Amount:
    """Some of a node's devices, cpus and memory; may go below zero. Devices count by type, but those that can be
    shared (`shared`: what each offers) one by one: `seats` is what there is of each, by id."""

    devices: dict[str, int] = field(default_factory=dict)
    cpu_milli: int = 0
    memory_bytes: int = 0
    shared: Shared = field(default_factory=dict)
    seats: dict[str, Seats] = field(default_factory=dict)

    def add(self, need: Need, times: int, ids: Iterable[str] = ()) -> None:
        """What ranks take; `ids` are their devices, and matter for those that can be shared."""
        for kind, count in need.kinds:
            of_kind = self.shared.get(kind)
            if of_kind is None:
                self.devices[kind] = self.devices.get(kind, 0) + count * times
                continue
            for device in ids:
                if device in of_kind:
                    part = need.of_device(of_kind[device])
                    self.seats[device] = self.seats.get(device, NO_SEATS).plus(part)
        self.cpu_milli += need.cpu_milli * times
        self.memory_bytes += need.memory_bytes * times

    def ranks(self, need: Need, at_most: int) -> int:
        """How many ranks fit into this amount, counted up to `at_most`."""
        for kind, count in need.kinds:
            if kind in self.shared:
                found = len(self.open_to(need, kind))
            else:
                found = self.devices.get(kind, 0) if need.share is Share.EXCLUSIVE else 0
            at_most = min(at_most, found // count)
        if need.cpu_milli:
            at_most = min(at_most, self.cpu_milli // need.cpu_milli)
        if need.memory_bytes:
            at_most = min(at_most, self.memory_bytes // need.memory_bytes)
        return need.at_most(max(at_most, 0))

    def open_to(self, need: Need, kind: str) -> list[str]:
        """The devices of a type that can be shared on which a rank fits: those with most room first."""
        whole, seats = self.shared[kind], self.seats
        fits = [each for each in whole if need.of_device(whole[each]).within(seats.get(each, NO_SEATS))]
        return fits if need.share is Share.EXCLUSIVE else sorted(fits, key=lambda each: _crowding(seats[each]))

    def number_of(self, need: Need) -> int:
        """How many devices of the pool that a rank could have one of."""
        return len(self.open_to(need, need.pool)) if need.pool in self.shared else self.devices.get(need.pool, 0)

    def part_for(self, need: Need, ranks: int) -> Amount:
        """The part of this amount that the ranks would take."""
        part = Amount(shared=self.shared)
        ids: list[str] = []
        for kind, count in need.kinds:
            if kind in self.shared:
                ids += self.open_to(need, kind)[: count * ranks]
        part.add(need, ranks, ids)
        return part

    def plus(self, other: Amount) -> None:
        for kind, count in other.devices.items():
            self.devices[kind] = self.devices.get(kind, 0) + count
        for device, seats in other.seats.items():
            self.seats[device] = self.seats.get(device, NO_SEATS).plus(seats)
        self.cpu_milli += other.cpu_milli
        self.memory_bytes += other.memory_bytes

    def minus(self, other: Amount) -> None:
        for kind, count in other.devices.items():
            self.devices[kind] = self.devices.get(kind, 0) - count
        for device, seats in other.seats.items():
            self.seats[device] = self.seats.get(device, NO_SEATS).minus(seats)
        self.cpu_milli -= other.cpu_milli
        self.memory_bytes -= other.memory_bytes

    def within(self, other: Amount) -> bool:
        """Whether the other has as much of everything that this has any of."""
        return (
            all(count <= other.devices.get(kind, 0) for kind, count in self.devices.items() if count)
            and all(seats.within(other.seats.get(each, NO_SEATS)) for each, seats in self.seats.items() if any(seats))
            and self.cpu_milli <= max(0, other.cpu_milli)
            and self.memory_bytes <= max(0, other.memory_bytes)
        )

    def copy(self) -> Amount:
        return Amount(self.devices.copy(), self.cpu_milli, self.memory_bytes, self.shared, self.seats.copy())

    def draw(self, source: Amount) -> None:
        """Serve as much of this as possible from `source`; the rest stays."""
        for kind, count in self.devices.items():
            drawn = min(count, source.devices.get(kind, 0))
            self.devices[kind] = count - drawn
            source.devices[kind] = source.devices.get(kind, 0) - drawn
        for device, seats in self.seats.items():
            had = source.seats.get(device, NO_SEATS)
            part = seats.least(had)
            self.seats[device] = seats.minus(part)
            source.seats[device] = had.minus(part)
        cpu_milli, memory_bytes = min(self.cpu_milli, source.cpu_milli), min(self.memory_bytes, source.memory_bytes)
        self.cpu_milli -= cpu_milli
        source.cpu_milli -= cpu_milli
        self.memory_bytes -= memory_bytes
        source.memory_bytes -= memory_bytes

    def __bool__(self) -> bool:
        return bool(self.cpu_milli or self.memory_bytes or self.devices or self.seats)


def whole_node(kind: NodeKind) -> Amount:
    """All that a node of this kind has."""
    shared = {name: {f"{name} {at}": seats for at, seats in enumerate(each)} for name, each in kind.seats}
    devices = {name: count for name, count in kind.capacity.accelerators.items() if name not in shared}
    seats = {device: seats for of_kind in shared.values() for device, seats in of_kind.items()}
    return Amount(devices, kind.capacity.cpu_milli, kind.capacity.memory_bytes, shared, seats)


def held_by_all(layout: Layout, need: Need, ranks: int) -> int:
    """How many of the ranks all nodes where they may be would hold if they were empty."""
    kinds = layout.kinds if need.only is None else need.only.kinds.items()
    return sum(number * whole_node(kind).ranks(need, ranks) for kind, number in kinds)


def _crowding(seats: Seats) -> tuple[int, int, int]:
    """Sorts the device with most free capacity first: best-effort work takes empty devices, then lightly used ones."""
    return -seats.best_effort, -seats.guaranteed, -seats.memory


def use_up(amount: Amount, used: Amount) -> None:
    """Take from an amount what was used of it, as far as there is any."""
    for kind, count in used.devices.items():
        if kind in amount.devices:
            amount.devices[kind] = max(0, amount.devices[kind] - count)
    for device, seats in used.seats.items():
        if device in amount.seats:
            had = amount.seats[device]
            amount.seats[device] = had.minus(had.least(seats))
    amount.cpu_milli = max(0, amount.cpu_milli - used.cpu_milli)
    amount.memory_bytes = max(0, amount.memory_bytes - used.memory_bytes)
