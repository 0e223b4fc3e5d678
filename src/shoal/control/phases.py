"""The phases of an attempt as gangs for an engine: fetch inputs, run the user's command, store outputs.

Fetching and storing run as processes of their own beside the user's (FfDL's helper): they outlive the server like any
rank, and user code that misbehaves cannot take them along.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.base import trees
from shoal.contract.gangs import DOWNLOAD, RUN, STORE, gang_name
from shoal.contract.lifecycle import Stop
from shoal.contract.manifest import JobManifest
from shoal.contract.records import AttemptRecord, JobRecord
from shoal.engine import Gang, Limits, RankSpec, TimeLimit

_HELPER_BYTES = 256 << 20
"""What a phase that moves data may take at least: it needs some 100 MiB for clients of object stores, however small the
user's own process is."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where things of a job lie under the server's home directory, and what its processes may use at most."""

    home: Path
    limits: Limits = field(default_factory=Limits)

    def run_dir(self, job_id: str, attempt: int) -> Path:
        return Path(f"{self.home}/runs/{job_id}/{attempt}")

    async def discard_run(self, job_id: str, attempt: int) -> None:
        """Remove what an attempt left in its directory."""
        await asyncio.to_thread(trees.remove, str(self.run_dir(job_id, attempt)))

    def checkpoint_dir(self, job_id: str) -> str:
        return f"{self.home}/checkpoints/{job_id}"

    def artifacts_dir(self, job_id: str) -> Path:
        """What the server keeps of a job's outputs."""
        return self.home / "artifacts" / job_id

    def bundle(self, digest: str) -> Path:
        return self.home / "bundles" / digest.removeprefix("sha256:")


def has_download(manifest: JobManifest) -> bool:
    return bool(manifest.inputs) or _remote_checkpoint(manifest) is not None


def has_store(manifest: JobManifest, *, finished: bool) -> bool:
    """Outputs are stored when the job finished; a checkpoint kept elsewhere whenever an attempt ends."""
    return (finished and any(one.target for one in manifest.outputs)) or _remote_checkpoint(manifest) is not None


def kept_outputs(manifest: JobManifest) -> list[str]:
    """Paths in the run directory that the server keeps once the job finished."""
    return [one.source for one in manifest.outputs if one.target is None]


def placed_gang(job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout) -> Gang:
    """The run of a job on its places, without what it needs there."""
    name, run_dir = gang_name(job.id, attempt.number, RUN), layout.run_dir(job.id, attempt.number)
    return Gang(name, manifest.argv(), _ranks(attempt), run_dir, limits=layout.limits)


def _ranks(attempt: AttemptRecord) -> tuple[RankSpec, ...]:
    return tuple([RankSpec(rank=rank.rank, node=rank.node, devices=rank.devices) for rank in attempt.placement])


def run_gang(
    job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout, secrets: Mapping[str, str]
) -> Gang:
    return Gang(
        name=gang_name(job.id, attempt.number, RUN),
        argv=manifest.argv(),
        ranks=_ranks(attempt),
        run_dir=layout.run_dir(job.id, attempt.number),
        env={**manifest.env, **_facts(job, attempt, manifest, layout)},
        secrets=secrets,
        bundle=layout.bundle(manifest.bundle) if manifest.bundle else None,
        checkpoints=_own_checkpoints(job, manifest, layout),
        cpu_milli=job.resources.cpu_milli,
        memory_bytes=job.resources.memory_bytes,
        share=job.resources.share,
        device_memory_bytes=job.resources.device_memory_bytes,
        limits=layout.limits,
        time_limits=time_limits(job, manifest),
        grace_s=manifest.grace_s,
        ranks_per_node=manifest.ranks_per_node or 0,
        network=manifest.network,
    )


