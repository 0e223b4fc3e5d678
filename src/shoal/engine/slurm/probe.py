"""Probe of a Slurm cluster, tried for real: what it offers this engine, and what is missing: `shoal doctor --engine
slurm`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import shlex
import sys
from pathlib import Path

from shoal.core import NO_JOBS, Capability, ShoalError, SystemClock, Unavailable
from shoal.engine.batch.job import NotTaken
from shoal.engine.protocol import EngineOptions
from shoal.engine.slurm.cluster import SlurmCluster
from shoal.engine.slurm.commands import Commands
from shoal.engine.slurm.settings import SlurmSettings
from shoal.engine.slurm.submission import Target

_NO_JOBS = f"{NO_JOBS} until this is mended"
_WAIT_S = 15


def probe_cluster(options: EngineOptions) -> tuple[Capability, ...]:
    """Everything worth knowing before `shoal up --engine slurm`, most important first. Blocks; starts one short job on
    the idle nodes of the partition."""
    section = options.settings
    assert isinstance(section, SlurmSettings)
    return tuple(asyncio.run(_probe(options.home.absolute(), section)))


async def _probe(home: Path, section: SlurmSettings) -> list[Capability]:
    slurm = Commands()
    missing = slurm.missing()
    if missing:
        how = "install Slurm's client (Debian: slurm-client), or run the server on a login node"
        return [Capability("slurm-client", False, f"{', '.join(missing)} not found: {how}", _NO_JOBS)]
    found = [Capability("slurm-client", True, "sbatch, squeue, scontrol, scancel and srun are here")]
    cluster = SlurmCluster(slurm, Target(section.partition), SystemClock(), pooled=section.delegate)
    try:
        await cluster.open()
    except ShoalError as problem:
        return [*found, Capability("slurm", False, str(problem), _NO_JOBS)]
    found += cluster.capabilities()
    found += await _shared(slurm, cluster, home)
    found.append(_lookups(home))
    found.append(_tracking(cluster.facts))
    return found


async def _shared(slurm: Commands, cluster: SlurmCluster, home: Path) -> list[Capability]:
    """Whether the nodes see the home under the same path, and this Python: asked of those that are idle now."""
    python = os.path.realpath(sys.executable)
    seal = home / f".probe-{os.getpid()}"
    word = secrets.token_hex(8)
    test = (
        f'echo "$SLURMD_NODENAME $(cat {shlex.quote(str(seal))} 2>/dev/null || echo -) '
        f'$(test -x {shlex.quote(python)} && echo yes || echo no)"'
    )
    try:
        idle = await slurm.run("sinfo", "-h", "-N", "-p", cluster.target.partition, "-t", "idle", "-o", "%N")
        names = sorted(set(idle.split()))
        if not names:
            return [Capability("shared-directory", True, "not tried: no node is idle now")]
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        seal.write_text(word)
        said = await slurm.run(
            "srun", f"--partition={cluster.target.partition}", f"--nodelist={','.join(names)}",
            f"--nodes={len(names)}", "--ntasks-per-node=1", f"--immediate={_WAIT_S}", "--chdir=/", "--mpi=none",
            "--job-name=shoal-doctor", "sh", "-c", test,
        )  # fmt: skip
    except OSError as problem:
        return [Capability("shared-directory", False, f"{home}: {problem.strerror}", _NO_JOBS)]
    except (NotTaken, Unavailable) as problem:
        return [
            Capability("shared-directory", False, f"it could not be tried: {problem.what}", "nothing is known of it")
        ]
    finally:
        with contextlib.suppress(OSError):
            seal.unlink(missing_ok=True)
    told = [line.split() for line in said.splitlines() if len(line.split()) == 3]
    blind = sorted({name for name, seen, _ in told if seen != word})
    bare = sorted({name for name, _, there in told if there != "yes"})
    return [
        _of_all("shared-directory", names, blind, f"{home} is seen", f"do not see {home}: mount it there"),
        _of_all(
            "python", names, bare, f"{python} is there", f"have no {python}: install Shoal on the shared directory"
        ),
    ]


def _of_all(name: str, asked: list[str], lacking: list[str], well: str, ill: str) -> Capability:
    if not lacking:
        return Capability(name, True, f"{well} on {', '.join(asked)}")
    return Capability(
        name, False, f"{', '.join(lacking)} {ill}", "jobs that Slurm starts there fail, and are tried again"
    )


def _lookups(home: Path, mounts: Path = Path("/proc/mounts")) -> Capability:
    """NFS remembers for a while that a file was not there, unless it is told not to."""
    best, kind, options = "", "", ""
    for line in mounts.read_text().splitlines():
        _, top, found, how, *_ = line.split()
        if (home.is_relative_to(top)) and len(top) >= len(best):
            best, kind, options = top, found, how
    if not kind.startswith("nfs") or "lookupcache=pos" in options or "lookupcache=none" in options:
        return Capability("file-system", True, f"{kind} at {best}")
    cost = "launches of several ranks may take half a minute longer: mount it with lookupcache=positive"
    return Capability("file-system", False, f"{kind} at {best} remembers what was not there", cost)


def _tracking(facts: dict[str, str]) -> Capability:
    tracks, task = facts.get("ProctrackType", ""), facts.get("TaskPlugin", "")
    detail = f"{tracks}, {task}"
    if "cgroup" in tracks and "cgroup" in task:
        return Capability("limits", True, detail)
    cost = (
        "without Slurm's cgroup plugins, memory is looked at once a second instead of limited, cores are not limited, "
        "and a process that left its rank's session may outlive a killed supervisor by a moment"
    )
    return Capability("limits", False, detail, cost)
