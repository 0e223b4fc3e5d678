"""Inputs of a rank: its environment, and the spec its supervisor reads. Pure."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.base import trees
from shoal.core import CPU_SLOT
from shoal.engine.local.processes import SUPERVISOR_MARK
from shoal.engine.protocol import Gang

_KEPT = ("HOME", "LANG", "LC_ALL", "USER", "LOGNAME", "TMPDIR", "TZ", "VIRTUAL_ENV")
"""Variables of the server that every rank inherits; everything else stays behind."""

TEMPORARY = ".tmp"
"""Where a rank with a user of its own has its temporary files, in its run directory."""

_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def rank_environment(
    gang: Gang,
    rank: int,
    *,
    home: Path,
    rank_dir: Path,
    device_types: Mapping[str, str],
    master_port: int,
    base: Mapping[str, str] = os.environ,
) -> dict[str, str]:
    """The whole environment of one rank: base, gang, rank, secrets, and on top what the engine decides (as torchrun
    does: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ...)."""
    spec = gang.ranks[rank]
    neighbours = [other.rank for other in gang.ranks if other.node == spec.node]
    visible = [device for device in spec.devices if device_types.get(device) != CPU_SLOT]
    given = {**gang.env, **spec.env, **gang.secrets}
    given.pop(SUPERVISOR_MARK, None)
    return {
        **{name: base[name] for name in _KEPT if name in base},
        "PATH": f"{Path(sys.executable).parent}:{base.get('PATH') or _DEFAULT_PATH}",
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": str(max(1, gang.cpu_milli // 1000)),
        **given,
        "RANK": str(rank),
        "WORLD_SIZE": str(len(gang.ranks)),
        "LOCAL_RANK": str(neighbours.index(rank)),
        "LOCAL_WORLD_SIZE": str(len(neighbours)),
        "NODE_RANK": "0",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(master_port),
        "CUDA_VISIBLE_DEVICES": ",".join(visible),
        "SHOAL_HOME": str(home),
        "SHOAL_GANG": gang.name,
        "SHOAL_RANK": str(rank),
        "SHOAL_WORLD_SIZE": str(len(gang.ranks)),
        "SHOAL_RUN": str(rank_dir),
        "SHOAL_METRICS_FILE": str(rank_dir / "metrics.jsonl"),
        "SHOAL_RING": str(rank_dir),
    }


def sandbox_environment(env: Mapping[str, str], home: Path, user: str, temporary: str) -> dict[str, str]:
    """The environment of a rank that has a user of its own."""
    return {**env, "HOME": str(home), "TMPDIR": temporary, "USER": user, "LOGNAME": user}


def supervisor_environment(home: Path, gang: str, rank: int) -> dict[str, str]:
    """Nothing but the marks by which the engine finds it again."""
    return {"SHOAL_HOME": str(home), "SHOAL_GANG": gang, "SHOAL_RANK": str(rank), SUPERVISOR_MARK: "1"}


def supervisor_spec(
    gang: Gang,
    rank: int,
    *,
    home: Path,
    gang_dir: Path,
    rank_dir: Path,
    env: dict[str, str],
    cgroups: list[dict[str, Any]],
    enforced: frozenset[str],
    sandbox: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """What one supervisor reads on stdin, in types that `marshal` takes. `enforced` are the cgroup controllers that
    hold their limits by themselves; what they do not hold, the supervisor looks after now and then."""
    limits = gang.limits
    return {
        "limits": {
            "open_files": limits.open_files,
            "log": limits.log_bytes,
            "processes": limits.processes,
            "polled_processes": 0 if "pids" in enforced else limits.processes,
            "polled_memory": 0 if "memory" in enforced else gang.memory_bytes,
            "disk": limits.disk_bytes,
            "files": limits.files,
        },
        "disk": [str(path) for path in (*gang.directories(), gang_dir)] if rank == 0 else [],
        "modules": [str(Path(trees.__file__).parent), str(Path(__file__).parent)],
        "name": gang.name,
        "rank": rank,
        "home": str(home),
        "gang_dir": str(gang_dir),
        "rank_dir": str(rank_dir),
        "run_dir": str(gang.run_dir.absolute()),
        "argv": list(gang.argv),
        "enter": list(gang.enter),
        "env": env,
        "alone": len(gang.ranks) == 1,
        "grace_s": float(gang.grace_s),
        "time_limits": [(str(each.name), each.detail, each.after_s, each.at) for each in gang.time_limits],
        "launch_timeout_s": float(gang.launch_timeout_s),
        "cgroups": cgroups,
        "sandbox": sandbox,
    }
