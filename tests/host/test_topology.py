"""Domains from fake sysfs trees of real machines, and what a ping-pong makes of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from shoal.host.linux import cpus
from shoal.host.linux.topology import Topology, check, decided, detect, here, same_domain
from shoal.host.types import Missing

Groups = Mapping[int, Iterable[int]]


def tree(
    root: Path,
    *,
    caches: Groups,
    nodes: Groups,
    online: Iterable[int] | None = None,
    memory_nodes: Iterable[int] = (),
    flags: str = "fpu sse2",
) -> Path:
    """A sysfs and procfs with L3 caches by id and NUMA nodes by number."""
    system = root / "sys/devices/system"
    everyone = {cpu for members in nodes.values() for cpu in members}
    write(system / "cpu/online", cpus.render(everyone if online is None else online))
    write(system / "node/online", cpus.render({*nodes, *memory_nodes}))
    for node, members in nodes.items():
        write(system / f"node/node{node}/cpulist", cpus.render(members))
    for node in memory_nodes:
        write(system / f"node/node{node}/cpulist", "")
    for cache, members in caches.items():
        for cpu in members:
            for index, level in enumerate((1, 1, 2, 3)):
                directory = system / f"cpu/cpu{cpu}/cache/index{index}"
                write(directory / "level", str(level))
                write(directory / "shared_cpu_list", cpus.render(members if level == 3 else {cpu}))
                write(directory / "id", str(cache if level == 3 else cpu))
    write(root / "proc/cpuinfo", f"processor\t: 0\nflags\t\t: {flags}\n")
    return root


def device(root: Path, address: str, *, kind: str, vendor: str = "0x10de", node: int = -1, local: str = "") -> None:
    directory = root / "sys/bus/pci/devices" / address
    write(directory / "class", kind)
    write(directory / "vendor", vendor)
    write(directory / "numa_node", str(node))
    write(directory / "local_cpulist", local)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def this_machine(root: Path) -> Path:
    return tree(root, caches={0: range(2)}, nodes={0: range(2)}, flags="fpu hypervisor sse2")


def handovers(*near: Iterable[int], busy: Iterable[int] = ()) -> Callable[[int, int], float | Missing]:
    """27 ns within each of these sets, 160 ns between, nothing with busy CPUs."""
    groups = [frozenset(group) for group in near]

    def measure(a: int, b: int) -> float | Missing:
        if {a, b} & set(busy):
            return Missing("too busy")
        return 27.0 if any({a, b} <= group for group in groups) else 160.0

    return measure


def members(topology: Topology) -> list[str]:
    return [cpus.render(domain.cpus) for domain in topology.domains]


def test_intel_sub_numa_clusters_split_a_cache(tmp_path: Path) -> None:
    """Two sockets of 8 cores, SNC2: one L3 a socket, two NUMA nodes in it; hyperthreads 16 to 31."""
    nodes = {node: [*range(4 * node, 4 * node + 4), *range(16 + 4 * node, 20 + 4 * node)] for node in range(4)}
    caches = {0: [*nodes[0], *nodes[1]], 1: [*nodes[2], *nodes[3]]}
    root = tree(tmp_path, caches=caches, nodes=nodes)
    device(root, "0000:17:00.0", kind="0x030200", node=1)
    device(root, "0000:98:00.0", kind="0x030200", local=cpus.render(caches[1]))
    topology = detect(root)
    assert members(topology) == ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"]
    assert [sorted(domain.nodes) for domain in topology.domains] == [[0], [1], [2], [3]]
    assert dict(topology.caches) == {0: 0, 1: 0, 2: 1, 3: 1}
    assert [domain.accelerators for domain in topology.domains] == [
        (), ("0000:17:00.0",), ("0000:98:00.0",), ("0000:98:00.0",),
    ]  # fmt: skip
    assert not topology.virtual


def test_amd_core_complexes_within_numa_nodes(tmp_path: Path) -> None:
    """NPS4: four nodes of two core complexes of four cores."""
    caches = {cache: range(4 * cache, 4 * cache + 4) for cache in range(8)}
    nodes = {node: range(8 * node, 8 * node + 8) for node in range(4)}
    topology = detect(tree(tmp_path, caches=caches, nodes=nodes))
    assert members(topology) == [f"{4 * cache}-{4 * cache + 3}" for cache in range(8)]
    assert [next(iter(domain.nodes)) for domain in topology.domains] == [0, 0, 1, 1, 2, 2, 3, 3]
    assert topology.domain_of(13) == topology.domains[3]
    assert topology.domain_of(99) is None


def test_offline_cpus_and_nodes_of_memory_only_are_left_out(tmp_path: Path) -> None:
    root = tree(
        tmp_path, caches={0: range(4), 1: range(4, 8)}, nodes={0: range(8)}, online=[0, 1, 4, 5, 6], memory_nodes=[1]
    )
    topology = detect(root)
    assert members(topology) == ["0-1", "4-6"]
    assert {node for domain in topology.domains for node in domain.nodes} == {0}


def test_without_an_l3_the_numa_node_is_the_domain(tmp_path: Path) -> None:
    topology = detect(tree(tmp_path, caches={}, nodes={0: range(2), 1: range(2, 4)}))
    assert members(topology) == ["0-1", "2-3"]
    assert topology.caches == {}
    assert "nothing of an L3" in topology.source


def test_an_empty_sysfs_is_one_domain_of_one_cpu(tmp_path: Path) -> None:
    assert members(detect(tmp_path)) == ["0"]


def test_what_counts_as_an_accelerator(tmp_path: Path) -> None:
    root = tree(tmp_path, caches={0: range(2)}, nodes={0: range(2)})
    device(root, "0000:01:00.0", kind="0x030000", vendor="0x10de")
    device(root, "0000:02:00.0", kind="0x030000", vendor="0x1a03")  # the management controller's display
    device(root, "0000:03:00.0", kind="0x120000", vendor="0x1da3")
    device(root, "0000:04:00.0", kind="0x020000", vendor="0x8086")
    assert detect(root).domains[0].accelerators == ("0000:01:00.0", "0000:03:00.0")


def test_a_ping_pong_splits_what_the_hypervisor_made_up(tmp_path: Path) -> None:
    topology = here(this_machine(tmp_path), measure=handovers([0], [1]))
    assert members(topology) == ["0", "1"]
    assert dict(topology.caches) == {0: 0, 1: 0}
    assert topology.disagreements == ("sysfs has CPUs 0-1 in one domain, measured they are 0 | 1",)


def test_a_ping_pong_agrees(tmp_path: Path) -> None:
    topology = here(this_machine(tmp_path), measure=handovers([0, 1]))
    assert members(topology) == ["0-1"]
    assert topology.disagreements == ()
    assert "checked" in topology.source


def test_a_ping_pong_merges_caches_that_are_one(tmp_path: Path) -> None:
    root = tree(tmp_path, caches={cpu: [cpu] for cpu in range(4)}, nodes={0: range(4)}, flags="hypervisor sse2")
    topology = here(root, measure=handovers([0, 1], [2, 3]))
    assert members(topology) == ["0-1", "2-3"]
    assert [domain.id for domain in topology.domains] == [0, 1]
    assert len(topology.disagreements) == 2


def test_cpus_interleaved_by_the_hypervisor_are_sorted_out(tmp_path: Path) -> None:
    root = tree(tmp_path, caches={0: range(8)}, nodes={0: range(8)}, flags="hypervisor sse2")
    assert members(here(root, measure=handovers([0, 2, 4, 6], [1, 3, 5, 7]))) == ["0,2,4,6", "1,3,5,7"]


def test_what_cannot_be_measured_stays_as_sysfs_has_it(tmp_path: Path) -> None:
    root = tree(tmp_path, caches={0: range(4)}, nodes={0: range(4)}, flags="hypervisor sse2")
    assert members(here(root, measure=handovers([0, 1], [2, 3], busy=[3]))) == ["0-1,3", "2"]
    assert members(here(root, measure=lambda _a, _b: 80.0)) == ["0-3"]


def test_numa_nodes_are_never_merged(tmp_path: Path) -> None:
    root = tree(tmp_path, caches={0: [0, 1], 1: [2, 3]}, nodes={0: [0, 1], 1: [2, 3]}, flags="hypervisor sse2")
    assert members(here(root, measure=handovers(range(4)))) == ["0-1", "2-3"]


def test_bare_metal_is_not_measured(tmp_path: Path) -> None:
    def never(_a: int, _b: int) -> float | Missing:
        raise AssertionError("sysfs is right on bare metal")

    topology = here(tree(tmp_path, caches={0: range(4)}, nodes={0: range(4)}), measure=never)
    assert members(topology) == ["0-3"]


def test_check_accounts_for_every_cpu_once(tmp_path: Path) -> None:
    root = tree(tmp_path, caches={0: range(8), 1: range(8, 16)}, nodes={0: range(16)}, flags="hypervisor x")
    topology = check(detect(root), handovers([0, 9, 3], [1, 2], [4, 15], busy=[7, 8]))
    listed = sorted(cpu for domain in topology.domains for cpu in domain.cpus)
    assert listed == list(range(16))


@pytest.mark.parametrize(
    ("handover", "answer"), [(26.0, True), (161.0, False), (80.0, None), (2050.0, None), (Missing("busy"), None)]
)
def test_same_domain(handover: float | Missing, answer: bool | None) -> None:
    assert decided(handover) is answer
    assert same_domain(0, 1, measure=lambda _a, _b: handover) is answer


def test_this_machine_has_domains() -> None:
    topology = here()
    assert topology.domains
    listed = [cpu for domain in topology.domains for cpu in domain.cpus]
    assert len(listed) == len(set(listed))
