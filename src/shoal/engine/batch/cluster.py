"""A cluster as the engine uses it, and what the clusters that there are have in common."""

from __future__ import annotations

import asyncio
import socket
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

from shoal.core import NO_JOBS, Capability, Clock, Fault, Invalid, Node, Unavailable
from shoal.engine.batch.job import BatchJob, NotTaken
from shoal.engine.pool import Pace, pool_of
from shoal.engine.present import Present
from shoal.engine.protocol import EngineOptions, Gang, Inventory, LaunchFailed

_BLIND_S = 60.0
"""A node that did not see the shared directory is not tried again for so long."""


class BatchCluster(ABC):
    """Whatever asks it raises Unavailable where it does not answer, and NotTaken where it says no. `pooled`: it picks
    the nodes of a gang itself; they are shown as one `pool`, with more places than they have, as `pace` says."""

    pool = ""
    pooled = True
    keeps_jobs = False
    """Whether a job that is over stays until it is cancelled."""

    def __init__(self, clock: Clock, pace: Pace | None = None) -> None:
        self.present = Present(Inventory(()))
        self._clock = clock
        self._pace = pace or Pace()
        self._ahead = self._pace.least
        self._machines = Inventory(())
        self._seen = False
        self._blind: dict[str, tuple[str, float]] = {}
        self._looking = asyncio.Lock()

    @abstractmethod
    async def open(self) -> None: ...

    async def close(self) -> None:
        """Let go of what was opened."""
        return

    # --- nodes ---

    async def look(self) -> Inventory:
        """What there is now. Where it does not answer, what was known before takes no new work."""
        async with self._looking:
            try:
                self._machines = await self._read()
            except (Unavailable, NotTaken) as problem:
                if not self._seen:
                    raise Unavailable(problem.what, where=problem.where, hint=problem.hint) from problem
                self.close_all(problem.what)
                return self.present.value
            self._seen = True
            self._show()
            return self.present.value

    @abstractmethod
    async def _read(self) -> Inventory:
        """Ask for the nodes."""

    def _show(self) -> None:
        now = self._clock.now()
        self._blind = {name: told for name, told in self._blind.items() if told[1] > now}
        nodes = self._machines.nodes
        blind = {node.name: self._blind[node.name][0] for node in nodes if node.name in self._blind}
        closed = {**self._machines.closed, **blind}
        if self.pooled:
            ready = [node for node in nodes if node.name not in closed]
            self._ahead = self._pace.ahead(_capacity(ready), now)
            self.present.set(Inventory((pool_of(self.pool, ready, ahead=self._ahead),)))
        else:
            self.present.set(Inventory(nodes, closed))

    def close_all(self, why: str) -> None:
        """Nothing can be asked of any node now."""
        shown = self.present.value
        self.present.set(Inventory(shown.nodes, {node.name: why for node in shown.nodes}))

    def close_blind(self, names: Iterable[str], why: str) -> None:
        """These nodes do not see the shared directory."""
        self._blind |= {name: (why, self._clock.now() + _BLIND_S) for name in names}
        self._show()

    def freed(self, places: int, held_s: float) -> None:
        """A gang ended that had `places` devices for `held_s`."""
        if self.pooled and self.present.value.nodes:
            now = self._clock.now()
            self._pace.ended(places, held_s, now)
            if self._pace.ahead(_capacity(self._machines.nodes), now) > self._ahead:
                self._show()

    def device_types(self) -> dict[tuple[str, str], str]:
        return {(node.name, device.id): device.type for node in self._machines.nodes for device in node.devices}

    def check(self, gang: Gang) -> None:
        """Raise LaunchFailed for a gang that can have no place here."""
        for spec in gang.ranks:
            if spec.node != self.pool:
                where, hint = f"{gang.name}: rank {spec.rank}", f"the cluster is one pool, {self.pool!r}"
                raise LaunchFailed(f"there is no node {spec.node!r}", fault=Fault.PLATFORM, where=where, hint=hint)

    @abstractmethod
    def capabilities(self) -> tuple[Capability, ...]: ...

    def _accelerators(self) -> Capability:
        nodes = self._machines.nodes
        kinds = sorted({device.type for node in nodes for device in node.devices})
        count = _capacity(nodes)
        if not count:
            return Capability("accelerators", False, "no node is there", f"{NO_JOBS} until one is")
        return Capability("accelerators", True, f"{count} on {len(nodes)} nodes: {', '.join(kinds)}")

    @abstractmethod
    def own_address(self) -> str:
        """The address of this machine by which its nodes reach it."""

    # --- jobs ---

    @abstractmethod
    async def submit(self, gang: Gang, gang_dir: Path, token: str, runner: Path, key: str, mark: str) -> str:
        """Hand a gang over as one job; its id. Every rank runs `handover.command`, with `SHOAL_SEAL` set to `key`.
        Raises LaunchFailed for one that is refused."""

    @abstractmethod
    async def jobs(self, mark: str) -> tuple[BatchJob, ...]:
        """All jobs with this mark."""

    @abstractmethod
    async def find(self, job: str, gang: str, mark: str) -> BatchJob | None:
        """One job by its id, with its gang's name: a second source, since a list may be empty by mistake. None: the
        cluster says that there is none. No answer, and one of no words, are Unavailable."""

    async def why_over(self, job: BatchJob) -> tuple[str, int | None]:
        """Why a job is over, in words, and what its command left with."""
        return job.why_over(), None

    @abstractmethod
    async def cancel(self, job: str) -> None: ...


def _capacity(nodes: Iterable[Node]) -> int:
    return sum(len(node.devices) for node in nodes)


def address_towards(host: str, port: int | str) -> str:
    """The address of this machine towards another: those beside that one reach it there too."""
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host, int(port)))
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return "127.0.0.1"


def refuse_slots(options: EngineOptions, cluster: str) -> None:
    """Raise Invalid where CPU slots are declared: a cluster's nodes say what they have."""
    if options.slots is not None:
        hint = f"leave `slots` out: {cluster}'s nodes say what they have"
        raise Invalid(f"CPU slots cannot be declared on a {cluster} cluster", where="slots", hint=hint)
