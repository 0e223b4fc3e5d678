"""Kubernetes' nodes as ours. Pure: objects are as the API's JSON has them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from shoal.core import CPU_SLOT, Affinity, Device, Labels, Node
from shoal.engine.kubernetes.settings import KubernetesSettings
from shoal.engine.protocol import Inventory

Object = Mapping[str, Any]

HOSTNAME = "kubernetes.io/hostname"
_RACKS = ("topology.kubernetes.io/zone", "topology.kubernetes.io/rack")
_MOST_WEIGHT = 100
"""Kubernetes' greatest weight of a preference."""
_PRESSURE = ("MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable")
_SUFFIX = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "k": Fraction(10**3),
    "M": Fraction(10**6), "G": Fraction(10**9), "T": Fraction(10**12), "P": Fraction(10**15), "E": Fraction(10**18),
    "Ki": Fraction(1 << 10), "Mi": Fraction(1 << 20), "Gi": Fraction(1 << 30), "Ti": Fraction(1 << 40),
    "Pi": Fraction(1 << 50), "Ei": Fraction(1 << 60),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Kind:
    """How a type of accelerator is asked for: a resource, and the label's value of the nodes that have this type."""

    resource: str
    label: str = ""


@dataclass(frozen=True, slots=True)
class ClusterNodes:
    """All nodes that may have pods of ours, and how their types of accelerators are asked for."""

    inventory: Inventory = field(default_factory=lambda: Inventory(()))
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    unreachable: frozenset[str] = frozenset()


def read_nodes(objects: Iterable[Object], settings: KubernetesSettings) -> ClusterNodes:
    """A node that is gone has no object; one that takes no new pods is closed, with Kubernetes' reason."""
    nodes, closed, kinds, unreachable = [], {}, dict[str, Kind](), set()
    for each in objects:
        name = each["metadata"]["name"]
        node, kind = _node(each, settings)
        if kind is not None:
            kinds[node.devices[0].type] = kind
        nodes.append(node)
        why = _why_closed(each)
        if why:
            closed[name] = f"Kubernetes: {why}"
        if _condition(each, "Ready") != "True":
            unreachable.add(name)
    nodes.sort(key=lambda node: node.name)
    return ClusterNodes(Inventory(tuple(nodes), closed), kinds, frozenset(unreachable))


def _node(each: Object, settings: KubernetesSettings) -> tuple[Node, Kind | None]:
    metadata, has = each["metadata"], each.get("status", {}).get("allocatable", {})
    labels = metadata.get("labels", {})
    cpu_milli = int(quantity(has.get("cpu", "0")) * 1000)
    memory = int(quantity(has.get("memory", "0")))
    resource, count = next(
        ((name, number) for name in settings.accelerators.split(",") if (number := int(quantity(has.get(name, "0"))))),
        ("", 0),
    )
    kind = None
    if resource:
        label = labels.get(settings.type_label, "")
        called = _type(label) or resource.partition("/")[2] or resource
        kind = Kind(resource, label)
        devices = tuple(Device(f"{resource}-{index}", called, index) for index in range(count))
    else:
        devices = tuple(Device(f"cpu{index}", CPU_SLOT, index) for index in range(cpu_milli // 1000))
    kept = {name.partition("/")[2]: labels[name] for name in _RACKS if name in labels}
    return Node(metadata["name"], devices, cpu_milli, memory, kept), kind


def affinity_of(affinity: Affinity) -> Object:
    """What a job says of nodes, as a pod's `affinity` says it."""
    found: dict[str, Any] = {}
    if affinity.require:
        terms = [{"matchExpressions": _expressions(affinity.require)}]
        found["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": terms}
    if affinity.prefer:
        most = max(one.seconds_saved for one in affinity.prefer)
        found["preferredDuringSchedulingIgnoredDuringExecution"] = [
            {
                "weight": max(1, round(_MOST_WEIGHT * one.seconds_saved / most)),
                "preference": {"matchExpressions": _expressions(one.labels)},
            }
            for one in affinity.prefer
        ]
    return {"nodeAffinity": found} if found else {}


def tolerations_of(affinity: Affinity) -> list[Object]:
    """The taints that a job tolerates, as a pod's `tolerations` say it."""
    return [
        {
            "key": one.label,
            **({"operator": "Exists"} if one.value is None else {"operator": "Equal", "value": one.value}),
            **({} if one.effect is None else {"effect": one.effect.value}),
        }
        for one in affinity.tolerate
    ]


def _expressions(labels: Labels) -> list[Object]:
    return [{"key": name, "operator": "In", "values": list(values)} for name, values in labels]


def quantity(text: str) -> Fraction:
    """`1500m`, `8Gi`, `2` or `1e3`. Raises ValueError."""
    found = re.fullmatch(r"([+-]?[\d.]+(?:[eE][+-]?\d+)?)([a-zA-Z]*)", str(text))
    if found is None or found[2] not in _SUFFIX:
        raise ValueError(f"{text!r} is no quantity")
    return Fraction(found[1]) * _SUFFIX[found[2]]


def _type(label: str) -> str:
    """`NVIDIA-A100-SXM4-80GB` as a manifest writes it."""
    return re.sub(r"[^a-z0-9.-]+", "-", label.lower()).strip("-")


def _why_closed(each: Object) -> str:
    spec = each.get("spec", {})
    if _condition(each, "Ready") != "True":
        return "not ready"
    if spec.get("unschedulable"):
        return "cordoned"
    pressed = [name for name in _PRESSURE if _condition(each, name) == "True"]
    if pressed:
        return ", ".join(pressed)
    taints = [taint["key"] for taint in spec.get("taints") or () if taint.get("effect") in ("NoSchedule", "NoExecute")]
    return f"tainted {', '.join(taints)}" if taints else ""


def _condition(each: Object, name: str) -> str:
    conditions = each.get("status", {}).get("conditions") or ()
    return next((str(one["status"]) for one in conditions if one["type"] == name), "")
