"""The engine protocol over a simulated cluster: a connection, as short-lived as the server that holds it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping

from shoal.core import CPU_SLOT, Capability, Device, Node, SystemClock, Unavailable
from shoal.engine.changes import Changes
from shoal.engine.present import Present
from shoal.engine.protocol import MOUNTS_CAPABILITY, EngineOptions, Gang, GangStatus, Inventory, LogChunk, LogTimes
from shoal.engine.simulated.cluster import SimulatedCluster
from shoal.engine.simulated.gang import Link
from shoal.engine.simulated.script import Script

_SLOTS = 8
_SLOT_BYTES = 4 << 30


class SimulatedEngine:
    """See `shoal.engine.protocol.Engine`. Drop it as `kill -9` would with `drop`; open another on the same cluster."""

    name = "simulated"

    def __init__(self, cluster: SimulatedCluster) -> None:
        self.cluster = cluster
        self._link: Link | None = None
        self._changes = Changes()
        self._nodes = Present(cluster.inventory())

    async def open(self) -> None:
        if self._link is None:
            self._link = Link()
            self._nodes = Present(self.cluster.inventory())
            self._changes = Changes()
            self.cluster.attach(self._changes.put, self._nodes.set)

    async def close(self) -> None:
        self.drop()

    def drop(self) -> None:
        """Cut the connection: nothing is answered or told any more, and later calls raise Unavailable."""
        if self._link is None:
            return
        self._link.alive = False
        self._link = None
        self.cluster.detach(self._changes.put, self._nodes.set)
        self._nodes.close()
        self._changes.close(at_once=True)

    def capabilities(self) -> tuple[Capability, ...]:
        return (
            Capability("gangs", True, "ranks start together or not at all"),
            Capability(MOUNTS_CAPABILITY, True, "paths are kept, and nobody looks at them"),
            Capability("processes", False, "nothing runs for real", "results are those of the script"),
        )

    async def inventory(self) -> Inventory:
        self._connected()
        return self.cluster.inventory()

    def nodes(self) -> AsyncIterator[Inventory]:
        self._connected()
        return self._nodes.follow()

    async def join(self, node: Node, closed: str) -> None:
        self._connected()
        if closed:
            self.cluster.close_node(node.name, closed)
        self.cluster.add_node(node)

    async def leave(self, name: str) -> None:
        self._connected()
        if any(node.name == name for node in self.cluster.inventory().nodes):
            self.cluster.open_node(name)
            self.cluster.lose_node(name)

    async def launch(self, gang: Gang) -> GangStatus:
        return await self.cluster.launch(gang, self._connected())

    async def gangs(self) -> Mapping[str, GangStatus]:
        self._connected()
        return self.cluster.statuses()

    async def status(self, name: str) -> GangStatus | None:
        self._connected()
        return self.cluster.status(name)

    def changes(self) -> AsyncIterator[GangStatus]:
        self._connected()
        return self._changes.watch(self.cluster.statuses().values())

    async def notify(self, name: str, notice: Mapping[str, object]) -> None:
        self._connected()
        self.cluster.notify(name, notice)

    async def signal(self, name: str, signum: int) -> None:
        self._connected()
        self.cluster.signal(name, signum)

    async def stop(self, name: str, *, grace_s: float | None = None, reason: str = "") -> None:
        self._connected()
        self.cluster.stop(name, grace_s, reason)

    async def read(self, name: str, rank: int, stream: str, offset: int, limit: int = 65536) -> LogChunk:
        self._connected()
        return self.cluster.read(name, rank, stream, offset, limit)

    async def log_times(self, name: str, rank: int) -> LogTimes:
        self._connected()
        return self.cluster.log_times(name, rank)

    async def forget(self, name: str) -> None:
        self._connected()
        self.cluster.forget(name)

    async def erase(self, name: str, *, dry_run: bool = False) -> int:
        del name, dry_run  # nothing here is on a disk
        return 0

    async def sweep(self, known: frozenset[str]) -> tuple[str, ...]:
        self._connected()
        return self.cluster.sweep(known)

    def _connected(self) -> Link:
        if self._link is None:
            raise Unavailable("the engine is not open", hint="open it, or another one on the same cluster")
        return self._link


def simulated_engine(options: EngineOptions) -> SimulatedEngine:
    """For a server that runs nothing for real: one node, on which a job takes as long as its command's last word says,
    in seconds (`sleep 30`), or a second."""
    slots = options.slots or _SLOTS
    devices = tuple(Device(f"{CPU_SLOT}-{at}", CPU_SLOT, at) for at in range(slots))
    node = Node("simulated", devices, slots * 1000, slots * _SLOT_BYTES)
    return SimulatedEngine(SimulatedCluster([node], clock=SystemClock(), behaviour=by_last_word))


def by_last_word(gang: Gang) -> Script:
    """A run of the number of seconds that the last word of the command says, else of one second."""
    try:
        return Script(run_s=max(0.0, float(gang.argv[-1])))
    except ValueError:
        return Script()
