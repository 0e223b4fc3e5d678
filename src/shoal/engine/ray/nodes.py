"""Ray's nodes as ours, and what a gang asks of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from shoal.core import CPU_SLOT, Device, Node
from shoal.engine.pool import wanted
from shoal.engine.protocol import Gang

_TYPE = "accelerator_type:"
_LEAST_CPU = 0.001
"""A bundle cannot ask for nothing."""


def read_nodes(told: Iterable[Mapping[str, Any]]) -> tuple[Node, ...]:
    """What the bridge tells of each node. One without GPUs offers its cores as CPU slots."""
    return tuple(sorted((_node(each) for each in told), key=lambda node: node.name))


def _node(told: Mapping[str, Any]) -> Node:
    resources: Mapping[str, float] = told["resources"]
    cpus, gpus = resources.get("CPU", 0), int(resources.get("GPU", 0))
    kind = gpu_type(resources) if gpus else CPU_SLOT
    stem, count = ("gpu", gpus) if gpus else ("cpu", int(cpus))
    devices = tuple(Device(f"{stem}{index}", kind, index) for index in range(count))
    labels = {name: str(value) for name, value in told["labels"].items() if not name.startswith("ray.io/")}
    return Node(told["name"], devices, int(cpus * 1000), int(resources.get("memory", 0)), labels)


def gpu_type(resources: Mapping[str, float]) -> str:
    """Ray names the type of a node's GPUs by a resource."""
    return next((name[len(_TYPE) :].lower() for name in sorted(resources) if name.startswith(_TYPE)), "gpu")


def needs(gang: Gang, told: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """What each rank asks of its node, by Ray's names. `told` has them in Ray's own spelling."""
    each = wanted(gang.ranks[0])
    slots = each.pop(CPU_SLOT, 0)
    asked: dict[str, float] = {"CPU": max(_LEAST_CPU, gang.cpu_milli / 1000, slots)}
    if gang.memory_bytes:
        asked["memory"] = gang.memory_bytes
    if each:
        asked["GPU"] = sum(each.values())
        spelt = {name[len(_TYPE) :].lower(): name for node in told for name in node["resources"] if _TYPE in name}
        asked |= {spelt[kind]: 0.001 for kind in each if kind in spelt}
    return asked


def fits(asked: Mapping[str, float], told: Iterable[Mapping[str, Any]]) -> bool:
    """Whether some node has as much in all."""
    return any(all(node["resources"].get(name, 0) >= amount for name, amount in asked.items()) for node in told)
