"""The cluster as the engine uses it: one pool of all nodes that take pods, and a Job for each gang."""

from __future__ import annotations

import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shoal.core import Capability, Clock, Fault, Unavailable
from shoal.engine.batch import handover
from shoal.engine.batch.job import BatchJob, NotTaken
from shoal.engine.kubernetes import objects
from shoal.engine.kubernetes.api import Api, Exists, Mirror, Missing
from shoal.engine.kubernetes.jobs import GONE, MARK, KubernetesJob, owner_of, read_jobs, released
from shoal.engine.kubernetes.nodes import Machines, read_nodes
from shoal.engine.kubernetes.settings import KubernetesSettings
from shoal.engine.pool import pool_of
from shoal.engine.present import Present
from shoal.engine.protocol import Gang, Inventory, LaunchFailed, Refused

POOL = "kubernetes"
_REMEMBERED = 1000
"""So many of the last Jobs that were released are known without a look."""
_BLIND_S = 60.0
"""A node that did not see the shared volume gets no gang's first try again for so long."""


class Cluster:
    """`mount` is where the volume with the server's home is mounted."""

    pooled = True
    keeps_jobs = True

    def __init__(self, settings: KubernetesSettings, mount: Path, mark: str, clock: Clock, api: Api) -> None:
        self.present = Present(Inventory(()))
        self.changed: Callable[[], None] = lambda: None
        self._settings = settings
        self._mount = mount
        self._clock = clock
        self._api = api
        self._machines = Machines()
        self._pod_groups = False
        self._blind: dict[str, float] = {}
        ours = {MARK: mark}
        self._nodes = Mirror(api, "Node", self._show)
        self._jobs = Mirror(api, "Job", self._tell, ours)
        self._pods = Mirror(api, "Pod", self._tell, ours)
        self._pods.gone = self._remember
        self._gone: dict[str, dict[str, Any]] = {}
        self._making: set[str] = set()
        self._released: deque[str] = deque(maxlen=_REMEMBERED)

    async def open(self) -> None:
        if not self._settings.image:
            hint = "set kubernetes.image to an image with a shell and a Python"
            raise Unavailable("no image is set for pods", where="kubernetes.image", hint=hint)
        await self._api.open()
        self._pod_groups = await self._api.serves("PodGroup")
        for mirror in (self._nodes, self._jobs, self._pods):
            try:
                await mirror.open()
            except NotTaken as problem:
                raise Unavailable(problem.what, where=problem.where, hint=problem.hint) from problem

    async def close(self) -> None:
        for mirror in (self._nodes, self._jobs, self._pods):
            await mirror.close()
        await self._api.close()

    async def look(self) -> Inventory:
        with contextlib.suppress(Unavailable, NotTaken):
            await self._nodes.refresh()
        self._show()
        return self.present.value

    def close_all(self, why: str) -> None:
        shown = self.present.value
        self.present.set(Inventory(shown.nodes, {node.name: why for node in shown.nodes}))

    def close_blind(self, names: Iterable[str], why: str) -> None:
        del why
        self._blind |= {name: self._clock.now() + _BLIND_S for name in names}
        self._show()

    def _show(self) -> None:
        try:
            self._machines = read_nodes(self._nodes.objects(), self._settings)
        except Unavailable as problem:
            self.close_all(problem.what)
            return
        now = self._clock.now()
        self._blind = {name: until for name, until in self._blind.items() if until > now}
        found = self._machines.inventory
        ready = [node for node in found.nodes if node.name not in found.closed and node.name not in self._blind]
        self.present.set(Inventory((pool_of(POOL, ready, ahead=self._settings.ahead),)))

    def _tell(self) -> None:
        self.changed()

    def device_types(self) -> dict[tuple[str, str], str]:
        return {}

    def check(self, gang: Gang) -> None:
        for spec in gang.ranks:
            if spec.node != POOL:
                where = f"{gang.name}: rank {spec.rank}"
                hint = f"the cluster is one pool, {POOL!r}"
                raise LaunchFailed(f"there is no node {spec.node!r}", fault=Fault.PLATFORM, where=where, hint=hint)

    def capabilities(self) -> tuple[Capability, ...]:
        nodes, closed = self._machines.inventory.nodes, self._machines.inventory.closed
        kinds = sorted({device.type for node in nodes for device in node.devices})
        count = sum(len(node.devices) for node in nodes)
        gangs = "pod groups of the coscheduling plugin" if self._pod_groups else "no pod groups are served"
        if self._settings.queue:
            gangs += f", Kueue's queue {self._settings.queue}"
        alone = not self._pod_groups and not self._settings.queue
        return (
            Capability("kubernetes", True, f"{self._api.server}, namespace {self._settings.namespace}"),
            Capability("accelerators", bool(count), f"{count} on {len(nodes)} nodes: {', '.join(kinds)}" if count else
                       "no node is there", "" if count else "no job can start until one is"),
            Capability("open-nodes", not closed, "; ".join(f"{name}: {why}" for name, why in sorted(closed.items())) or
                       "all", "these nodes take no pods" if closed else ""),
            Capability("gang-scheduling", not alone, gangs, "pods of a gang are placed one by one: two gangs may each "
                       "hold a part of the cluster until one gives up" if alone else ""),
        )  # fmt: skip

    def own_address(self) -> str:
        try:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
                parts = urlsplit(self._api.server)
                probe.connect((parts.hostname or "127.0.0.1", parts.port or 443))
                return str(probe.getsockname()[0])
        except (OSError, ValueError):
            return "127.0.0.1"

    # --- jobs ---

    async def submit(self, gang: Gang, gang_dir: Path, token: str, runner: Path, key: str, mark: str) -> str:
        command = handover.command(gang_dir, token, python=self._settings.python, runner=runner)
        wanted = objects.job(
            gang, mark=mark, token=token, command=f"exec 2>&1; {command}", user=(os.getuid(), os.getgid()),
            sealed=bool(key), mount=self._mount, settings=self._settings, kinds=self._machines.kinds,
            pod_groups=self._pod_groups,
        )  # fmt: skip
        name = wanted["metadata"]["name"]
        self._making.add(name)
        try:
            made = await self._made(wanted)
            for companion in objects.companions(made, key=key, pod_groups=self._pod_groups):
                with contextlib.suppress(Exists):
                    await self._api.create(companion)
            made = await self._api.patch("Job", name, objects.release(gang, self._settings))
            self._released.append(made["metadata"]["uid"])
        except NotTaken as problem:
            raise _refusal(problem, gang.name) from None
        finally:
            self._making.discard(name)
        self._jobs.add(made)
        return str(made["metadata"]["uid"])

    async def _made(self, wanted: dict[str, Any]) -> dict[str, Any]:
        """The Job as it was created, by this or by an earlier try of the same launch. One of an earlier launch goes
        first."""
        try:
            return await self._api.create(wanted)
        except Exists:
            metadata = wanted["metadata"]
            try:
                there = await self._api.get("Job", metadata["name"])
            except Missing:
                raise Unavailable("its Job is just leaving", where="kubernetes") from None
            told = there["metadata"].get("annotations", {}).get("shoal.dev/launch")
            if told == metadata["annotations"]["shoal.dev/launch"] and "deletionTimestamp" not in there["metadata"]:
                return there
            await self._api.delete("Job", metadata["name"])
            raise Unavailable("a Job of an earlier launch is leaving", where="kubernetes") from None

    async def jobs(self, mark: str) -> tuple[KubernetesJob, ...]:
        del mark  # the watches are of this home's alone
        jobs, pods = self._jobs.objects(), self._pods.objects()
        for job in jobs:
            if self._was_cut_short(job):
                await self._api.delete("Job", job["metadata"]["name"])
        jobs = [job for job in jobs if released(job)]
        there = {job["metadata"]["uid"] for job in jobs}
        self._gone = {uid: pod for uid, pod in self._gone.items() if owner_of(pod) in there}
        return tuple(read_jobs(jobs, [*pods, *self._gone.values()], self._clock.now(), self._machines.unreachable))

    def _was_cut_short(self, job: dict[str, Any]) -> bool:
        """Whether a server was killed while it made this Job, or was refused a part: its gang is launched anew."""
        metadata = job["metadata"]
        told = metadata["name"] in self._making or metadata["uid"] in self._released  # its copy here may be older
        return not (told or released(job))

    def _remember(self, pod: dict[str, Any]) -> None:
        """Why a pod was taken away stands in the pod, which goes with that."""
        self._gone[pod["metadata"]["uid"]] = {**pod, GONE: True}

    async def why_over(self, job: BatchJob) -> tuple[str, int | None]:
        assert isinstance(job, KubernetesJob)
        return job.why, job.exit_code

    async def cancel(self, job: str) -> None:
        name = self._jobs.name_of(job)
        if name:
            await self._api.delete("Job", name)


def _refusal(problem: NotTaken, gang: str) -> LaunchFailed:
    """What the API server refused a gang for: an admission policy or a quota of the namespace is the platform's."""
    if "invalid" in problem.what.lower():
        return Refused(f"Kubernetes refused it: {problem.what}", where=gang)
    return LaunchFailed(
        f"Kubernetes refused it: {problem.what}", fault=Fault.PLATFORM, where=gang, hint=problem.hint
    )  # fmt: skip
