"""Handover of a gang to whatever runs it: what its ranks read, in its directory, and the command of each."""

from __future__ import annotations

import hashlib
import marshal
import os
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from shoal.core import CPU_SLOT, Fault
from shoal.engine.local.environment import rank_environment, supervisor_spec
from shoal.engine.protocol import Gang, LaunchFailed

NO_SHARED_DIRECTORY, NO_PYTHON = 87, 88
"""What a rank's command leaves with where its node lacks what it needs."""

_PLACED_BY_NODE = (
    "MASTER_ADDR", "MASTER_PORT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK", "CUDA_VISIBLE_DEVICES",
)  # fmt: skip
"""Parts of a rank's environment that are known on its node only."""


def command(gang_dir: Path, token: str, *, python: str, runner: Path) -> str:
    """For a shell, on the node of a rank."""
    where, program = shlex.quote(f"{gang_dir}/spec.{token}"), shlex.quote(python)
    return (
        f"[ -r {where} ] || exit {NO_SHARED_DIRECTORY}; [ -x {program} ] || exit {NO_PYTHON}; "
        f"exec {program} -I -S {shlex.quote(str(runner))} {shlex.quote(str(gang_dir))} {token} "
        f"</dev/null >/dev/null 2>>{shlex.quote(str(runner.parent / 'supervisor.log'))}"
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
    one launch that goes with its job (a one-time stream of SHAKE-256)."""
    if not values:
        return b"", ""
    plain = marshal.dumps(dict(values))
    key = secrets.token_bytes(32)
    stream = hashlib.shake_256(key).digest(len(plain))
    return bytes(a ^ b for a, b in zip(plain, stream, strict=True)), key.hex()


def not_started(code: int | None, home: Path, where: str, why: str) -> LaunchFailed:
    """Why a job that the cluster ran started no rank, by what its command left with."""
    if code == NO_SHARED_DIRECTORY:
        what, hint = f"its node does not see the server's home {home}", "mount it on every node under the same path"
    elif code == NO_PYTHON:
        what = "its node has no Python where this server has its own"
        hint = "install Shoal on the shared directory, or under the same path on every node"
    else:
        return LaunchFailed(f"its job ended before it started: {why}", fault=Fault.PLATFORM, where=where)
    return LaunchFailed(what, fault=Fault.PLATFORM, where=where, hint=hint)


def mark_of(home: Path) -> str:
    """By which the jobs of a home are known in the cluster."""
    return f"shoal-{hashlib.sha256(os.fsencode(home)).hexdigest()[:12]}"
