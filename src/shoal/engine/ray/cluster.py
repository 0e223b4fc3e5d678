"""The Ray cluster as the control plane sees it: one pool, since Ray picks the nodes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from shoal.core import Capability, Clock, Fault, Unavailable
from shoal.engine.batch.cluster import BatchCluster, address_towards
from shoal.engine.batch.handover import command, mark_of
from shoal.engine.batch.job import NotTaken
from shoal.engine.batch.layout import BatchDir
from shoal.engine.pool import Pace, unfit
from shoal.engine.protocol import Gang, Inventory, LaunchFailed, Refused
from shoal.engine.ray.client import Bridge
from shoal.engine.ray.jobs import RayJob, job_of
from shoal.engine.ray.nodes import fits, needs, read_nodes

POOL = "ray"


class RayCluster(BatchCluster):
    pool = POOL

    def __init__(self, bridge: Bridge, home: Path, clock: Clock, *, pace: Pace | None = None) -> None:
        super().__init__(clock, pace)
        self._bridge = bridge
        self._home = home
        self._facts: dict[str, str] = {}
        self._told: list[dict[str, Any]] = []
        self._missing: set[str] = set()

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

    async def _read(self) -> Inventory:
        self._told = await self._bridge.ask("nodes")
        return Inventory(read_nodes(self._told))

    def close_blind(self, names: Iterable[str], why: str) -> None:
        """Ray cannot be told to leave single nodes out: they stay, and what fails there is tried again."""

    def check(self, gang: Gang) -> None:
        """Raise LaunchFailed for a gang on another pool, or with a rank that no node could hold."""
        super().check(gang)
        if unfit(gang, self._machines.nodes):
            what = "Ray cannot be told on which nodes a gang may run"
            raise Refused(what, where=gang.name, hint="leave `nodes` out of the manifest")
        if not fits(needs(gang, self._told), self._told):
            hint = "ask for fewer of its resources"
            raise Refused("no node of the cluster could ever run it", where=gang.name, hint=hint)

    def capabilities(self) -> tuple[Capability, ...]:
        cluster = f"version {self._facts.get('version')} at {self._facts.get('address')}; Ray picks nodes"
        return (Capability("ray", True, cluster), self._accelerators())

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
        self._missing &= {each["id"] for each in told["jobs"]}
        return tuple(await self._read_jobs(told))

    async def find(self, job: str, gang: str, mark: str) -> RayJob | None:
        del gang, mark
        return next(iter(await self._read_jobs(await self._bridge.ask("find", job=job))), None)

    async def _read_jobs(self, told: Mapping[str, Any]) -> list[RayJob]:
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
        return found

    async def cancel(self, job: str) -> None:
        await self._bridge.ask("cancel", job=job)

    def own_address(self) -> str:
        host, _, port = self._facts.get("address", "").rpartition(":")
        return address_towards(host, port)