def time_limits(job: JobRecord, manifest: JobManifest) -> tuple[TimeLimit, ...]:
    """When the present run of a job must be over; each is named after its stop."""
    found = []
    longest = manifest.max_runtime_s
    if longest is not None:
        what = f"ran longer than its max_runtime of {longest:g} s"
        found.append(TimeLimit(Stop.MAX_RUNTIME, what, after_s=max(0.0, longest - job.ran_s)))
    if job.deadline_at is not None:
        found.append(TimeLimit(Stop.DEADLINE, "its deadline passed while it ran", at=job.deadline_at))
    return tuple(found)


def download_gang(
    job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout, secrets: Mapping[str, str]
) -> Gang:
    moves: list[dict[str, Any]] = [{"from": item.source, "to": item.target} for item in manifest.inputs]
    remote = _remote_checkpoint(manifest)
    if remote is not None:
        local = layout.checkpoint_dir(job.id)
        moves.append({"from": remote, "to": local, "optional": True})
    return _helper(job, attempt, manifest, layout, secrets, DOWNLOAD, moves)


def store_gang(
    job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout, secrets: Mapping[str, str],
    *, finished: bool,
) -> Gang:  # fmt: skip
    moves: list[dict[str, Any]] = []
    if finished:
        moves += [{"from": item.source, "to": item.target} for item in manifest.outputs if item.target is not None]
    remote = _remote_checkpoint(manifest)
    if remote is not None:
        moves.append({"from": layout.checkpoint_dir(job.id), "to": remote, "optional": True})
    return _helper(job, attempt, manifest, layout, secrets, STORE, moves)


def _helper(
    job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout, secrets: Mapping[str, str],
    phase: str, moves: list[dict[str, Any]],
) -> Gang:  # fmt: skip
    first = attempt.placement[0]
    return Gang(
        name=gang_name(job.id, attempt.number, phase),
        argv=(sys.executable, "-m", "shoal.control.data", phase, json.dumps(moves)),
        ranks=(RankSpec(rank=0, node=first.node),),
        run_dir=layout.run_dir(job.id, attempt.number),
        env={**manifest.env, **_facts(job, attempt, manifest, layout)},
        secrets=secrets,
        checkpoints=_own_checkpoints(job, manifest, layout),
        cpu_milli=job.resources.cpu_milli,
        memory_bytes=job.resources.memory_bytes and max(job.resources.memory_bytes, _HELPER_BYTES),
        limits=layout.limits,
        grace_s=manifest.grace_s,
    )


def _facts(job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout) -> dict[str, str]:
    own = _own_checkpoints(job, manifest, layout)
    return {
        **array_facts(job, manifest),
        "SHOAL_JOB_ID": job.id,
        "SHOAL_JOB_NAME": job.name,
        "SHOAL_TENANT": job.tenant,
        "SHOAL_ATTEMPT": str(attempt.number),
        "SHOAL_CHECKPOINT_DIR": str(own) if own is not None else str(manifest.checkpoint.directory),
    }


def _own_checkpoints(job: JobRecord, manifest: JobManifest, layout: Layout) -> Path | None:
    """The directory that the server gives the job; None where it names a local path itself."""
    local = manifest.checkpoint.directory
    return Path(layout.checkpoint_dir(job.id)) if local is None or "://" in local else None


def array_facts(job: JobRecord, manifest: JobManifest) -> dict[str, str]:
    """What a task of a job array finds in its environment."""
    tasks = manifest.tasks
    if tasks is None or job.array_id is None:
        return {}
    return {
        "SHOAL_ARRAY_ID": job.array_id,
        "SHOAL_ARRAY_INDEX": str(job.array_index),
        "SHOAL_ARRAY_COUNT": str(len(tasks.indices)),
        "SHOAL_ARRAY_MIN": str(tasks.indices[0]),
        "SHOAL_ARRAY_MAX": str(tasks.indices[-1]),
    }


def _remote_checkpoint(manifest: JobManifest) -> str | None:
    directory = manifest.checkpoint.directory
    return directory if directory is not None and "://" in directory else None
