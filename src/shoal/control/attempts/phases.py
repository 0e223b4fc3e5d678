"""The phases of an attempt as gangs for an engine: fetch inputs, run the user's command, store outputs.

Fetching and storing run as processes of their own beside the user's (FfDL's helper): they outlive the server like any
rank, and user code that misbehaves cannot take them along.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shoal.base import trees
from shoal.contract.gangs import DOWNLOAD, RUN, STORE, Move, gang_name
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


def phases_of(manifest: JobManifest, moves: Sequence[Move], *, finished: bool = True) -> tuple[str, ...]:
    """The phases of an attempt, in order; `moves` fetch its inputs. Outputs are stored where the job has `finished`, a
    checkpoint that is kept elsewhere whenever an attempt ends."""
    remote = _remote_checkpoint(manifest) is not None
    stores = remote or (finished and any(one.target for one in manifest.outputs))
    return (*((DOWNLOAD,) if moves or remote else ()), RUN, *((STORE,) if stores else ()))


def inputs_of(manifest: JobManifest) -> tuple[Move, ...]:
    """What a manifest asks to be fetched: each input as it is."""
    return tuple(Move(one.source, one.target) for one in manifest.inputs)


def kept_outputs(manifest: JobManifest) -> list[str]:
    """Paths in the run directory that the server keeps once the job finished."""
    return [one.source for one in manifest.outputs if one.target is None]


def placed_gang(job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout) -> Gang:
    """The run of a job on its places, without what it needs there."""
    name, run_dir = gang_name(job.id, attempt.number, RUN), layout.run_dir(job.id, attempt.number)
    return Gang(name, manifest.argv(), _ranks(attempt), run_dir, limits=layout.limits, tenant=job.tenant)


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
        affinity=manifest.affinity,
        tenant=job.tenant,
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
    job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout, secrets: Mapping[str, str],
    inputs: Sequence[Move],
) -> Gang:  # fmt: skip
    moves = list(inputs)
    remote = _remote_checkpoint(manifest)
    if remote is not None:
        moves.append(Move(remote, layout.checkpoint_dir(job.id), optional=True))
    return _helper(job, attempt, manifest, layout, secrets, DOWNLOAD, moves)


def store_gang(
    job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout, secrets: Mapping[str, str],
    *, finished: bool,
) -> Gang:  # fmt: skip
    moves: list[Move] = []
    if finished:
        moves += [Move(item.source, item.target) for item in manifest.outputs if item.target is not None]
    remote = _remote_checkpoint(manifest)
    if remote is not None:
        moves.append(Move(layout.checkpoint_dir(job.id), remote, optional=True))
    return _helper(job, attempt, manifest, layout, secrets, STORE, moves)


def _helper(
    job: JobRecord, attempt: AttemptRecord, manifest: JobManifest, layout: Layout, secrets: Mapping[str, str],
    phase: str, moves: Sequence[Move],
) -> Gang:  # fmt: skip
    first = attempt.placement[0]
    return Gang(
        name=gang_name(job.id, attempt.number, phase),
        argv=(sys.executable, "-m", "shoal.control.attempts.data", phase, json.dumps([one.as_json() for one in moves])),
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
