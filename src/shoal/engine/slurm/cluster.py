"""The cluster as the control plane sees it: its nodes one by one, or one pool where Slurm picks them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from shoal.core import Capability, Clock, Fault, Unavailable
from shoal.engine.batch.cluster import BatchCluster, address_towards
from shoal.engine.batch.job import BatchJob, NotTaken
from shoal.engine.pool import Pace, unfit
from shoal.engine.protocol import IMAGES_CAPABILITY, Gang, Inventory, LaunchFailed
from shoal.engine.slurm import submission
from shoal.engine.slurm.commands import Commands
from shoal.engine.slurm.jobs import FORMAT, SlurmJob, exit_code, job_of, read_facts, read_jobs, why_over
from shoal.engine.slurm.nodes import default_partition, read_nodes, read_switches
from shoal.engine.slurm.submission import Target


class SlurmCluster(BatchCluster):
    def __init__(
        self, slurm: Commands, target: Target, clock: Clock, *, pooled: bool = False, pace: Pace | None = None
    ) -> None:
        super().__init__(clock, pace)
        self.target = target
        self.facts: dict[str, str] = {}
        self.pooled = pooled
        self._slurm = slurm
        self._switches: dict[str, str] = {}

    async def open(self) -> None:
        """Raises Unavailable where no controller answers, and where there is no such partition."""
        missing = self._slurm.missing()
        if missing:
            hint = "install Slurm's client (Debian: slurm-client), or run the server on a login node"
            raise Unavailable(f"{', '.join(missing)} not found", where="slurm", hint=hint)
        self.facts = settings_of(await self._slurm.run("scontrol", "show", "config"))
        default, names = default_partition(await self._slurm.run("scontrol", "show", "partition", "-o"))
        partition = self.target.partition or default
        if partition not in names:
            what = f"there is no partition {partition!r}" if partition else "the cluster has no default partition"
            hint = f"its partitions are: {', '.join(names) or 'none'}; set slurm.partition"
            raise Unavailable(what, where="slurm", hint=hint)
        self.target = replace(self.target, partition=partition)
        self.pool = partition
        if self.facts.get("TopologyPlugin", "").startswith("topology/tree"):
            self._switches = read_switches(await self._slurm.run("scontrol", "show", "topology"))
        else:
            self.target = replace(self.target, together_s=0)
        await self.look()

    async def _read(self) -> Inventory:
        printed = await self._slurm.run("scontrol", "show", "node", "-o")
        found = read_nodes(printed, self.target.partition, self._switches)
        self.target = replace(self.target, memory_share_mib=_memory_share(self.facts, found))
        return found

    def check(self, gang: Gang) -> None:
        """Raise LaunchFailed for a gang on nodes or devices that are not there."""
        there = {node.name: {device.id for device in node.devices} for node in self.present.value.nodes}
        for spec in gang.ranks:
            where = f"{gang.name}: rank {spec.rank}"
            if spec.node not in there:
                hint = f"partition {self.target.partition} has {', '.join(there) or 'no nodes'}"
                raise LaunchFailed(f"there is no node {spec.node!r}", fault=Fault.PLATFORM, where=where, hint=hint)
            foreign = set(spec.devices) - there[spec.node]
            if foreign and not self.pooled:  # a pool's places are counts: what was there a moment ago is waited for
                what = f"node {spec.node} has no device {', '.join(sorted(foreign))}"
                raise LaunchFailed(what, fault=Fault.PLATFORM, where=where)

    def capabilities(self) -> tuple[Capability, ...]:
        who = "Slurm picks nodes" if self.pooled else "Shoal picks nodes"
        version = self.facts.get("SLURM_VERSION", "unknown")
        about = f"version {version}, partition {self.target.partition}; {who}"
        bundles, python = self.target.bundles, os.path.realpath(sys.executable)
        images = Capability(
            IMAGES_CAPABILITY, bool(bundles),
            f"in the OCI bundles of {bundles}, with a shell and {python}" if bundles else "slurm.bundles is not set",
            "" if bundles else "jobs that name an image are refused, unless environment.runtime runs them",
        )  # fmt: skip
        return (Capability("slurm", True, about), self._accelerators(), images)

    # --- jobs ---

    async def submit(self, gang: Gang, gang_dir: Path, token: str, runner: Path, key: str, mark: str) -> str:
        python, alone = os.path.realpath(sys.executable), len(gang.ranks) == 1
        options = submission.arguments(
            gang, self.target, mark=mark, device_types=self.device_types(), pooled=self.pooled,
            avoid=tuple(sorted({*self._blind, *(unfit(gang, self._machines.nodes) if self.pooled else ())})),
        )  # fmt: skip
        script = submission.script(gang_dir, token, python=python, runner=runner, alone=alone,
                                   container=self.target.container(gang))  # fmt: skip
        extra = {"SHOAL_SEAL": key} if key else {}
        try:
            printed = await self._slurm.run("sbatch", *options, stdin=script, extra=extra)
        except NotTaken as problem:
            raise submission.refusal(problem.what, gang.name) from None
        return printed.strip().partition(";")[0]

    async def jobs(self, mark: str) -> tuple[SlurmJob, ...]:
        printed = await self._slurm.run("squeue", "-h", "-t", "all", "-u", str(os.getuid()), "-o", FORMAT)
        return tuple(job for job in read_jobs(printed) if job.mark == mark)

    async def find(self, job: str, gang: str, mark: str) -> SlurmJob | None:
        del gang
        try:
            printed = await self._slurm.run("scontrol", "show", "job", "-o", job)
        except NotTaken as problem:
            if "invalid job id" in problem.what.lower():
                return None
            raise
        found = job_of(read_facts(printed))
        if found is None or found.id != job:
            raise Unavailable(f"scontrol tells nothing of job {job}", where="slurmctld")
        return replace(found, mark=mark)

    async def why_over(self, job: BatchJob) -> tuple[str, int | None]:
        assert isinstance(job, SlurmJob)
        facts = read_facts(await self._slurm.run("scontrol", "show", "job", "-o", job.id))
        return why_over(job, facts), exit_code(facts)

    async def cancel(self, job: str) -> None:
        await self._slurm.run("scancel", job)

    def own_address(self) -> str:
        told = self.facts.get("SlurmctldHost[0]", "")
        host = re.sub(r".*\((.*)\)", r"\1", told)
        return address_towards(host or "127.0.0.1", self.facts.get("SlurmctldPort", "6817").partition("-")[0])


def settings_of(printed: str) -> dict[str, str]:
    """`NAME = VALUE` lines of `scontrol show config`."""
    found = {}
    for line in printed.splitlines():
        name, equals, value = line.partition("=")
        if equals:
            found[name.strip()] = value.strip()
    return found


def _memory_share(facts: Mapping[str, str], found: Inventory) -> int:
    """MiB of memory for each core of a job that asks for none. Without it, Slurm would give such a job all of a node's
    memory where it counts memory at all."""
    counted = "MEMORY" in facts.get("SelectTypeParameters", "").upper()
    default = facts.get("DefMemPerCPU") or facts.get("DefMemPerNode") or "UNLIMITED"
    if not counted or default != "UNLIMITED":
        return 0
    shares = [node.memory_bytes * 1000 // node.cpu_milli >> 20 for node in found.nodes if node.cpu_milli]
    return max(1, min(shares, default=1))
