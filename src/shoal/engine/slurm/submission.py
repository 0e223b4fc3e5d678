"""Submission of a gang to `sbatch`. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from shoal.core import CPU_SLOT, Fault
from shoal.engine.batch.handover import command
from shoal.engine.pool import wanted
from shoal.engine.protocol import Gang, LaunchFailed, Refused


@dataclass(frozen=True, slots=True)
class Target:
    """Where in a cluster jobs go. `account` and `qos` may name `{tenant}`; empty: Slurm's own default, as for
    the partition.
    For `together_s` a gang waits for nodes under one switch; 0 where Slurm knows no switches.
    `bundles` is the folder of the images that it runs jobs in.
    `memory_share_mib` is a core's part of a node's memory, where Slurm would else give a job all of it."""

    partition: str = ""
    account: str = ""
    qos: str = ""
    memory_share_mib: int = 0
    together_s: int = 0
    bundles: str = ""

    def container(self, gang: Gang) -> str:
        """The OCI bundle of the gang's image; empty where it names none. Raises Refused for one that is not there."""
        if not gang.image:
            return ""
        bundle = Path(self.bundles, gang.image)
        if ".." in bundle.parts or not (bundle / "config.json").is_file():
            hint = f"an admin unpacks it there: `umoci unpack --image LAYOUT:TAG {bundle}`"
            raise Refused(f"there is no bundle of the image {gang.image} in {self.bundles}", where=gang.name, hint=hint)
        return str(bundle)


def arguments(
    gang: Gang, target: Target, *, mark: str, device_types: Mapping[tuple[str, str], str], pooled: bool = False,
    avoid: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Options of `sbatch`. `device_types` gives the type of each (node, device); `pooled`: Slurm picks the nodes, but
    none to `avoid`."""
    asked = _of_pool(gang, avoid, target.together_s) if pooled else _of_nodes(gang, device_types)
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
        "container": target.container(gang) if len(gang.ranks) == 1 else "",
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
    _refuse_several_beside(gang, tasks)
    options = {
        "nodelist": ",".join(per_node),
        "nodes": str(len(per_node)),
        "ntasks-per-node": str(tasks),
        "gres": "" if slots else _gres(list(types.values())),
    }
    return _Asked(len(gang.ranks[0].devices) if slots else 0, options)


def _refuse_several_beside(gang: Gang, per_node: int) -> None:
    if gang.image and per_node > 1:
        raise Refused(
            f"{per_node} ranks of it would share a machine, and Slurm runs a bundle once on each", where=gang.name,
            hint="`ranks_per_node: 1` spreads them; or environment.runtime, in place of slurm.bundles, runs the image",
        )  # fmt: skip


def _of_pool(gang: Gang, avoid: Sequence[str], together_s: int) -> _Asked:
    each = wanted(gang.ranks[0])
    slots = each.pop(CPU_SLOT, 0)
    options = {"ntasks": str(len(gang.ranks)), "exclude": ",".join(avoid)}
    if per_node := gang.ranks_per_node or int(bool(gang.image)):
        _refuse_several_beside(gang, per_node)
        options |= {"nodes": str(len(gang.ranks) // per_node), "ntasks-per-node": str(per_node)}
    if len(gang.ranks) == 1:
        options |= {"nodes": "1", "gres": _counted(each, "gpu:")}
    elif each:
        options["gpus-per-task"] = _counted(each, "")
    if len(gang.ranks) > 1 and together_s:
        options["switches"] = f"1@0:{together_s}"
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


_PLACE = "export " + " ".join(
    f'SHOAL_{ours}="${theirs}"'
    for ours, theirs in {
        "TASK_JOB": "SLURM_JOB_ID", "TASK_RANK": "SLURM_PROCID", "TASK_NODE": "SLURMD_NODENAME",
        "TASK_NODE_INDEX": "SLURM_NODEID", "TASK_LOCAL": "SLURM_LOCALID",
        "TASKS_PER_NODE": "SLURM_STEP_TASKS_PER_NODE",
    }.items()
) + "; "  # fmt: skip
"""Each task's place, by the names that `batch.rank` reads."""

_PLACE_WITHIN = (
    'export SHOAL_TASK_JOB="$SLURM_JOB_ID" SHOAL_TASK_RANK={rank} SHOAL_TASK_NODE="{node}" '
    'SHOAL_TASK_NODE_INDEX={rank} SHOAL_TASK_LOCAL=0 SHOAL_TASKS_PER_NODE="1(x$SLURM_JOB_NUM_NODES)"; '
)
"""The same in a bundle: what Slurm says of tasks does not come there, or is what it said of the job's first."""


def script(gang_dir: Path, token: str, *, python: str, runner: Path, alone: bool, container: str = "") -> str:
    """The job's script: the one rank itself, or a task for each; in the bundle `container` a step for each."""
    work = command(gang_dir, token, python=python, runner=runner)
    step = "srun --kill-on-bad-exit=0 --wait=0 --input=none --output=none --mpi=none --cpu-bind=none"
    if alone:
        place = _PLACE_WITHIN.format(rank=0, node="$SLURM_JOB_NODELIST") if container else _PLACE
        return f"#!/bin/sh\n{place}{work}\n"
    if not container:
        return f"#!/bin/sh\nexec {step} sh -c {shlex.quote(_PLACE + work)}\n"
    place = _PLACE_WITHIN.format(rank="$rank", node="$node")
    return (
        '#!/bin/sh\nrank=0\nfor node in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do\n'
        f'{place}{step} --nodes=1 --ntasks=1 --nodelist="$node" --container={shlex.quote(container)} '
        f"sh -c {shlex.quote(work)} &\nrank=$((rank + 1))\ndone\nwait\n"
    )


def refusal(said: str, gang: str) -> LaunchFailed:
    """What `sbatch` refused a gang for. What no node could ever run is the job's own fault."""
    if "node configuration is not available" in said.lower():
        return Refused("no node of the partition could ever run it", where=gang, hint="ask for fewer of its resources")
    return LaunchFailed(f"Slurm refused it: {said}", fault=Fault.PLATFORM, where=gang)
