"""The cluster as the engine uses it: one pool of all nodes that take pods, and a Job for each gang."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from shoal.core import Capability, Clock, Fault, Invalid, Unavailable
from shoal.engine.batch import handover
from shoal.engine.batch.cluster import BatchCluster, address_towards
from shoal.engine.batch.job import BatchJob, NotTaken
from shoal.engine.kubernetes import objects
from shoal.engine.kubernetes.api import Api, Exists, Mirror, Missing
from shoal.engine.kubernetes.jobs import GONE, MARK, KubernetesJob, owner_of, read_jobs, released
from shoal.engine.kubernetes.nodes import ClusterNodes, read_nodes
from shoal.engine.kubernetes.settings import KubernetesSettings
from shoal.engine.pool import Pace
from shoal.engine.protocol import IMAGES_CAPABILITY, Gang, Inventory, LaunchFailed, Refused

POOL = "kubernetes"
_REMEMBERED = 1000
"""The number of Jobs, the last that were released, whose release is remembered: their copy here may be older."""


class KubernetesCluster(BatchCluster):
    """`mount` is where the volume with the server's home is mounted."""

    pool = POOL
    keeps_jobs = True

    def __init__(self, settings: KubernetesSettings, mount: Path, mark: str, clock: Clock, api: Api) -> None:
        super().__init__(clock, Pace(settings.ahead))
        self.changed: Callable[[], None] = lambda: None
        self._settings = settings
        self._mount = mount
        self._api = api
        self._known = ClusterNodes()
        self._pod_groups = False
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

    async def _read(self) -> Inventory:
        with contextlib.suppress(Unavailable, NotTaken):  # the watch may still know
            await self._nodes.refresh()
        return self._machines

    def _show(self) -> None:
        try:
            self._known = read_nodes(self._nodes.objects(), self._settings)
        except Unavailable as problem:
            self.close_all(problem.what)
            return
        self._machines = self._known.inventory
        super()._show()

    def _tell(self) -> None:
        self.changed()

    def capabilities(self) -> tuple[Capability, ...]:
        closed = self._machines.closed
        gangs = "pod groups of the coscheduling plugin" if self._pod_groups else "no pod groups are served"
        if self._settings.queue:
            gangs += f", Kueue's queue {self._settings.queue}"
        alone = not self._pod_groups and not self._settings.queue
        return (
            Capability("kubernetes", True, f"{self._api.server}, namespace {self._settings.namespace}"),
            self._accelerators(),
            Capability("open-nodes", not closed, "; ".join(f"{name}: {why}" for name, why in sorted(closed.items())) or
                       "all", "these nodes take no pods" if closed else ""),
            Capability("gang-scheduling", not alone, gangs, "pods of a gang are placed one by one: two gangs may each "
                       "hold a part of the cluster until one gives up" if alone else ""),
            Capability(IMAGES_CAPABILITY, True, f"pods run in the image that a job names, with a shell and a Python at "
                       f"{self._settings.python}; others in {self._settings.image}"),
        )  # fmt: skip

    def own_address(self) -> str:
        parts = urlsplit(self._api.server)
        return address_towards(parts.hostname or "127.0.0.1", parts.port or 443)

    # --- jobs ---

    async def submit(self, gang: Gang, gang_dir: Path, token: str, runner: Path, key: str, mark: str) -> str:
        command = handover.command(gang_dir, token, python=self._settings.python, runner=runner)
        wanted = objects.job(
            gang, mark=mark, token=token, command=f"exec 2>&1; {command}", user=(os.getuid(), os.getgid()),
            sealed=bool(key), mount=self._mount, settings=self._settings, kinds=self._known.kinds,
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
        return tuple(read_jobs(jobs, [*pods, *self._gone.values()], self._clock.now(), self._known.unreachable))

    async def find(self, job: str, gang: str, mark: str) -> KubernetesJob | None:
        try:
            there = await self._api.get("Job", objects.name_of(gang, mark))
        except Missing:
            return None
        if there["metadata"]["uid"] != job or not released(there):
            return None
        pods = [*self._pods.objects(), *self._gone.values()]
        return read_jobs([there], pods, self._clock.now(), self._known.unreachable)[0]

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


def mount_of(home: Path, settings: KubernetesSettings) -> Path:
    """Where the volume with the server's home is mounted, here and in pods. Raises Invalid."""
    mount = Path(settings.mount) if settings.mount else home
    if not home.is_relative_to(mount):
        hint = "give a directory above the server's home, or put the home in it"
        raise Invalid(f"the server's home {home} is not in {mount}", where="kubernetes.mount", hint=hint)
    if home != home.resolve():
        what = f"the server's home {home} is behind a symbolic link, which pods do not have"
        raise Invalid(what, where="home", hint=f"give {home.resolve()}")
    return mount


def _refusal(problem: NotTaken, gang: str) -> LaunchFailed:
    """What the API server refused a gang for: an admission policy or a quota of the namespace is the platform's."""
    if "invalid" in problem.what.lower():
        return Refused(f"Kubernetes refused it: {problem.what}", where=gang)
    return LaunchFailed(
        f"Kubernetes refused it: {problem.what}", fault=Fault.PLATFORM, where=gang, hint=problem.hint
    )  # fmt: skip
