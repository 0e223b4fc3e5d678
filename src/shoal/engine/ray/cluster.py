"""The Ray cluster as the control plane sees it: one pool, since Ray picks the nodes."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.core import Capability, Clock, Fault, Node, Unavailable
from shoal.engine.batch.handover import command, mark_of
from shoal.engine.batch.job import BatchJob, NotTaken
from shoal.engine.batch.layout import BatchDir
from shoal.engine.pool import Pace, pool_of
from shoal.engine.present import Present
from shoal.engine.protocol import Gang, Inventory, LaunchFailed, Refused
from shoal.engine.ray.client import Bridge
from shoal.engine.ray.jobs import RayJob, job_of
from shoal.engine.ray.nodes import fits, needs, read_nodes

POOL = "ray"


class Cluster:
    """Shown with more places than it has, as `pace` says."""

    pooled = True
    keeps_jobs = False

    def __init__(self, bridge: Bridge, home: Path, clock: Clock, *, pace: Pace | None = None) -> None:
        self.present = Present(Inventory(()))
        self._bridge = bridge
        self._home = home
        self._clock = clock
        self._pace = pace or Pace()
        self._ahead = self._pace.least
        self._facts: dict[str, str] = {}
        self._told: list[dict[str, Any]] = []
        self._machines: tuple[Node, ...] = ()
        self._missing: set[str] = set()
        self._looking = asyncio.Lock()

    async def open(self) -> None:
        """Raises Unavailable where no cluster answers, or this machine is no node of it."""
        self._home = self._home.resolve()
        self._bridge.open(mark_of(self._home), self._home / "ray.log")
        try:
            self._facts = await self._bridge.ask("about")
        except NotTaken as problem:
            raise Unavailable(problem.what, where="ray") from problem
        await self.look()

    async def close(self) -> None:
        await self._bridge.close()

    async def look(self) -> Inventory:
        """What there is now. Where no cluster answers, what was known before takes no new work."""
        async with self._looking:
            try:
                self._told = await self._bridge.ask("nodes")
            except (Unavailable, NotTaken) as problem:
                if not self._machines:
                    raise Unavailable(problem.what, where=problem.where, hint=problem.hint) from problem
                self.close_all(problem.what)
                return self.present.value
            self._machines = read_nodes(self._told)
            self._show()
            return self.present.value

    def close_all(self, why: str) -> None:
        """Nothing can be asked of any node now."""
        shown = self.present.value
        self.present.set(Inventory(shown.nodes, {node.name: why for node in shown.nodes}))

    def close_blind(self, names: Iterable[str], why: str) -> None:
        """Ray cannot be told to leave single nodes out: they stay, and what fails there is tried again."""

    def _show(self) -> None:
        self._ahead = self._pace.ahead(self._capacity(), self._clock.now())
        self.present.set(Inventory((pool_of(POOL, self._machines, ahead=self._ahead),)))

    def _capacity(self) -> int:
        return sum(len(node.devices) for node in self._machines)

    def freed(self, places: int, held_s: float) -> None:
        """A gang ended that had so many devices for so long."""
        now = self._clock.now()
        self._pace.ended(places, held_s, now)
        if self._pace.ahead(self._capacity(), now) > self._ahead:
            self._show()

    def device_types(self) -> dict[tuple[str, str], str]:
        return {(node.name, device.id): device.type for node in self._machines for device in node.devices}

    def check(self, gang: Gang) -> None:
        """Raise LaunchFailed for a gang on another pool, or with a rank that no node could hold."""
        for spec in gang.ranks:
            if spec.node != POOL:
                where = f"{gang.name}: rank {spec.rank}"
                raise LaunchFailed(f"there is no node {spec.node!r}", fault=Fault.PLATFORM, where=where)
        if not fits(needs(gang, self._told), self._told):
            hint = "ask for fewer of its resources"
            raise Refused("no node of the cluster could ever run it", where=gang.name, hint=hint)

    def capabilities(self) -> tuple[Capability, ...]:
        kinds = sorted({device.type for node in self._machines for device in node.devices})
        count = self._capacity()
        cluster = f"version {self._facts.get('version')} at {self._facts.get('address')}; Ray picks nodes"
        return (
            Capability("ray", True, cluster),
            Capability("accelerators", bool(count), f"{count} on {len(self._machines)} nodes: {', '.join(kinds)}"
                       if count else "no node is there", "" if count else "no job can start until one is"),
        )  # fmt: skip

    # --- jobs ---

    async def submit(self, gang: Gang, gang_dir: Path, token: str, runner: Path, key: str, mark: str) -> str:
        line = command(gang_dir, token, python=os.path.realpath(sys.executable), runner=runner)
        asked = needs(gang, self._told)
        try:
            name: str = await self._bridge.ask(
                "submit", job=f"{mark}/{gang.name}@{token}@{len(gang.ranks)}", ranks=len(gang.ranks),
                per_bundle=gang.ranks_per_node or 1, spread=bool(gang.ranks_per_node), needs=asked,
                gpus=asked.get("GPU", 0), command=line, env={"SHOAL_SEAL": key} if key else {},
            )  # fmt: skip
        except NotTaken as problem:
            raise LaunchFailed(f"Ray refused it: {problem.what}", fault=Fault.PLATFORM, where=gang.name) from None
        return name

    async def jobs(self, mark: str) -> tuple[RayJob, ...]:
        """Those that are over while their group holds its resources give them back here."""
        told = await self._bridge.ask("jobs", mark=mark)
        found = []
        for each in told["jobs"]:
            name = RayJob(each["id"], each["state"])
            job = job_of(each, BatchDir(self._home / "gangs" / name.name).record, told["alive"])
            if job.state in ("LOST", "NODE_LOST") and job.id not in self._missing:
                self._missing.add(job.id)  # a record may come late: its actor is gone in two lists in a row
                job = name
            elif job.over and each["state"] != "REMOVED":
                await self._bridge.ask("cancel", job=job.id)
            found.append(job)
        self._missing &= {each["id"] for each in told["jobs"]}
        return tuple(found)

    async def why_over(self, job: BatchJob) -> tuple[str, int | None]:
        return job.why_over(), None

    async def cancel(self, job: str) -> None:
        await self._bridge.ask("cancel", job=job)

    def own_address(self) -> str:
        """The address of this machine towards the cluster's head: its nodes reach it there too."""
        host, _, port = self._facts.get("address", "").rpartition(":")
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                probe.connect((host, int(port)))
                return str(probe.getsockname()[0])
        except (OSError, ValueError):
            return "127.0.0.1"
