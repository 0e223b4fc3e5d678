"""What is handed to `sbatch` for a gang. Pure, but for the key of its secrets."""

from __future__ import annotations

import hashlib
import marshal
import os
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.core import CPU_SLOT, Fault
from shoal.engine.local.environment import rank_environment, supervisor_spec
from shoal.engine.protocol import Gang, LaunchFailed
from shoal.engine.slurm.jobs import NO_PYTHON, NO_SHARED_DIRECTORY

_PLACED_BY_NODE = (
    "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
"""Parts of a rank's environment that are known on its node only."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where in a cluster jobs go. `account` and `qos` may name `{tenant}`; empty: Slurm's own default.
    `memory_share_mib` is a core's part of a node's memory, where Slurm would else give a job all of it."""

    partition: str
    account: str = ""
    qos: str = ""
    memory_share_mib: int = 0


def arguments(gang: Gang, target: Target, *, mark: str, device_types: Mapping[tuple[str, str], str]) -> list[str]:
    """Options of `sbatch`. `device_types` gives the type of each (node, device)."""
    ranks = [rank for rank in gang.ranks if rank.node]
    each = len(gang.ranks[0].devices)
    per_node: dict[str, list[tuple[str, str]]] = {rank.node: [] for rank in ranks}
    for rank in ranks:
        per_node[rank.node] += [(rank.node, device) for device in rank.devices]
    types = {node: sorted(device_types.get(one, "gpu") for one in devices) for node, devices in per_node.items()}
    slots = any(CPU_SLOT in found for found in types.values())
    cpus = max(1, -(-gang.cpu_milli // 1000), each if slots else 0)
    tasks = [[rank.node for rank in ranks].count(node) for node in per_node]
    tenant = gang.env.get("SHOAL_TENANT", "")
    options = {
        "job-name": gang.name,
        "comment": mark,
        "partition": target.partition,
        "account": target.account.format(tenant=tenant),
        "qos": target.qos.format(tenant=tenant),
        "nodelist": ",".join(per_node),
        "nodes": str(len(per_node)),
        "ntasks-per-node": str(max(tasks)),
        "cpus-per-task": str(cpus),
        "gres": "" if slots else _gres(list(types.values())),
        "mem-per-cpu": _memory(gang.memory_bytes, cpus, target.memory_share_mib),
    }
    given = [f"--{name}={value}" for name, value in options.items() if value]
    quiet = ["--output=/dev/null", "--error=/dev/null", "--input=/dev/null", "--chdir=/"]
    return ["--parsable", "--no-requeue", *quiet, *given]


def _gres(types: list[list[str]]) -> str:
    """Per node; where the nodes differ, as many as the node with most has."""
    if not any(types):
        return ""
    if any(found != types[0] for found in types):
        return f"gpu:{max(map(len, types))}"
    counts = {kind: types[0].count(kind) for kind in types[0]}
    return ",".join(f"gpu:{count}" if kind == "gpu" else f"gpu:{kind}:{count}" for kind, count in counts.items())


def _memory(memory_bytes: int, cpus: int, share_mib: int) -> str:
    if memory_bytes:
        return f"{-(-memory_bytes // (cpus << 20))}M"
    return f"{share_mib}M" if share_mib else ""


def script(gang_dir: Path, token: str, *, python: str, runner: Path, alone: bool) -> str:
    """The job's script: the one rank itself, or a task for each."""
    where, program = shlex.quote(f"{gang_dir}/spec.{token}"), shlex.quote(python)
    rank = (
        f"[ -r {where} ] || exit {NO_SHARED_DIRECTORY}; [ -x {program} ] || exit {NO_PYTHON}; "
        f"exec {program} -I -S {shlex.quote(str(runner))} {shlex.quote(str(gang_dir))} {token} "
        f"</dev/null >/dev/null 2>>{shlex.quote(str(runner.parent / 'supervisor.log'))}"
    )
    if alone:
        return f"#!/bin/sh\n{rank}\n"
    return (
        "#!/bin/sh\nexec srun --kill-on-bad-exit=0 --wait=0 --input=none --output=none --mpi=none --cpu-bind=none "
        f"sh -c {shlex.quote(rank)}\n"
    )


def spec_of(gang: Gang, *, home: Path, gang_dir: Path, lease_s: float, sealed: bytes) -> dict[str, Any]:
    """What the ranks read on their nodes: see `rank.py`."""
    names = set(gang.secrets)
    bare = replace(gang, env=_without(gang.env, names), secrets={}, ranks=tuple(
        replace(rank, env=_without(rank.env, names)) for rank in gang.ranks
    ))  # fmt: skip
    each = []
    for rank in range(len(gang.ranks)):
        rank_dir = gang_dir / f"rank-{rank}"
        env = rank_environment(bare, rank, home=home, rank_dir=rank_dir, device_types={}, master_port=0)
        env = {name: value for name, value in env.items() if name not in _PLACED_BY_NODE}
        each.append(
            supervisor_spec(
                bare, rank, home=home, gang_dir=gang_dir, rank_dir=rank_dir, env=env, cgroups=[], enforced=frozenset()
            )
        )
    return {
        "nodes": [rank.node for rank in gang.ranks],
        "ranks": len(gang.ranks),
        "accelerators": len(gang.ranks[0].devices),
        "lease_s": lease_s,
        "sealed": sealed,
        "each": each,
    }


def _without(env: Mapping[str, str], names: set[str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name not in names}


def seal(values: Mapping[str, str]) -> tuple[bytes, str]:
    """Secrets in two halves, of which one alone tells nothing: what goes into the gang's directory, and a key for this
    one launch that goes with the Slurm job (a one-time stream of SHAKE-256)."""
    if not values:
        return b"", ""
    plain = marshal.dumps(dict(values))
    key = secrets.token_bytes(32)
    stream = hashlib.shake_256(key).digest(len(plain))
    return bytes(a ^ b for a, b in zip(plain, stream, strict=True)), key.hex()


def not_started(code: int | None, home: Path, where: str, why: str) -> LaunchFailed:
    """Why a job that Slurm ran started no rank, by what its script left with."""
    if code == NO_SHARED_DIRECTORY:
        what, hint = f"its node does not see the server's home {home}", "mount it on every node under the same path"
    elif code == NO_PYTHON:
        what = "its node has no Python where this server has its own"
        hint = "install Shoal on the shared directory, or under the same path on every node"
    else:
        return LaunchFailed(f"Slurm ended its job before it started: {why}", fault=Fault.PLATFORM, where=where)
    return LaunchFailed(what, fault=Fault.PLATFORM, where=where, hint=hint)


def mark_of(home: Path) -> str:
    """By which the jobs of a home are known in Slurm."""
    return f"shoal-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
