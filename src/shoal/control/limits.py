"""Defaults of a job that does not say what it needs, and bounds that no job may exceed. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from shoal.contract.manifest import MemoryDefault, ResourceRequest
from shoal.control.jobs.memory_use import Needed
from shoal.core import ANY, CPU_SLOT, Quota, Resources, Share
from shoal.engine import Limits
from shoal.extension import Manifest

_SHARED = 0.9
"""The part of a node's memory that defaults share out; the rest is left to the system and to Shoal itself."""
_PLAIN = 0.25
"""Of the memory that goes with its cores, a job without an accelerator gets this part: it mostly needs less than that,
and what it has nobody else has. Its first run then says what the next one gets."""
_PLAIN_BYTES = 1 << 30
"""It gets at least this, if the memory that goes with its cores is as large: enough for a training library and some
data."""
_LEAST_BYTES = 512 << 20
"""No default is less: about twice what a process holds once it has imported a training library. On a node with less
than eight times that, an eighth of its memory."""
_MIB = 1 << 20
_MOST_BYTES = 1 << 50
_UNKNOWN_BYTES = 1 << 30
"""The default while no node is known."""


@dataclass(frozen=True, slots=True)
class JobLimits:
    """`default_memory_bytes` None: a part of the node, see `default_memory`. `disk_bytes` and `files` None: half of
    the file system that the server's home is on. All are per rank, but these two and `unpacked_bytes` (of the bundle),
    which are for the whole job."""

    default_cpus: float = 1.0
    default_memory_bytes: int | None = None
    processes: int = 4096
    open_files: int = 65_536
    log_bytes: int = 1 << 30
    disk_bytes: int | None = None
    unpacked_bytes: int = 1 << 30
    files: int | None = None


def rank_limits(limits: JobLimits, room_bytes: int, room_files: int) -> Limits:
    """What an engine is told for every rank, where the home's file system has this room."""
    disk_bytes = room_bytes // 2 if limits.disk_bytes is None else limits.disk_bytes
    files = room_files // 2 if limits.files is None else limits.files
    return Limits(limits.processes, limits.open_files, limits.log_bytes, disk_bytes, limits.unpacked_bytes, files)


def complete(
    manifest: Manifest, limits: JobLimits, quota: Quota, nodes: Iterable[Resources], needed: Needed | None = None
) -> Manifest:
    """The manifest with the cores and the memory that it leaves out: the tenant's defaults, else the server's. `nodes`
    are the capacities of the nodes, each of them once; `needed` is the memory that earlier jobs of its kind needed."""
    asked = manifest.resources or ResourceRequest()
    if asked.cpus is not None and asked.memory is not None and asked.memory_from is None:
        return manifest
    cpus = asked.cpus
    if cpus is None:
        cpus = limits.default_cpus if quota.default_cpu_milli is None else quota.default_cpu_milli / 1000
    memory, whose = asked.memory, None
    if memory is None:
        memory, whose = _default(manifest, cpus, asked, limits, quota, tuple(nodes), needed)
    completed = asked.model_copy(update={"cpus": cpus, "memory": memory, "memory_from": whose})
    return manifest.model_copy(update={"resources": completed})


def _default(
    manifest: Manifest, cpus: float, asked: ResourceRequest, limits: JobLimits, quota: Quota,
    nodes: tuple[Resources, ...], needed: Needed | None,
) -> tuple[int, MemoryDefault]:  # fmt: skip
    if quota.default_memory_bytes:
        return quota.default_memory_bytes, MemoryDefault.TENANT
    if limits.default_memory_bytes:
        return limits.default_memory_bytes, MemoryDefault.SERVER
    # Several jobs that share a device have the memory of the host that goes with their cores.
    whole = asked.accelerators.count if asked.accelerators.share is Share.EXCLUSIVE else 0
    memory, whose = default_memory(cpus, asked.accelerators.type, whole, nodes), MemoryDefault.SHARE
    if needed is not None:
        least = min(_LEAST_BYTES, memory) if needed.sure else memory
        if needed.memory_bytes > least or needed.sure:
            most = _most(cpus, asked.accelerators.type, whole, nodes)
            memory, whose = min(most, max(needed.memory_bytes, least)), MemoryDefault.EARLIER
    return min(memory, _within(quota, cpus, manifest.max_ranks)), whose


@lru_cache(maxsize=1024)
def default_memory(cpus: float, kind: str, accelerators: int, nodes: tuple[Resources, ...]) -> int:
    """The memory that goes with this number of cores and accelerators: what it would be on the smallest of the nodes
    that have them.

    With accelerators it is the mean of the two parts, so that jobs which fit beside each other by cores and
    accelerators fit by memory as well. Without, it is less than the part of the cores, so that a few plain jobs do not
    fill the node. CPU slots are cores under another name: there the greater part counts.
    """
    found = [_part(cpus, accelerators, node) for node in nodes if _holds(node, cpus, kind, accelerators)]
    return min(found, default=_UNKNOWN_BYTES)


def _most(cpus: float, kind: str, accelerators: int, nodes: tuple[Resources, ...]) -> int:
    """What a job may have by what earlier ones needed: it must fit on some node."""
    found = [int(node.memory_bytes * _SHARED) for node in nodes if _holds(node, cpus, kind, accelerators)]
    return max(found, default=_MOST_BYTES) // _MIB * _MIB


def _within(quota: Quota, cpus: float, ranks: int) -> int:
    """The highest default for a tenant of this quota. A job without a limit of its own must not wait for ever because
    of the default, nor keep out jobs that the quota of cores would let run beside it."""
    if quota.memory_bytes is None:
        return _MOST_BYTES
    whole = quota.memory_bytes // ranks
    part = cpus * 1000 / quota.cpu_milli if quota.cpu_milli and cpus else 1.0
    return max(_MIB, min(whole, max(_LEAST_BYTES, int(quota.memory_bytes * part))) // _MIB * _MIB)


def _holds(node: Resources, cpus: float, kind: str, accelerators: int) -> bool:
    if not node.memory_bytes or cpus * 1000 > node.cpu_milli:
        return False
    counts = node.accelerators
    return accelerators <= (max(counts.values(), default=0) if kind == ANY else counts.get(kind, 0))


def _part(cpus: float, accelerators: int, node: Resources) -> int:
    cores = cpus * 1000 / node.cpu_milli if node.cpu_milli else 0.0
    devices = accelerators / node.accelerator_count if node.accelerators else 0.0
    real = any(kind != CPU_SLOT for kind in node.accelerators)
    part = int(node.memory_bytes * _SHARED * ((cores + devices) / 2 if real else max(cores, devices)))
    if not (real and accelerators):
        part = min(part, max(_PLAIN_BYTES, int(part * _PLAIN)))
    least = min(_LEAST_BYTES, node.memory_bytes // 8)
    return max(_MIB, max(least, part) // _MIB * _MIB)
