"""Free capacity of each node, kept up to date job by job: the node side of the cluster index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from shoal.admission.persistent import CowMap
from shoal.admission.pools import PoolTable
from shoal.admission.snapshot import Layout, Need, NodeTable, Pool, Snapshot, resolve
from shoal.admission.together import levels_of
from shoal.admission.types import ANY_MEMORY, NodeKind, NodeState, Running, Seats, Shared
from shoal.core import Effect, Node

JobsOn = tuple[tuple[str, ...], ...]
"""The ids of the jobs on each node, by its position."""


class NodeBook:
    """The mutable side of the snapshot's `nodes`, `pools` and `jobs_on`. Jobs on nodes that are not in it hold
    nothing here."""

    def __init__(self) -> None:
        self.layout = Layout()
        self._states: list[NodeState] = []
        self._jobs_on: list[tuple[str, ...]] = []
        self._pools = PoolTable(())
        self._frozen: tuple[NodeTable, JobsOn] | None = None

    @classmethod
    def of(
        cls, nodes: Iterable[Node], closed: Mapping[str, str], running: Iterable[Running], close: Iterable[str] = ()
    ) -> NodeBook:
        """A book of these nodes, on which these jobs run. `close`: labels, one value of which says what is close."""
        made = cls()
        ordered = sorted(nodes, key=lambda node: node.name)
        made.layout = _layout(ordered, close)
        on: list[list[Running]] = [[] for _ in ordered]
        for each in running:
            for at in made._places(each):
                on[at].append(each)
        made._jobs_on = [tuple(each.job_id for each in held) for held in on]
        made._states = [
            made._free_on(node, held, schedulable=node.name not in closed, closed=closed.get(node.name, ""))
            for node, held in zip(ordered, on, strict=True)
        ]
        made._pools = PoolTable(made._states)
        return made

    @classmethod
    def thaw(cls, snapshot: Snapshot) -> NodeBook:
        made = cls()
        made.layout = snapshot.nodes.layout
        made._states = list(snapshot.nodes.states)
        made._jobs_on = list(snapshot.jobs_on)
        made._pools = PoolTable.thaw(snapshot.pools)
        return made

    def freeze(self) -> tuple[NodeTable, Mapping[str, Pool], JobsOn]:
        if self._frozen is None:
            self._frozen = NodeTable(self.layout, tuple(self._states)), tuple(self._jobs_on)
        nodes, jobs_on = self._frozen
        return nodes, self._pools.freeze(self._states), jobs_on

    def take(self, running: Running) -> None:
        """The job holds its placement from now on."""
        for at in self._places(running):
            self._jobs_on[at] = (*self._jobs_on[at], running.job_id)
            self._change(at, _less(self._states[at], (running,)))

    def give_back(self, running: Running, others: CowMap[Running]) -> None:
        """The job holds nothing any more. What is free is added up anew from those that stay, because it may have
        shared devices with another."""
        for at in self._places(running):
            self._jobs_on[at] = tuple([other for other in self._jobs_on[at] if other != running.job_id])
            old = self._states[at]
            if old.node.pooled:  # many jobs are on it, and no device is shared
                self._change(at, _more(old, running, self.layout.type_of[at]))
                continue
            held = [others[job_id] for job_id in self._jobs_on[at]]
            self._change(at, self._free_on(old.node, held, schedulable=old.schedulable, closed=old.closed))

    def _change(self, at: int, state: NodeState) -> None:
        self._pools.touch(at, self._states[at])
        self._states[at] = state
        self._frozen = None

    def _places(self, running: Running) -> list[int]:
        position = self.layout.position
        names = {rank.node for rank in running.placement}
        return sorted(position[name] for name in names if name in position)

    def _free_on(self, node: Node, held: Iterable[Running], *, schedulable: bool, closed: str) -> NodeState:
        at = self.layout.position[node.name]
        ids: dict[str, list[str]] = {}
        for device_id, kind in self.layout.type_of[at].items():
            ids.setdefault(kind, []).append(device_id)
        whole = {kind: tuple(each) for kind, each in ids.items()}
        state = NodeState(node, whole, node.cpu_milli, node.memory_bytes, schedulable, closed, self.layout.shared[at])
        return _less(state, held)


def _less(state: NodeState, more: Iterable[Running]) -> NodeState:
    """What is left on a node beside these jobs."""
    name, cpu_milli, memory_bytes = state.node.name, state.free_cpu_milli, state.free_memory_bytes
    taken: set[str] = set()
    seats = {kind: dict(devices) for kind, devices in state.free_seats.items()}
    for running in more:
        for rank in running.placement:
            if rank.node == name:
                taken.update(rank.devices)
                cpu_milli -= running.resources.cpu_milli
                memory_bytes -= running.resources.memory_bytes
                if seats:
                    _take_seats(seats, rank.devices, resolve(running.resources, None))
    free = state.free_devices
    if taken:
        free = {kind: tuple([each for each in ids if each not in taken]) for kind, ids in free.items()}
    return NodeState(state.node, free, cpu_milli, memory_bytes, state.schedulable, state.closed, seats)


def _more(state: NodeState, ended: Running, types: Mapping[str, str]) -> NodeState:
    """What is left on a pool once this job, which shared no device, has ended. `types`: the devices that there are."""
    ranks = [rank for rank in ended.placement if rank.node == state.node.name]
    back: dict[str, list[str]] = {}
    for rank in ranks:
        for device in rank.devices:
            if device in types:
                back.setdefault(types[device], []).append(device)
    free = {kind: (*ids, *back[kind]) if kind in back else ids for kind, ids in state.free_devices.items()}
    need = ended.resources
    return NodeState(
        state.node, free, state.free_cpu_milli + need.cpu_milli * len(ranks),
        state.free_memory_bytes + need.memory_bytes * len(ranks), state.schedulable, state.closed, state.free_seats,
    )  # fmt: skip


def _take_seats(seats: dict[str, dict[str, Seats]], devices: Iterable[str], need: Need) -> None:
    for device in devices:
        for of_kind in seats.values():
            if device in of_kind:
                of_kind[device] = of_kind[device].minus(need.of_device(of_kind[device]))


def _layout(nodes: list[Node], close: Iterable[str]) -> Layout:
    kinds: dict[NodeKind, int] = {}
    kind_of: list[NodeKind] = []
    shared = tuple(_shared(node) for node in nodes)
    for node, devices in zip(nodes, shared, strict=True):
        seats = tuple((kind, tuple(sorted(of_kind.values()))) for kind, of_kind in sorted(devices.items()))
        kind = NodeKind(node.capacity(), seats)
        kind_of.append(kind)
        kinds[kind] = kinds.get(kind, 0) + 1
    by_index = [sorted(node.devices, key=lambda device: (device.index, device.id)) for node in nodes]
    return Layout(
        names=tuple(node.name for node in nodes),
        position={node.name: at for at, node in enumerate(nodes)},
        index_of=tuple(
            {} if node.pooled else {device.id: device.index for device in devices}
            for node, devices in zip(nodes, by_index, strict=True)
        ),
        type_of=tuple({device.id: device.type for device in devices} for devices in by_index),
        kinds=tuple(kinds.items()),
        types=tuple(sorted({name for kind in kinds for name in kind.capacity.accelerators})),
        shared=shared,
        pooled=any(node.pooled for node in nodes),
        levels=levels_of(nodes, close),
        nodes=tuple(nodes),
        kind_of=tuple(kind_of),
        tainted=frozenset(
            at
            for at, node in enumerate(nodes)
            if any(taint.effect is not Effect.PREFER_NO_SCHEDULE for taint in node.taints)
        ),
        marked=any(node.taints for node in nodes),
    )


def _shared(node: Node) -> Shared:
    """What the devices offer that can be shared; of a type, all or none."""
    whole = {device.type for device in node.devices if not device.best_effort_seats}
    found: dict[str, dict[str, Seats]] = {}
    for device in sorted(node.devices, key=lambda device: (device.index, device.id)):
        if device.type not in whole:
            memory = ANY_MEMORY if device.memory_bytes is None else device.memory_bytes
            found.setdefault(device.type, {})[device.id] = Seats(1, device.best_effort_seats, memory)
    return found
