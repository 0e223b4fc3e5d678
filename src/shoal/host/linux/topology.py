"""Memory domains of a machine: CPUs that share a last-level cache and a NUMA node, and the accelerators at home there.

The kernel says which in sysfs. In a virtual machine it repeats what the hypervisor made up, so there a core-to-core
ping-pong has the last word: it tells in milliseconds whether two CPUs share a cache *now* (a hypervisor may move them).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from shoal.host.linux import cpus
from shoal.host.linux.native import load
from shoal.host.types import Domain, Missing

SAME_NS = 60.0
DIFFERENT_NS = 100.0
BUSY_NS = 1000.0
"""A handover within a shared cache took 25 to 28 ns, between two 155 to 170 (Zen 4 under Firecracker); what lies
between these bounds is not decided."""
_SHORT_ROUNDS = 300
"""16 to 100 us: they pass within one window of a paced core."""
_ACCELERATORS = ("0x0302", "0x1200")
"""PCI classes: 3D controllers and processing accelerators. Display controllers (0x0300) count if they compute:"""
_COMPUTING_DISPLAYS = {"0x10de", "0x1002"}  # NVIDIA, AMD

Measure = Callable[[int, int], float | Missing]
"""Nanoseconds of a handover between two CPUs."""


@dataclass(frozen=True, slots=True)
class Topology:
    """`domains` by their lowest CPU; `caches` gives each domain's L3 id, as resctrl numbers them. `source` says where
    the domains come from, `disagreements` what was measured to be otherwise than sysfs says, `virtual` that this is
    a virtual machine, where sysfs needs checking."""

    domains: tuple[Domain, ...]
    caches: Mapping[int, int]
    source: str
    virtual: bool = False
    disagreements: tuple[str, ...] = ()

    def domain_of(self, cpu: int) -> Domain | None:
        return next((domain for domain in self.domains if cpu in domain.cpus), None)


def detect(root: Path = Path("/")) -> Topology:
    """As sysfs and procfs below `root` have it. An accelerator is at home in each domain with a CPU that is as near to
    it as any."""
    system = root / "sys/devices/system"
    online = cpus.parse(_text(system / "cpu/online") or "0")
    nodes = _nodes(system / "node") or {0: online}
    node_of = {cpu: node for node, members in nodes.items() for cpu in members}
    groups: dict[tuple[frozenset[int], int], int | None] = {}
    seen: set[int] = set()
    for cpu in sorted(online):
        if cpu in seen:
            continue
        shared, cache = _last_level(system / f"cpu/cpu{cpu}", cpu, online, nodes.get(node_of.get(cpu, 0), online))
        for node in {node_of.get(one, 0) for one in shared}:
            groups[frozenset(one for one in shared if node_of.get(one, 0) == node), node] = cache
        seen |= shared
    near = _accelerators(root / "sys/bus/pci/devices", nodes, online)
    domains, caches = [], {}
    for number, (members, node) in enumerate(sorted(groups, key=lambda group: min(group[0]))):
        at_home = tuple(sorted(name for name, around in near.items() if around & members))
        domains.append(Domain(number, members, frozenset({node}), at_home))
        cache = groups[members, node]
        if cache is not None:
            caches[number] = cache
    source = "sysfs: L3 and NUMA node" if caches else "sysfs: NUMA node (it tells nothing of an L3)"
    return Topology(tuple(domains), caches, source, virtual=_virtual(root))


def check(topology: Topology, measure: Measure) -> Topology:
    """The topology as a ping-pong finds it: domains that turn out to be several are split, those that turn out to be
    one are merged, and each difference is named. CPUs that could not be measured stay as sysfs has them.

    Each CPU is measured against one CPU of each domain found so far in its sysfs domain, and domains against each
    other by one CPU each. On bare metal sysfs is right, and on some processors a handover between domains is as fast
    as within: check only what is `virtual`.
    """
    said: list[str] = []
    parts: list[Domain] = []
    for domain in topology.domains:
        split = _split(domain, measure)
        if len(split) > 1:
            names = " | ".join(cpus.render(part) for part in split)
            said.append(f"sysfs has CPUs {cpus.render(domain.cpus)} in one domain, measured they are {names}")
        parts += [replace(domain, cpus=part) for part in split]
    merged: list[tuple[Domain, Domain]] = []  # as it is now, as it was when first seen
    for part in parts:
        same = next((at for at, (_, first) in enumerate(merged) if _joined(first, part, topology, measure)), None)
        if same is None:
            merged.append((part, part))
            continue
        found, first = merged[same]
        both = f"{cpus.render(found.cpus)} and {cpus.render(part.cpus)}"
        said.append(f"sysfs has CPUs {both} in two domains, measured they are one")
        merged[same] = (_union(found, part), first)
    final = sorted((found for found, _ in merged), key=lambda domain: min(domain.cpus))
    caches = {number: topology.caches[one.id] for number, one in enumerate(final) if one.id in topology.caches}
    return replace(
        topology,
        domains=tuple(replace(domain, id=number) for number, domain in enumerate(final)),
        caches=caches,
        source=f"{topology.source}, checked by ping-pong",
        disagreements=tuple(said),
    )


def here(root: Path = Path("/"), *, measure: Measure | None = None) -> Topology:
    """This machine's domains: as sysfs says, and checked where that is made up. Takes 1 to 7 ms per pair measured."""
    topology = detect(root)
    if not topology.virtual or len(set().union(*(domain.cpus for domain in topology.domains))) < 2:
        return topology
    if measure is None:
        native = load()
        if isinstance(native, Missing):
            why = f"not checked, though this is a virtual machine: {native.reason}"
            return replace(topology, disagreements=(why,))
        measure = native.ping_pong
    return check(topology, measure)


