"""What the guard says is in force is what the machine shows, whatever others do to it between two ticks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import PriorityClass
from shoal.host import actuators
from shoal.host.actuators import Prefetchers, Reconciler, Unhindered
from shoal.host.linux import cpus
from shoal.host.linux.members import Members, Membership
from shoal.host.types import Applied, Group, Setting
from tests.host.fake import RESCTRL_INTEL, FakeHost, FakeProcess, Machine
from tests.host.fake.cgroups import Group as Cgroup
from tests.host.kit import found, write_ahead_log

TWO_CACHES = {0: (frozenset({0, 1}), 0), 1: (frozenset({2, 3}), 1)}
MACHINES = {
    "v1": Machine(cgroups="v1", l3s=TWO_CACHES),
    "v2": Machine(cgroups="v2", l3s=TWO_CACHES),
    "hybrid": Machine(cgroups="hybrid", l3s=TWO_CACHES, msr=True),
    "none": Machine(cgroups="none", l3s=TWO_CACHES),
    "resctrl": Machine(cgroups="v2", l3s=TWO_CACHES, resctrl=RESCTRL_INTEL, msr=True),
}
FEED = Group("feed", PriorityClass.GUARANTEED, cpus=1.0)
FLOOD = Group("flood", PriorityClass.BEST_EFFORT)
WHOLE = Group("whole", PriorityClass.BEST_EFFORT)


@dataclass
class World:
    """Three groups: one that shares its cgroup, one that has its own, and guaranteed work."""

    host: FakeHost
    reconciler: Reconciler
    membership: Membership
    members: dict[str, list[FakeProcess]]

    def tick(self, plan: Mapping[str, Setting]) -> Applied:
        def look() -> Mapping[str, object]:
            self.membership.look_again()
            return self.membership.refresh(self.host.now)

        groups = {name: group for name, (group, _) in self.membership.groups.items()}
        self.host.advance(0.1)
        return self.reconciler.apply(groups, plan, look(), self.host.now, look_again=look)  # type: ignore[arg-type]

    def shown(self, name: str, told: Setting) -> Setting:
        """The part of a setting that the machine does not show."""
        host, missing = self.host, Setting()
        for process in self.members[name]:
            limit = min((one.cpu_limit() for one in process.cgroups.values()), default=float("inf"))
            allocated = host.resctrl is not None and process.resctrl == f"shoal-guard-{name}"
            if told.share < 1 and not allocated and limit > 2 * told.share + 1e-6:
                missing = Setting(share=told.share)
            if told.share < 1 and allocated:
                line = host.read(f"/sys/fs/resctrl/{process.resctrl}/schemata")
                assert f"MB:0={round(told.share * 100):4d};" in line
            if told.prefetching is not None:
                off = sum(one[host.prefetch_register] != 0 for one in host.msr.values())
                assert off >= len(host.cpus) - told.prefetching
            assert told.cpus is None or host.allowed(process) <= told.cpus
            assert told.cores is None or len(host.allowed(process)) <= told.cores
            assert told.domains is None or host.allowed(process) <= _cpus(host, told.domains)
            assert not told.frozen or process.frozen()
            if told.weight is not None:
                assert max(_weight(one) for one in process.cgroups.values()) >= told.weight
        return missing


def _cpus(host: FakeHost, domains: frozenset[int]) -> frozenset[int]:
    return frozenset[int]().union(*(one.cpus for one in host.domains() if one.id in domains))


def _weight(group: Cgroup) -> float:
    return max(int(group.values["cpu.shares"]) / 1024, int(group.values["cpu.weight"]) / 100)


def world(path: Path, machine: Machine, allow: frozenset[str] | None = None) -> World:
    host = FakeHost(machine)
    host.group("whole")
    members = {
        "feed": [host.start(environ={"ROLE": "feed"})],
        "flood": [host.start(environ={"ROLE": "flood"}, threads=2), host.start(environ={"ROLE": "flood"})],
        "whole": [host.start(cgroup="whole", environ={"ROLE": "whole"})],
    }
    host.start()  # of no group
    wal = write_ahead_log(path, host)
    domains = {domain.id: domain for domain in host.domains()}
    chain = actuators.standard(
        wal, domains, unhindered=lambda _: Unhindered(2.0, 20e9), kernel=host, allow=allow
    )  # fmt: skip
    groups = {one.name: (one, Members(label=f"ROLE={one.name}")) for one in (FEED, FLOOD, WHOLE)}
    return World(host, Reconciler(chain, wal), Membership(groups, kernel=host), members)


# --- what others do ---


def _ours(host: FakeHost) -> list[tuple[str, Cgroup]]:
    return [
        (f"{hierarchy.top}{group.path()}", group)
        for hierarchy in host.hierarchies for group in hierarchy.root.below() if group.parent is not None
    ]  # fmt: skip


def _remove(host: FakeHost, at: int) -> None:
    """A directory, its processes to where it was, as anybody may who has the right."""
    found = [one for one in _ours(host) if one[1].name.startswith("shoal-guard-")]
    if found:
        path, group = found[at % len(found)]
        for pid in group.own():
            host.write(f"{path.rpartition('/')[0]}/cgroup.procs", str(pid))
        host.rmdir(path)


def _take_out(host: FakeHost, at: int) -> None:
    inside = [(path, group) for path, group in _ours(host) if group.own()]
    if inside:
        path, group = inside[at % len(inside)]
        host.write(f"{path.rpartition('/')[0]}/cgroup.procs", str(group.own()[0]))


def _write(host: FakeHost, at: int) -> None:
    """What lifts a limit, in some file."""
    found = [
        (f"{path}/{file}", value)
        for path, group in _ours(host)
        for file, value in (
            ("cpu.cfs_quota_us", "-1"), ("cpu.cfs_period_us", "50000"), ("cpu.max", "max 100000"),
            ("cpu.shares", "2"), ("cpu.weight", "1"), ("cpuset.cpus", cpus.render(host.cpus)),
            ("freezer.state", "THAWED"), ("cgroup.freeze", "0"),
        )
        if file in group.files
    ]  # fmt: skip
    if found:
        host.write(*found[at % len(found)])


def _let_run(host: FakeHost, at: int) -> None:
    for process in sorted(host.processes.values(), key=lambda one: one.pid)[at % 2 :]:
        process.stopped, process.user_cpus = False, host.cpus


def _register(host: FakeHost, at: int) -> None:
    for registers in list(host.msr.values())[at % 2 :]:
        registers[host.prefetch_register] = 0


def _resctrl(host: FakeHost, at: int) -> None:
    path = "/sys/fs/resctrl/shoal-guard-flood"
    if host.resctrl is not None and host.exists(path):
        if at % 3 == 0:
            host.write(f"{path}/schemata", "MB:0=100;1=100\n")
        elif at % 3 == 1:
            host.rmdir(path)
        else:
            for one in host.processes.values():
                one.resctrl = ""


INTERFERENCE: tuple[Callable[[FakeHost, int], None], ...] = (
    _remove, _take_out, _write, _let_run, _register, _resctrl,
)  # fmt: skip
BARE = frozenset({"cpus-affinity", "cores-affinity", "placement-affinity", "quota", "stop-signal"})
LIMITS = st.builds(
    Setting,
    share=st.sampled_from([0.1, 0.35, 1.0]),
    cores=st.sampled_from([None, 1]),
    cpus=st.sampled_from([None, frozenset({1, 2, 3})]),
    frozen=st.booleans(),
    prefetching=st.sampled_from([None, 0]),
)
PLANS = st.fixed_dictionaries(
    {"flood": LIMITS, "whole": LIMITS, "feed": st.builds(Setting, weight=st.sampled_from([None, 20.0]))}
)
STEPS = st.lists(
    st.tuples(
        st.none() | PLANS,  # mostly the plan stays: what was remembered of it must not be believed
        st.lists(st.tuples(st.sampled_from(INTERFERENCE), st.integers(0, 30)), max_size=3),
    ),
    max_size=6,
)


@settings(max_examples=200, deadline=None)
@given(machine=st.sampled_from(sorted(MACHINES)), allow=st.sampled_from([None, BARE]), plan=PLANS, steps=STEPS)
def test_no_limit_is_claimed_that_the_machine_does_not_show(
    tmp_path_factory: pytest.TempPathFactory,
    machine: str,
    allow: frozenset[str] | None,
    plan: Mapping[str, Setting],
    steps: list[tuple[Mapping[str, Setting] | None, list[tuple[Callable[[FakeHost, int], None], int]]]],
) -> None:
    made = world(tmp_path_factory.mktemp("any"), MACHINES[machine], allow)
    made.tick(plan)
    for another, interference in steps:
        plan = another or plan
        for act, at in interference:
            try:
                act(made.host, at)
            except OSError:
                continue  # the kernel refused it
        told = made.tick(plan)
        for name, limit in told.settings.items():
            assert made.shown(name, limit) == Setting()


# --- what is said of it ---


@pytest.fixture(params=["v1", "v2", "hybrid"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    return world(tmp_path, MACHINES[request.param])


HALF = {"flood": Setting(share=0.5)}


def limited(made: World) -> list[float]:
    return [min(one.cpu_limit() for one in process.cgroups.values()) for process in made.members["flood"]]


@pytest.mark.parametrize("act", [_remove, _take_out, _write])
def test_a_limit_that_is_gone_is_set_again_and_told_once(made: World, act: Callable[[FakeHost, int], None]) -> None:
    assert made.tick(HALF).errors == ()
    assert limited(made) == [1.0, 1.0]
    for at in range(60):
        act(made.host, at)
        if limited(made) != [1.0, 1.0]:
            break
    assert limited(made) != [1.0, 1.0]
    told = made.tick(HALF)
    assert limited(made) == [1.0, 1.0]
    assert told.settings["flood"] == Setting(share=0.5)
    assert len(told.errors) == 1
    assert told.errors[0].startswith("flood: ")
    assert "again" in told.errors[0] or "back" in told.errors[0]
    assert made.tick(HALF).errors == (), "no more once it stands"


def test_a_limit_that_cannot_be_set_again_is_not_claimed(made: World) -> None:
    made.tick(HALF)
    _remove(made.host, 0)
    for process in made.members["flood"]:
        process.real_time = True  # cannot join a cgroup of the cpu controller
    told = made.tick(HALF)
    assert told.settings["flood"].share == 1.0
    assert "flood" not in told.by
    assert any("cannot be moved" in one for one in told.errors)
    assert made.tick(HALF).settings["flood"].share == 1.0


def test_what_somebody_wrote_meanwhile_comes_back_in_the_end(made: World) -> None:
    path = next(path for path, group in _ours(made.host) if path.endswith("/whole") and "cpu.stat" in group.files)
    file, theirs, ours = (
        ("cpu.max", "150000 100000", "100000 100000") if made.host.exists(f"{path}/cpu.max")
        else ("cpu.cfs_quota_us", "150000", "100000")
    )  # fmt: skip
    plan = {"whole": Setting(share=0.5)}
    made.tick(plan)
    assert made.host.read(f"{path}/{file}").strip() == ours
    made.host.write(f"{path}/{file}", theirs)
    assert "set again" in made.tick(plan).errors[0]
    assert made.host.read(f"{path}/{file}").strip() == ours
    made.tick({})
    assert made.host.read(f"{path}/{file}").strip() == theirs


def test_a_directory_stays_while_another_mechanism_limits_there(tmp_path: Path) -> None:
    """In version 2 all of them share it."""
    made = world(tmp_path, MACHINES["v2"])
    made.tick({"flood": Setting(share=0.5, cpus=frozenset({1}), frozen=True)})
    told = made.tick({"flood": Setting(cpus=frozenset({1}), frozen=True)})
    assert told.errors == ()
    assert all(one.frozen() and made.host.allowed(one) == {1} for one in made.members["flood"])
    made.membership.groups = {}
    made.tick({})
    assert not [path for path, group in _ours(made.host) if group.name.startswith("shoal-guard-")]


def test_nothing_is_written_while_all_stands(made: World) -> None:
    plan = {"flood": Setting(share=0.5, cpus=frozenset({1}), frozen=True), "feed": Setting(weight=20.0)}
    made.tick(plan)
    made.host.writes.clear()
    made.tick(plan)
    assert made.host.writes == []


def test_a_program_that_binds_itself_more_tightly_is_left_so(tmp_path: Path) -> None:
    made = world(tmp_path, MACHINES["none"], BARE)
    plan = {"flood": Setting(cpus=frozenset({1, 2}))}
    made.tick(plan)
    process = made.members["flood"][1]
    process.user_cpus = frozenset({1})
    assert made.tick(plan).errors == ()
    assert made.host.allowed(process) == {1}
    process.user_cpus = frozenset({0, 1})
    assert "bound again" in made.tick(plan).errors[0]
    assert made.host.allowed(process) == {1, 2}


def test_prefetchers_that_somebody_turned_on_go_off_again(tmp_path: Path) -> None:
    host = FakeHost(Machine(msr=True))
    wal = write_ahead_log(tmp_path, host)
    members, prefetchers = found(host, host.start().pid), Prefetchers(wal, kernel=host)
    prefetchers.apply(FLOOD, members, Setting(prefetching=2))
    host.msr[3][host.prefetch_register] = 0
    prefetchers.apply(FLOOD, members, Setting(prefetching=2))
    assert host.msr[3][host.prefetch_register] == 0b1111
    assert len(wal.take_repairs()) == 1
    prefetchers.restore()
    assert not any(one[host.prefetch_register] for one in host.msr.values())
