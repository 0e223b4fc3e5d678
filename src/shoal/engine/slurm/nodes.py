"""Slurm's nodes as ours. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

from shoal.core import CPU_SLOT, Device, Node
from shoal.engine.protocol import Inventory
from shoal.engine.slurm.jobs import expand, read_facts

_GONE = frozenset({"DOWN", "FUTURE", "ERROR"})
_CLOSED = {
    "DRAIN": "drained", "FAIL": "failing", "MAINT": "in maintenance", "REBOOT_REQUESTED": "to be rebooted",
    "REBOOT_ISSUED": "rebooting", "NOT_RESPONDING": "not responding", "INVAL": "not as configured",
    "RESERVED": "reserved", "INVALID_REG": "not as configured", "UNKNOWN": "not heard of yet",
}  # fmt: skip
_GRES = re.compile(r"gpu(?::([A-Za-z][\w.-]*))?:(\d+)(?:\(.*?\))?")


def read_nodes(printed: str, partition: str, switches: Mapping[str, str] | None = None) -> Inventory:
    """What `scontrol show node -o` tells of a partition. A node that is down is gone. `switches` gives the leaf switch
    of nodes, where Slurm knows it."""
    nodes, closed = [], {}
    for line in printed.splitlines():
        facts = read_facts(line)
        if "NodeName" not in facts or partition not in facts.get("Partitions", "").split(","):
            continue
        flags = state_flags(facts.get("State", "UNKNOWN"))
        if flags & _GONE:
            continue
        node = _node(facts, partition, (switches or {}).get(facts["NodeName"], ""))
        nodes.append(node)
        reasons = [words for flag, words in _CLOSED.items() if flag in flags]
        if reasons:
            because = facts.get("Reason", "").partition(" [")[0]
            closed[node.name] = f"Slurm: {', '.join(reasons)}" + (f" ({because})" if because else "")
    return Inventory(tuple(sorted(nodes, key=lambda node: _natural(node.name))), closed)


def state_flags(told: str) -> frozenset[str]:
    """`IDLE*+DRAIN` is IDLE, DRAIN and NOT_RESPONDING."""
    flags = set()
    for part in told.upper().split("+"):
        name = part.rstrip("*~#!%$@^-")
        flags.add(name)
        if "*" in part[len(name) :]:
            flags.add("NOT_RESPONDING")
    return frozenset(flags)


def accelerators(gres: str) -> list[tuple[str, int]]:
    """Types and numbers of `gpu:a100:4(S:0-1),gpu:2`; one without a type is a `gpu`."""
    return [(kind or "gpu", int(count)) for kind, count in _GRES.findall(gres)]


def _node(facts: dict[str, str], partition: str, switch: str) -> Node:
    cpus = int(facts.get("CPUEfctv") or facts.get("CPUTot") or 0)
    found = accelerators(facts.get("Gres", ""))
    kinds = [kind for kind, count in found for _ in range(count)] or [CPU_SLOT] * cpus
    stem = "cpu" if not found else "gpu"
    devices = tuple(Device(f"{stem}{index}", kind, index) for index, kind in enumerate(kinds))
    features = facts.get("ActiveFeatures", "(null)")
    labels = {"partition": partition, **({"switch": switch} if switch else {})}
    labels |= {f"feature.{name}": "yes" for name in features.split(",") if name and name != "(null)"}
    return Node(facts["NodeName"], devices, cpus * 1000, int(facts.get("RealMemory", 0)) << 20, labels)


def read_switches(printed: str) -> dict[str, str]:
    """The leaf switch of each node, of `scontrol show topology`."""
    found: dict[str, str] = {}
    for line in printed.splitlines():
        facts = read_facts(line)
        if facts.get("Level") == "0":
            found |= dict.fromkeys(expand(facts.get("Nodes", "")), facts["SwitchName"])
    return found


def _natural(name: str) -> list[tuple[int, str]]:
    """`n10` after `n9`."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def default_partition(printed: str) -> tuple[str, tuple[str, ...]]:
    """The cluster's default partition (empty where there is none) and all of them, of `scontrol show partition -o`."""
    names, default = [], ""
    for line in printed.splitlines():
        facts = read_facts(line)
        if "PartitionName" in facts:
            names.append(facts["PartitionName"])
            if facts.get("Default") == "YES":
                default = facts["PartitionName"]
    return default, tuple(names)
