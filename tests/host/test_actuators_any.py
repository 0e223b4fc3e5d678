"""Whatever settings groups are brought to, in whatever order, while processes come and go, on whatever machine: an
orderly end and a crash at any moment both leave everything as it was found."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import PriorityClass
from shoal.host import actuators
from shoal.host.actuators import Unhindered
from shoal.host.linux.members import Members, Membership
from shoal.host.types import Group, Setting
from shoal.host.undo.write_ahead_log import play_back
from tests.host.fake import AMD, RESCTRL_AMD, RESCTRL_INTEL, FakeHost, FakeProcess, Machine
from tests.host.kit import write_ahead_log

TWO_CACHES = {0: (frozenset({0, 1}), 0), 1: (frozenset({2, 3}), 1)}
MACHINES = (
    Machine(cgroups="v1", l3s=TWO_CACHES),
    Machine(cgroups="v2", l3s=TWO_CACHES, resctrl=RESCTRL_INTEL, msr=True),
    Machine(cgroups="hybrid", l3s=TWO_CACHES, msr=True),
    Machine(cgroups="v2", processor=AMD, resctrl=RESCTRL_AMD, l3s=TWO_CACHES, msr=True),
)
GROUPS = {
    "whole": Members(cgroup="whole"),
    "labelled": Members(label="TEAM=vision"),
}

BARE = frozenset({"placement-affinity", "cores-affinity", "quota", "stop-signal"})
"""Mechanisms that work process by process, but for the quota."""
SETTINGS = st.builds(
    Setting,
    share=st.sampled_from([0.02, 0.1, 0.35, 1.0]),
    prefetching=st.sampled_from([None, 0, 2]),
    cores=st.sampled_from([None, 1, 3]),
    domains=st.sampled_from([None, frozenset({0}), frozenset({1}), frozenset({0, 1})]),
    frozen=st.booleans(),
    weight=st.sampled_from([None, 2.0, 100.0]),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), st.sampled_from(sorted(GROUPS)), SETTINGS),
        st.tuples(st.just("start"), st.sampled_from(["whole", "whole/inner", "", "session"]), st.booleans()),
        st.tuples(st.just("fork"), st.integers(0, 20), st.none()),
        st.tuples(st.just("end"), st.integers(0, 20), st.none()),
        st.tuples(st.just("release"), st.sampled_from(sorted(GROUPS)), st.none()),
    ),
    max_size=14,
)


@settings(max_examples=150, deadline=None)
@given(machine=st.sampled_from(MACHINES), allow=st.sampled_from([None, BARE]), steps=STEPS, crash=st.booleans())
def test_everything_is_left_as_it_was_found(
    tmp_path_factory: pytest.TempPathFactory,
    machine: Machine,
    allow: frozenset[str] | None,
    steps: list[tuple[str, object, object]],
    crash: bool,
) -> None:
    host = FakeHost(machine)
    host.group("whole/inner")
    host.group("session")
    before = [dict(group.values) for one in host.hierarchies for group in one.root.below()]
    homes: dict[int, str] = {}

    def born(process: FakeProcess, parent: FakeProcess | None = None) -> None:
        homes[process.pid] = host.cgroup_lines(process) if parent is None else homes[parent.pid]

    born(host.start(cgroup="whole"))
    born(host.start(cgroup="session", environ={"TEAM": "vision"}))
    wal = write_ahead_log(tmp_path_factory.mktemp("any"), host)
    groups = {name: (Group(name, PriorityClass.BEST_EFFORT), members) for name, members in GROUPS.items()}
    membership = Membership(groups, kernel=host)
    chain = actuators.standard(
        wal,
        {domain.id: domain for domain in host.domains()},
        unhindered=lambda _: Unhindered(2.0, 20e9),
        kernel=host,
        allow=allow,
    )
    last: dict[str, Setting] = {}

    def tick(name: str) -> None:
        membership.look_again()
        chain.apply(groups[name][0], membership.refresh(host.now)[name], last[name], host.now)

    for kind, what, how in steps:
        living = sorted(host.processes)
        if kind == "set":
            assert isinstance(what, str)
            assert isinstance(how, Setting)
            last[what] = how
            tick(what)
        elif kind == "start":
            environ = {"TEAM": "vision"} if how and "whole" not in str(what) else {}  # groups do not overlap
            born(host.start(cgroup=str(what), environ=environ))
        elif kind == "release":
            chain.release(str(what))
            last.pop(str(what), None)
        elif living:
            assert isinstance(what, int)
            process = host.processes[living[what % len(living)]]
            if kind == "fork":
                born(host.start(ppid=process.pid, environ=dict(process.environ), user_cpus=process.user_cpus), process)
            else:
                for name in last:  # an orphan that no tick saw keeps the affinity it was born with
                    tick(name)
                host.end(process)
        host.advance(2.0)
    if crash:
        wal.abandon()
        problems = play_back(wal.path, kernel=host, sleep=lambda _: None)
    else:
        chain.restore()
        assert len(wal) == 0
        problems = wal.close()
    assert problems == ()
    assert [dict(group.values) for one in host.hierarchies for group in one.root.below()] == before
    for process in host.processes.values():
        assert not process.frozen()
        assert process.resctrl == ""
        assert host.cgroup_lines(process) == homes[process.pid]
        assert host.allowed(process) == host.cpus
    assert all(value == 0 for registers in host.msr.values() for value in registers.values())
    if host.resctrl is not None:
        assert list(host.resctrl.controls) == [""]