_ONLINE = Path("/sys/devices/system/cpu/online")


def again(known: Topology, measure: Measure | None = None) -> Topology:
    """This virtual machine's domains now; of CPUs that are too busy to be measured what was known is believed. Made to
    be repeated while others work: under a millisecond of each pair of CPUs, 10 where one of them is busy."""
    if measure is None:
        native = load()
        if isinstance(native, Missing):
            return known
        measure = functools.partial(native.ping_pong, rounds=_SHORT_ROUNDS, repeats=5, limit_s=0.01)
    ask = measure

    def believed(cpu_a: int, cpu_b: int) -> float | Missing:
        handover_ns = ask(cpu_a, cpu_b)
        if decided(handover_ns) is not None:
            return handover_ns
        return 0.0 if known.domain_of(cpu_a) == known.domain_of(cpu_b) else 2 * DIFFERENT_NS

    return check(_by_sysfs(_text(_ONLINE) or ""), believed)


@functools.lru_cache(maxsize=1)
def _by_sysfs(online: str) -> Topology:  # noqa: ARG001 - what changes while a machine runs
    return detect()


def same_domain(cpu_a: int, cpu_b: int, *, measure: Measure | None = None) -> bool | None:
    """Whether two CPUs share a cache at this moment, measured (1 to 7 ms); None when it cannot be told."""
    if measure is None:
        native = load()
        return None if isinstance(native, Missing) else decided(native.ping_pong(cpu_a, cpu_b))
    return decided(measure(cpu_a, cpu_b))


def decided(handover_ns: float | Missing) -> bool | None:
    """Same domain or not, by the time of a handover; None between the bounds, when it is missing, and when it took so
    long that one of the CPUs did other work meanwhile (one that is paced: 1.7 to 2.1 us, whatever it shares)."""
    if isinstance(handover_ns, Missing) or SAME_NS <= handover_ns <= DIFFERENT_NS or handover_ns > BUSY_NS:
        return None
    return handover_ns < SAME_NS


def _split(domain: Domain, measure: Measure) -> list[frozenset[int]]:
    """Each CPU joins the first part whose lowest CPU it is near to; undecided ones stay in the first part."""
    parts: list[list[int]] = []
    undecided: list[int] = []
    for cpu in sorted(domain.cpus):
        answers = []
        for part in parts:
            answers.append(decided(measure(part[0], cpu)))
            if answers[-1]:
                part.append(cpu)
                break
        else:
            if None in answers:
                undecided.append(cpu)
            else:
                parts.append([cpu])
    parts[0] += undecided
    return [frozenset(part) for part in parts]


def _joined(one: Domain, other: Domain, topology: Topology, measure: Measure) -> bool:
    """Whether two parts of different sysfs domains are one. Different NUMA nodes are never merged: their memory is
    apart, however near their caches are."""
    if one.id == other.id or one.nodes != other.nodes or not topology.virtual:
        return False
    return decided(measure(min(one.cpus), min(other.cpus))) is True


def _union(one: Domain, other: Domain) -> Domain:
    accelerators = tuple(sorted({*one.accelerators, *other.accelerators}))
    return replace(one, cpus=one.cpus | other.cpus, accelerators=accelerators)


# --- sysfs ---


def _last_level(
    directory: Path, cpu: int, online: frozenset[int], node: frozenset[int]
) -> tuple[frozenset[int], int | None]:
    """The CPUs that share this one's L3, and its id; its node's, or its own, where sysfs knows of no L3."""
    for number in itertools.count():
        index = directory / f"cache/index{number}"
        level = _text(index / "level")
        if level is None:
            break
        if level == "3":
            shared = cpus.parse(_text(index / "shared_cpu_list") or str(cpu)) & online
            identity = _text(index / "id")
            return shared | {cpu}, int(identity) if identity is not None else None
    return node | {cpu}, None


def _nodes(directory: Path) -> dict[int, frozenset[int]]:
    """The CPUs of each NUMA node. Nodes of memory only have none, and are left out."""
    nodes = {}
    for number in cpus.parse(_text(directory / "online") or ""):
        members = cpus.parse(_text(directory / f"node{number}/cpulist") or "")
        if members:
            nodes[number] = members
    return nodes


def _accelerators(
    devices: Path, nodes: Mapping[int, frozenset[int]], online: frozenset[int]
) -> dict[str, frozenset[int]]:
    """The CPUs near each accelerator, by its PCI address."""
    found = {}
    for device in sorted(devices.iterdir()) if devices.is_dir() else ():
        kind = (_text(device / "class") or "")[:6]
        computes = kind == "0x0300" and _text(device / "vendor") in _COMPUTING_DISPLAYS
        if kind not in _ACCELERATORS and not computes:
            continue
        node = int(_text(device / "numa_node") or -1)
        local = cpus.parse(_text(device / "local_cpulist") or "") & online
        found[device.name] = nodes.get(node) or local or online
    return found


def _virtual(root: Path) -> bool:
    flags: Iterable[str] = (_text(root / "proc/cpuinfo") or "").splitlines()
    return any(line.startswith("flags") and " hypervisor" in line for line in flags)


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
