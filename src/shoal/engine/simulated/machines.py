"""Resources of the simulated nodes and who holds them. As strict as the real thing: nothing is given away twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from shoal.core import Device, Fault, Node, NotFound, Share
from shoal.engine.pool import described, wanted
from shoal.engine.protocol import Gang, Inventory, LaunchFailed, RankSpec, Refused


class Machines:
    def __init__(self, nodes: Sequence[Node]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._devices = {node.name: {device.id: device for device in node.devices} for node in nodes}
        self._lost: set[str] = set()
        self._lost_devices: set[tuple[str, str]] = set()
        self.closed: dict[str, str] = {}
        self.unreachable: set[str] = set()
        self._holders: dict[tuple[str, str], list[Gang]] = {}
        self._cpu_milli: Counter[str] = Counter()
        self._memory_bytes: Counter[str] = Counter()

    def inventory(self) -> Inventory:
        gone = self._lost | self.unreachable
        present = tuple(self._left_of(node) for node in self._nodes.values() if node.name not in gone)
        return Inventory(present, {node.name: self.closed[node.name] for node in present if node.name in self.closed})

    def add(self, node: Node) -> None:
        self._nodes[node.name] = node
        self._devices[node.name] = {device.id: device for device in node.devices}
        self.restore(node.name)

    def lose(self, name: str) -> None:
        self._lost.add(self._nodes[name].name)

    def restore(self, name: str) -> None:
        self._lost.discard(name)
        self.unreachable.discard(name)
        self._lost_devices = {(node, device) for node, device in self._lost_devices if node != name}

    def lose_device(self, name: str, device: str) -> None:
        if device not in self._devices[name]:
            raise NotFound(f"node {name} has no device {device}")
        self._lost_devices.add((name, device))

    def _left_of(self, node: Node) -> Node:
        if not any(name == node.name for name, _ in self._lost_devices):
            return node
        return replace(node, devices=tuple(d for d in node.devices if (node.name, d.id) not in self._lost_devices))

    def take(self, gang: Gang) -> None:
        """Take what all ranks hold, or raise LaunchFailed and take nothing."""
        ranks_on: dict[str, int] = {}
        for rank in gang.ranks:
            ranks_on[rank.node] = ranks_on.get(rank.node, 0) + 1
        for name, ranks in ranks_on.items():
            self._check_node(gang, name, ranks)
        wanted = [(rank.node, device) for rank in gang.ranks for device in rank.devices]
        for number, (node, device) in enumerate(wanted):
            if device not in self._devices[node]:
                raise _refused(gang, f"node {node} has no device {device}")
            if (node, device) in self._lost_devices:
                what = f"device {device} of node {node} is gone"
                raise LaunchFailed(what, fault=Fault.INFRASTRUCTURE, where=gang.name)
            holders = self._holders.get((node, device), []) + [gang] * wanted[:number].count((node, device))
            if not _has_room(self._devices[node][device], holders, gang):
                held = ", ".join(holder.name for holder in holders)
                raise _refused(
                    gang, f"device {device} of node {node} is held by {held or 'no other'}, as it may be shared"
                )
        for place in wanted:
            self._holders.setdefault(place, []).append(gang)
        for name, ranks in ranks_on.items():
            self._cpu_milli[name] += ranks * gang.cpu_milli
            self._memory_bytes[name] += ranks * gang.memory_bytes

    def pick(self, gang: Gang) -> Gang | None:
        """The gang with machines and devices for its ranks, each on the first open machine with room for it; None
        where not all of them fit now."""
        ranks = self._places(gang)
        return None if ranks is None else replace(gang, ranks=ranks)

    def check(self, gang: Gang) -> None:
        """Raise Refused where its ranks would not fit if nothing ran here and nothing was lost."""
        if self._places(gang, empty=True) is None:
            raise Refused(f"the machines of this cluster do not have {described(gang)}", where=gang.name)

    def free_in_words(self) -> str:
        """`3 of 8 a100 free`."""
        have, held = Counter[str](), Counter[str]()
        for node in self.inventory().nodes:
            for device in node.devices:
                have[device.type] += 1
                held[device.type] += bool(self._holders.get((node.name, device.id)))
        return ", ".join(f"{count - held[kind]} of {count} {kind} free" for kind, count in sorted(have.items()))

    def _places(self, gang: Gang, *, empty: bool = False) -> tuple[RankSpec, ...] | None:
        """`empty`: as if all machines were there, and free."""
        shown = self.inventory()
        nodes = [node for node in shown.nodes if node.name not in shown.closed]
        if empty:
            nodes = list(self._nodes.values())
        nodes = [node for node in nodes if gang.affinity.allows(node.labels, node.taints)]
        cores = {node.name: node.cpu_milli - self._cpu_milli[node.name] * (not empty) for node in nodes}
        memory = {node.name: node.memory_bytes - self._memory_bytes[node.name] * (not empty) for node in nodes}
        free = {
            node.name: [d for d in node.devices if empty or not self._holders.get((node.name, d.id))] for node in nodes
        }
        ranks: list[RankSpec] = []
        full: set[str] = set()
        size = gang.ranks_per_node or 1
        for block in (gang.ranks[at : at + size] for at in range(0, len(gang.ranks), size)):
            needs = sum(map(wanted, block), Counter[str]())
            cpu_milli, memory_bytes = gang.cpu_milli * size, gang.memory_bytes * size
            for name, devices in free.items():
                kinds = Counter(device.type for device in devices)
                if name not in full and needs <= kinds and cpu_milli <= cores[name] and memory_bytes <= memory[name]:
                    break
            else:
                return None
            cores[name] -= cpu_milli
            memory[name] -= memory_bytes
            if gang.ranks_per_node:
                full.add(name)
            for rank in block:
                devices = free[name]
                taken = [device for kind, count in wanted(rank).items() for device in _first(devices, kind, count)]
                free[name] = [device for device in devices if device not in taken]
                ranks.append(replace(rank, node=name, devices=tuple(device.id for device in taken)))
        return tuple(ranks)

    def give_back(self, gang: Gang) -> None:
        for rank in gang.ranks:
            for device in rank.devices:
                self._holders[rank.node, device].remove(gang)
            self._cpu_milli[rank.node] -= gang.cpu_milli
            self._memory_bytes[rank.node] -= gang.memory_bytes

    def _check_node(self, gang: Gang, name: str, ranks: int) -> None:
        node = self._nodes.get(name)
        if node is None or name in self._lost or name in self.unreachable:
            raise LaunchFailed(f"there is no node {name}", fault=Fault.INFRASTRUCTURE, where=gang.name)
        if self._cpu_milli[name] + ranks * gang.cpu_milli > node.cpu_milli:
            raise _refused(gang, f"node {name} has {node.cpu_milli} cpu_milli, {self._cpu_milli[name]} of them taken")
        if self._memory_bytes[name] + ranks * gang.memory_bytes > node.memory_bytes:
            raise _refused(
                gang, f"node {name} has {node.memory_bytes} bytes of memory, {self._memory_bytes[name]} of them taken"
            )


def _has_room(device: Device, holders: Sequence[Gang], gang: Gang) -> bool:
    """Whether one more gang may have the device beside these. How many may share it is not for an engine to say."""
    if gang.share is Share.EXCLUSIVE or not holders:
        return not holders
    together = [*holders, gang]
    of = Counter(each.share for each in together)
    return (
        not of[Share.EXCLUSIVE]
        and of[Share.GUARANTEED] <= 1
        and (device.memory_bytes is None or sum(each.device_memory_bytes for each in together) <= device.memory_bytes)
    )


def _first(devices: Sequence[Device], kind: str, count: int) -> list[Device]:
    return [device for device in devices if device.type == kind][:count]


def _refused(gang: Gang, what: str) -> LaunchFailed:
    return LaunchFailed(what, fault=Fault.PLATFORM, where=gang.name, hint="the placement exceeds what is free")
