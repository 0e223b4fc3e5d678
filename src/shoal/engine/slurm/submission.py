"""What is handed to `sbatch` for a gang. Pure, but for the key of its secrets."""

from __future__ import annotations

import hashlib
import marshal
import os
import secrets
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shoal.core import CPU_SLOT, Fault
from shoal.engine.local.environment import rank_environment, supervisor_spec
from shoal.engine.pool import wanted
from shoal.engine.protocol import Gang, LaunchFailed, Refused
from shoal.engine.slurm.jobs import NO_PYTHON, NO_SHARED_DIRECTORY

_PLACED_BY_NODE = (
    "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
"""Parts of a rank's environment that are known on its node only."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where in a cluster jobs go. `account` and `qos` may name `{tenant}`; empty: Slurm's own default, as for
    the partition.
    `memory_share_mib` is a core's part of a node's memory, where Slurm would else give a job all of it."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    memory_share_mib: int = 0


def arguments(
    gang: Gang, target: Target, *, mark: str, device_types: Mapping[tuple[str, str], str], pooled: bool = False,
    avoid: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Options of `sbatch`. `device_types` gives the type of each (node, device); `pooled`: Slurm picks the nodes, but
    none to `avoid`."""
    asked = _of_pool(gang, avoid) if pooled else _of_nodes(gang, device_types)
    cpus = max(1, -(-gang.cpu_milli // 1000), asked.slots)
    tenant = gang.env.get("SHOAL_TENANT", "")
    options = {
        "job-name": gang.name,
        "comment": mark,
        "partition": target.partition,
        "account": target.account.format(tenant=tenant),
        "qos": target.qos.format(tenant=tenant),
        "cpus-per-task": str(cpus),
        "mem-per-cpu": _memory(gang.memory_bytes, cpus, target.memory_share_mib),
        **asked.options,
    }
    given = [f"--{name}={value}" for name, value in options.items() if value]
    quiet = ["--output=/dev/null", "--error=/dev/null", "--input=/dev/null", "--chdir=/"]
    return ["--parsable", "--no-requeue", *quiet, *given]


@dataclass(frozen=True, slots=True)
class _Asked:
    """`slots`: cores of each rank that stand for devices."""

    slots: int
    options: Mapping[str, str]


def _of_nodes(gang: Gang, device_types: Mapping[tuple[str, str], str]) -> _Asked:
    per_node: dict[str, list[tuple[str, str]]] = {rank.node: [] for rank in gang.ranks}
    for rank in gang.ranks:
        per_node[rank.node] += [(rank.node, device) for device in rank.devices]
    types = {node: sorted(device_types.get(one, "gpu") for one in devices) for node, devices in per_node.items()}
    slots = any(CPU_SLOT in found for found in types.values())
    tasks = max([rank.node for rank in gang.ranks].count(node) for node in per_node)
    options = {
        "nodelist": ",".join(per_node),
        "nodes": str(len(per_node)),
        "ntasks-per-node": str(tasks),
        "gres": "" if slots else _gres(list(types.values())),
    }
    return _Asked(len(gang.ranks[0].devices) if slots else 0, options)


def _of_pool(gang: Gang, avoid: Sequence[str]) -> _Asked:
    each = wanted(gang.ranks[0])
    slots = each.pop(CPU_SLOT, 0)
    options = {"ntasks": str(len(gang.ranks)), "exclude": ",".join(avoid)}
    if gang.ranks_per_node:
        options |= {
            "nodes": str(len(gang.ranks) // gang.ranks_per_node),
            "ntasks-per-node": str(gang.ranks_per_node),
        }
    if len(gang.ranks) == 1:
        options |= {"nodes": "1", "gres": _counted(each, "gpu:")}
    elif each:
        options["gpus-per-task"] = _counted(each, "")
    return _Asked(slots, options)


def _counted(each: Mapping[str, int], name: str) -> str:
    return ",".join(f"{name}{'' if kind == 'gpu' else f'{kind}:'}{count}" for kind, count in sorted(each.items()))


def _gres(types: list[list[str]]) -> str:
    """Per node; where the nodes differ, as many as the node with most has."""
    if not any(types):
        return ""
    if any(found != types[0] for found in types):
        return f"gpu:{max(map(len, types))}"
    return _counted({kind: types[0].count(kind) for kind in types[0]}, "gpu:")


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


def spec_of(
    gang: Gang,
    *,
    home: Path,
    gang_dir: Path,
    lease_s: float,
    sealed: bytes,
    pooled: bool,
    types: Mapping[tuple[str, str], str],
) -> dict[str, Any]:
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
        "nodes": [] if pooled else [rank.node for rank in gang.ranks],
        "ranks": len(gang.ranks),
        "accelerators": len(_accelerators(gang, types)),
        "lease_s": lease_s,
        "sealed": sealed,
        "each": each,
    }


def _accelerators(gang: Gang, types: Mapping[tuple[str, str], str]) -> list[str]:
    """The devices of each rank that are no CPU slots."""
    first = gang.ranks[0]
    return [one for one in first.devices if types.get((first.node, one), one.partition(":")[0]) != CPU_SLOT]


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


def refusal(said: str, gang: str) -> LaunchFailed:
    """What `sbatch` refused a gang for. What no node could ever run is the job's own fault."""
    if "node configuration is not available" in said.lower():
        return Refused("no node of the partition could ever run it", where=gang, hint="ask for fewer of its resources")
    return LaunchFailed(f"Slurm refused it: {said}", fault=Fault.PLATFORM, where=gang)


def mark_of(home: Path) -> str:
    """By which the jobs of a home are known in Slurm."""
    return f"shoal-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
