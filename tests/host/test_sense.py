"""From sensors to a snapshot, from a setting to mechanisms, and both in a closed loop on a machine with a model."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from shoal.core import Capability, Invalid, PriorityClass, Unavailable
from shoal.host import actuators, sensors
from shoal.host.actuators import ActuatorChain, Unhindered
from shoal.host.guard.loop import aged
from shoal.host.linux.fs import LINUX, owners_of
from shoal.host.linux.members import FOLLOW_S, SCAN_S, UNBORN_S, Found, Members, Membership
from shoal.host.sensors import Key, Quantity, Scope
from shoal.host.sensors.senses import Sensed, Senses
from shoal.host.types import UNLIMITED, Control, Group, Missing, Reading, Setting
from shoal.host.undo.write_ahead_log import WriteAheadLog
from shoal.ring import Ring
from tests.host.fake import CAPACITY, RESCTRL_INTEL, FakeHost, Machine
from tests.host.kit import BATCH, OTHER, SERVICE, RealKit, until, write_ahead_log

TWO_CACHES = {0: (frozenset({0, 1}), 0), 1: (frozenset({2, 3}), 1)}


# --- membership ---


def members(host: FakeHost, now: float = 0.0, **groups: Members) -> dict[str, Found]:
    classes = {"service": SERVICE}
    return dict(
        Membership({name: (classes.get(name, BATCH), own) for name, own in groups.items()}, kernel=host).refresh(now)
    )


def pids(found: Found) -> set[int]:
    return {process.pid for process in found.processes}


@pytest.mark.parametrize("layout", ["v1", "v2", "hybrid"])
@pytest.mark.parametrize("named", ["batch", "/batch/", "/sys/fs/cgroup{}/batch"])
def test_a_cgroup_is_found_by_path_or_directory(layout: str, named: str) -> None:
    host = FakeHost(Machine(cgroups=layout))
    host.group("batch/inner")
    inside, _ = host.start(cgroup="batch/inner"), host.start()
    found = members(host, batch=Members(cgroup=named.format("" if layout == "v2" else "/cpu")))["batch"]
    assert pids(found) == {inside.pid}
    assert found.cgroup == "batch"
    assert found.cpus == host.cpus


def test_pids_take_their_descendants_along() -> None:
    host = FakeHost()
    parent = host.start()
    child = host.start(ppid=parent.pid)
    grandchild, _ = host.start(ppid=child.pid), host.start()
    assert pids(members(host, batch=Members(pids=frozenset({parent.pid})))["batch"]) == {
        parent.pid,
        child.pid,
        grandchild.pid,
    }


def test_a_label_is_found_in_environments() -> None:
    host = FakeHost()
    labelled = host.start(environ={"PATH": "/bin", "TEAM": "vision"})
    host.start(environ={"TEAMS": "vision"})
    host.start(environ={"X": "TEAM=vision"})
    assert pids(members(host, batch=Members(label="TEAM=vision"))["batch"]) == {labelled.pid}


NOBODY_USER = 65534


@pytest.mark.parametrize(
    ("uids", "owners", "counts"),
    [
        ((0, 0, 0), None, True),
        ((NOBODY_USER,) * 3, None, False),
        ((NOBODY_USER, 0, 0), None, False),
        ((0, NOBODY_USER, 0), None, False),
        ((0, 0, NOBODY_USER), None, False),
        ((NOBODY_USER,) * 3, frozenset({NOBODY_USER}), True),
        ((0, 0, 0), frozenset({NOBODY_USER}), False),
    ],
)
def test_a_label_counts_for_processes_of_its_owners_only(
    uids: tuple[int, int, int], owners: frozenset[int] | None, counts: bool
) -> None:
    """Each process by its own ids: what a user starts through a program with the set-user-id bit is still his."""
    host = FakeHost()
    process = host.start(environ={"ROLE": "feed"}, uids=uids)
    found = members(host, batch=Members(label="ROLE=feed", owners=owners))["batch"]
    assert pids(found) == ({process.pid} if counts else set())
    if not counts:
        assert found.unmatched == "label ROLE=feed (1 of users that are not among its owners)"


def test_a_process_that_becomes_another_users_leaves_its_group() -> None:
    host = FakeHost()
    membership = Membership({"batch": (BATCH, Members(label="ROLE=feed"))}, kernel=host)
    process = host.start(environ={"ROLE": "feed"})
    for number in range(4):
        assert pids(membership.refresh(number * SCAN_S * 1.1)["batch"]) == {process.pid}
    process.uids = (NOBODY_USER,) * 3
    assert pids(membership.refresh(5 * SCAN_S * 1.1)["batch"]) == set()


def test_pids_and_cgroups_are_anybodys_unless_owners_are_named() -> None:
    host = FakeHost()
    host.group("batch")
    theirs = host.start(cgroup="batch", uids=(NOBODY_USER,) * 3)
    child = host.start(ppid=theirs.pid)
    for named in ({"cgroup": "batch"}, {"pids": frozenset({theirs.pid})}):
        assert pids(members(host, batch=Members(**named))["batch"]) == {theirs.pid, child.pid}
        owned = members(host, batch=Members(**named, owners=frozenset({0})))["batch"]
        assert pids(owned) == {child.pid}


def test_a_pid_that_is_given_out_again_is_another_process() -> None:
    host = FakeHost()
    first = host.start()
    membership = Membership({"batch": (BATCH, Members(pids=frozenset({first.pid})))}, kernel=host)
    assert pids(membership.refresh(0.0)["batch"]) == {first.pid}
    host.end(first)
    first.start += 1
    host.processes[first.pid] = first
    assert pids(membership.refresh(UNBORN_S * 1.1)["batch"]) == set()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_users_process_cannot_choose_a_group_by_its_environment() -> None:
    label = {"SHOAL_TEST_ROLE": f"feed-{os.getpid()}"}
    words = ["setpriv", "--reuid", "65534", "--clear-groups", "sleep", "600"]
    theirs = subprocess.Popen(words, env={**os.environ, **label})
    ours = subprocess.Popen(["sleep", "600"], env={**os.environ, **label})
    try:
        name = f"SHOAL_TEST_ROLE={label['SHOAL_TEST_ROLE']}"
        until(lambda: owners_of(LINUX, theirs.pid) == {65534}, "it is another user's")
        until(
            lambda: pids(Membership({"a": (SERVICE, Members(label=name))}).refresh(0.0)["a"]) == {ours.pid},
            "ours is found",
        )
        named = Members(label=name, owners=frozenset({65534}))
        assert pids(Membership({"a": (SERVICE, named)}).refresh(0.0)["a"]) == {theirs.pid}
    finally:
        for one in (theirs, ours):
            one.kill()
            one.wait()


def test_what_matches_nothing_is_named_until_there_is_a_process() -> None:
    host = FakeHost()
    known, gone = host.start().pid, host.start()
    host.end(gone)
    groups = {
        "half": (BATCH, Members(pids=frozenset({known, gone.pid}))),
        "dir": (BATCH, Members(cgroup="nosuch")),
        "tag": (BATCH, Members(label="TEAM=vision")),
    }
    membership = Membership(groups, kernel=host)
    found = membership.refresh(0.0)
    assert {name: one.unmatched for name, one in found.items()} == {
        "half": f"pids {gone.pid}",
        "dir": "cgroup nosuch",
        "tag": "label TEAM=vision",
    }
    host.start(environ={"TEAM": "vision"})
    assert membership.refresh(SCAN_S * 1.1)["tag"].unmatched == ""


def test_an_environment_that_came_with_the_program_is_seen() -> None:
    host = FakeHost()
    membership = Membership({"batch": (BATCH, Members(label="TEAM=vision"))}, kernel=host)
    process = host.start()
    assert not membership.refresh(0.0)["batch"].processes
    process.environ["TEAM"] = "vision"  # it was executed only now
    assert not membership.refresh(SCAN_S / 2)["batch"].processes
    assert pids(membership.refresh(SCAN_S * 1.1)["batch"]) == {process.pid}
    host.end(process)
    assert not membership.refresh(SCAN_S * 2.3)["batch"].processes


def test_newcomers_of_a_cgroup_are_found_soon_and_pids_are_no_identity() -> None:
    host = FakeHost()
    host.group("batch")
    membership = Membership({"batch": (BATCH, Members(cgroup="batch"))}, kernel=host)
    first = host.start(cgroup="batch")
    before = membership.refresh(0.0)["batch"]
    assert membership.refresh(FOLLOW_S / 2)["batch"] is before
    second = host.start(cgroup="batch", user_cpus=frozenset({1}))
    host.end(first)
    found = membership.refresh(FOLLOW_S * 1.1)["batch"]
    assert pids(found) == {second.pid}
    assert found.cpus == {1}


def test_a_family_is_not_looked_through_while_nothing_is_born() -> None:
    class Counting(FakeHost):
        looked = 0

        def names(self, path: str) -> tuple[str, ...]:
            self.looked += path.endswith("/task")
            return super().names(path)

    host = Counting()
    parent = host.start()
    membership = Membership({"batch": (BATCH, Members(pids=frozenset({parent.pid})))}, kernel=host)
    before = membership.refresh(0.0)["batch"]
    looked = host.looked
    assert membership.refresh(FOLLOW_S * 1.1)["batch"] is before
    assert host.looked == looked
    child = host.start(ppid=parent.pid)
    assert pids(membership.refresh(FOLLOW_S * 2.2)["batch"]) == {parent.pid, child.pid}
    host.end(child)
    assert pids(membership.refresh(FOLLOW_S * 2.2 + UNBORN_S)["batch"]) == {parent.pid}


def test_cpus_of_guaranteed_work_are_not_exclusive() -> None:
    host = FakeHost()
    noisy, quiet = host.start(), host.start(user_cpus=frozenset({0, 1}))
    found = members(host, batch=Members(pids=frozenset({noisy.pid})), service=Members(pids=frozenset({quiet.pid})))
    assert found["batch"].cpus == {0, 1, 2, 3}
    assert found["batch"].exclusive == {2, 3}


@pytest.mark.parametrize("names", [{}, {"cgroup": "a", "label": "X"}, {"pids": frozenset()}])
def test_members_are_named_in_one_way(names: dict[str, object]) -> None:
    with pytest.raises(Invalid, match="one of cgroup, pids and label"):
        Members(**names)  # type: ignore[arg-type]


def test_this_machine_finds_a_process_by_its_pid() -> None:
    kit = RealKit()
    try:
        pid = kit.process()
        found = Membership({"batch": (BATCH, Members(pids=frozenset({pid})))}).refresh(0.0)["batch"]
        assert pids(found) == {pid}
        assert found.cpus == LINUX.affinity(pid)
    finally:
        kit.close()


# --- a host with a service and a neighbour ---


class World:
    """One guaranteed service with a ring, one best-effort neighbour, all sensors and mechanisms."""

    def __init__(self, path: Path, machine: Machine, *, apart: bool = False) -> None:
        self.host = FakeHost(machine)
        self.host.group("service")
        self.host.group("batch")
        path.mkdir(exist_ok=True)
        self.ring = Ring(path / "ring")
        home = frozenset({0, 1}) if apart else None
        away = frozenset({2, 3}) if apart else None
        self.victim = self.host.start(cgroup="service", step_s=0.002, ring=self.ring, user_cpus=home)
        self.noisy = self.host.start(cgroup="batch", busy=2.0, demand=12e9, user_cpus=away)
        self.wal: WriteAheadLog = write_ahead_log(path, self.host)
        groups = {
            "service": (SERVICE, Members(cgroup="service")),
            "batch": (BATCH, Members(cgroup="batch")),
        }
        self.domains = self.host.domains()
        self.senses = Senses(
            self.domains,
            Membership(groups, kernel=self.host),
            sensors.standard(
                self.domains,
                steps=sensors.StepTimes({"service": path / "ring"}),
                shoot=self.host.shoot,
                wal=self.wal,
                kernel=self.host,
                cost=lambda: 0.0,
            ),
            capacity={domain.id: CAPACITY for domain in self.domains},
            kernel=self.host,
        )
        self.chain = actuators.standard(
            self.wal,
            {domain.id: domain for domain in self.domains},
            unhindered=self.senses.unhindered,
            kernel=self.host,
        )
        self.applied: dict[str, Setting] = {}
        self.setting = UNLIMITED

    def tick(self, seconds: float = 0.1) -> Sensed:
        """A tick of a guard: time passes, the host is read, the setting is applied."""
        self.host.advance(seconds)
        sensed = self.senses.read(
            self.host.now, self.applied, controls=self.chain.controls, least_share=self.chain.least_share
        )
        applied = self.chain.apply(BATCH, sensed.found["batch"], self.setting, self.host.now)
        assert not applied.problems
        self.applied["batch"] = applied.setting
        return sensed

    def ticks(self, count: int) -> Sensed:
        for _ in range(count):
            sensed = self.tick()
        return sensed


def group(sensed: Sensed, name: str):  # type: ignore[no-untyped-def]
    return next(one for one in sensed.snapshot.groups if one.group.name == name)


def test_undisturbed_is_what_was_measured_while_others_were_frozen(tmp_path: Path) -> None:
    world = World(tmp_path, Machine())
    state = group(world.ticks(5), "service")
    assert state.step_s.known() == pytest.approx(0.002 / (1 - 0.6 * 24 / 26), rel=0.01)
    assert isinstance(state.alone_s.value, Missing)
    assert "no moment yet" in state.alone_s.value.reason
    assert state.slowdown is None
    world.setting = Setting(frozen=True)
    world.tick()
    world.setting = UNLIMITED
    sensed = world.tick(0.05)
    assert group(sensed, "batch").applied.frozen
    assert group(sensed, "service").step_s.known() == pytest.approx(0.002, rel=1e-3)
    state = group(world.ticks(3), "service")
    assert state.alone_s.known(stale_s=10) == pytest.approx(0.002, rel=1e-3)
    assert state.slowdown == pytest.approx(1 / (1 - 0.6 * 24 / 26), rel=0.02)


def test_memory_latency_is_learnt_undisturbed_too(tmp_path: Path) -> None:
    world = World(tmp_path, Machine())
    home = world.ticks(3).snapshot.domains[0]
    assert home.latency_ns.known() is None or isinstance(home.alone_ns.value, Missing)
    world.noisy.busy = 0.0
    home = world.ticks(5).snapshot.domains[0]
    assert home.alone_ns.value == home.latency_ns.value


def test_idle_neighbours_are_quiet_neighbours(tmp_path: Path) -> None:
    world = World(tmp_path, Machine())
    world.noisy.busy = 0.0
    state = group(world.ticks(5), "service")
    assert state.slowdown == pytest.approx(1.0)
    world.noisy.busy = 2.0
    assert group(world.ticks(3), "service").slowdown > 2


def test_neighbours_that_are_held_back_are_not_idle(tmp_path: Path) -> None:
    world = World(tmp_path, Machine())
    world.ticks(3)
    world.setting = Setting(share=0.02)
    state = group(world.ticks(5), "batch")
    assert state.cpus.known() < 0.05, "it gets no more, and uses all of that"
    assert isinstance(group(world.ticks(2), "service").alone_s.value, Missing)


def test_neighbours_in_another_domain_do_not_count(tmp_path: Path) -> None:
    world = World(tmp_path, Machine(l3s=TWO_CACHES), apart=True)
    sensed = world.ticks(4)
    assert group(sensed, "service").slowdown == pytest.approx(1.0)
    assert group(sensed, "service").domains == {0}
    assert group(sensed, "batch").domains == {1}
    assert group(sensed, "batch").cores == 2


def test_what_a_quota_and_the_hypervisor_take_is_in_the_snapshot(tmp_path: Path) -> None:
    world = World(tmp_path, Machine(cgroups="v2"))
    world.host.write("/sys/fs/cgroup/batch/cpu.max", "50000 100000")
    seen = world.ticks(12)
    assert group(seen, "batch").throttled.known() == 1.0
    assert group(seen, "service").throttled.known() in (None, 0.0)
    assert seen.snapshot.steal.known() == pytest.approx(0.25)
    later = aged(seen.snapshot, seen.snapshot.at + 7.0)
    assert later.steal.age_s == seen.snapshot.steal.age_s + 7.0
    assert group(seen, "batch").throttled.age_s + 7.0 == next(
        one.throttled.age_s for one in later.groups if one.group.name == "batch"
    )


def test_nothing_is_zero_that_is_not_known(tmp_path: Path) -> None:
    world = World(tmp_path, Machine())
    sensed = world.ticks(3)
    state, home = group(sensed, "batch"), sensed.snapshot.domains[0]
    for reading in (state.bandwidth, state.step_s, home.bandwidth, home.saturation):
        assert isinstance(reading.value, Missing)
        assert reading.value.reason
    assert state.cpus.known() == pytest.approx(2.0, rel=0.01)
    assert home.latency_ns.known() > 272
    assert home.capacity.known() == CAPACITY


def test_a_group_without_processes_keeps_no_cpu_busy(tmp_path: Path) -> None:
    world = World(tmp_path, Machine())
    world.ticks(2)
    world.host.end(world.noisy)
    state = group(world.ticks(5), "batch")
    assert state.cpus.known() == 0.0
    assert world.senses.unhindered("batch") == Unhindered()


def test_counters_outside_the_cores_speak_for_a_socket(tmp_path: Path) -> None:
    one = World(tmp_path / "one", Machine(uncore=True))
    home = one.ticks(3).snapshot.domains[0]
    assert home.bandwidth.known() == pytest.approx(24e9, rel=1e-3)
    assert home.saturation.known() == pytest.approx(24 / 26 - 0.5, rel=1e-3)
    two = World(tmp_path / "two", Machine(uncore=True, l3s=TWO_CACHES))
    homes = two.ticks(3).snapshot.domains
    assert all(isinstance(home.bandwidth.value, Missing) for home in homes)
    assert all(home.saturation.known() is not None for home in homes)


def test_the_first_sensor_that_knows_is_believed() -> None:
    host = FakeHost()
    key = Key(Quantity.LATENCY, Scope.DOMAIN, 0)

    class Says:
        def __init__(self, name: str, reading: Reading) -> None:
            self.name, self.reading = name, reading

        def capability(self) -> Capability:
            return Capability(self.name, True, "")

        def read(self, now: float, found: object, since: float) -> dict[Key, Reading]:
            return {key: self.reading}

        def close(self) -> None:
            return

    said = [Says("a", Reading(Missing("blind"))), Says("b", Reading(300.0)), Says("c", Reading(900.0))]
    senses = Senses(host.domains(), Membership({}, kernel=host), said, kernel=host)
    assert senses.read(0.0, {}).snapshot.domains[0].latency_ns.known() == 300.0
    said[1].reading = Reading(300.0, age_s=50.0)
    assert senses.read(1.0, {}).snapshot.domains[0].latency_ns.known() == 900.0


@pytest.mark.parametrize("machine", [Machine(), Machine(cgroups="v1"), Machine(resctrl=RESCTRL_INTEL)])
def test_a_closed_loop_finds_the_share_that_keeps_the_objective(tmp_path: Path, machine: Machine) -> None:
    world = World(tmp_path, machine)
    world.setting = Setting(frozen=True)
    world.ticks(2)
    share, slowdowns = 1.0, []
    for _ in range(40):
        world.setting = Setting(share=share)
        slowdown = group(world.tick(), "service").slowdown
        slowdowns.append(slowdown)
        share = max(0.02, share / 2) if slowdown > 1.15 else min(1.0, share + 0.02)
    assert max(slowdowns[2:]) > 1.15
    assert slowdowns[-1] < 1.25
    assert world.noisy.moved > 0
    world.chain.restore()
    world.senses.close()
    assert len(world.wal) == 0


# --- the chain ---


class Mechanism:
    def __init__(self, name: str, control: Control = Control.SHARE, *, works: bool = True, fails: int = 0) -> None:
        self.name, self.control, self.least_share = name, control, 0.05
        self.works, self.fails = works, fails
        self.did: list[object] = []

    def capability(self) -> Capability:
        return Capability(self.name, self.works, "for a test")

    def apply(self, group: Group, found: Found, setting: Setting) -> Setting:
        if self.fails:
            self.fails -= 1
            raise Unavailable("not now")
        self.did.append(setting.share)
        return setting

    def restore(self, group: str | None = None) -> None:
        self.did.append("restored")


def test_the_strongest_that_works_is_taken_and_the_next_when_it_fails() -> None:
    absent, strong, weak = Mechanism("absent", works=False), Mechanism("strong"), Mechanism("weak")
    chain = ActuatorChain([absent, strong, weak])
    assert chain.controls == {Control.SHARE}
    assert chain.apply(BATCH, Found(), Setting(share=0.5), 0.0).by == {Control.SHARE: "strong"}
    strong.fails = 1
    applied = chain.apply(BATCH, Found(), Setting(share=0.4), 1.0)
    assert applied.by == {Control.SHARE: "weak"}
    assert applied.problems == ("strong: not now",)
    assert chain.apply(BATCH, Found(), Setting(share=0.3), 2.0).by == {Control.SHARE: "weak"}
    assert chain.apply(OTHER, Found(), Setting(share=0.3), 2.0).by == {Control.SHARE: "strong"}
    assert chain.apply(BATCH, Found(), Setting(share=0.2), 12.0).by == {Control.SHARE: "strong"}
    assert weak.did == [0.4, 0.3, "restored"]
    assert absent.did == []


def test_what_nothing_can_do_is_not_in_force_and_said() -> None:
    chain = ActuatorChain([Mechanism("broken", fails=9)])
    applied = chain.apply(BATCH, Found(), Setting(share=0.5, frozen=True), 0.0)
    assert applied.setting == UNLIMITED
    assert applied.problems == ("broken: not now", "freeze: nothing on this machine turns it")


def test_what_is_not_limited_is_not_touched() -> None:
    share = Mechanism("share")
    chain = ActuatorChain([share])
    assert chain.apply(BATCH, Found(), UNLIMITED, 0.0).by == {}
    assert share.did == []
    chain.apply(BATCH, Found(), Setting(share=0.5), 0.1)
    assert chain.apply(BATCH, Found(), UNLIMITED, 0.2).by == {}
    assert share.did == [0.5, 1.0]


def test_everything_at_once_and_nothing_left(tmp_path: Path) -> None:
    world = World(tmp_path, Machine(resctrl=RESCTRL_INTEL, l3s=TWO_CACHES, msr=True))
    world.ticks(3)
    world.setting = Setting(share=0.3, cores=1, domains=frozenset({1}), frozen=True)
    world.ticks(2)
    assert world.applied["batch"] == Setting(share=0.3, cores=1, domains=frozenset({1}), frozen=True)
    assert world.host.allowed(world.noisy) == {3}
    assert world.noisy.frozen()
    world.chain.release("batch")
    world.senses.close()
    assert world.host.allowed(world.noisy) == world.host.cpus
    assert not world.noisy.frozen()
    assert world.noisy.resctrl == ""
    assert len(world.wal) == 0


def test_only_what_is_allowed_is_used(tmp_path: Path) -> None:
    host = FakeHost()
    chain = actuators.standard(
        write_ahead_log(tmp_path, host),
        {domain.id: domain for domain in host.domains()},
        unhindered=lambda _: Unhindered(),
        kernel=host,
        allow=frozenset({"quota", "freeze"}),
    )
    assert chain.controls == {Control.SHARE, Control.FREEZE}
    assert {one.name for one in chain.capabilities()} == {"quota", "freeze"}


def test_this_machine_is_limited_and_let_free(tmp_path: Path) -> None:
    """The whole of it, on whatever this machine has."""
    kit = RealKit()
    wal = WriteAheadLog(tmp_path / "wal")
    try:
        pid = kit.process()
        groups = {f"test-{pid}": (Group(f"test-{pid}", PriorityClass.BEST_EFFORT), Members(pids=frozenset({pid})))}
        sensed = Membership(groups).refresh(0.0)[f"test-{pid}"]
        chain = actuators.standard(wal, {}, unhindered=lambda _: Unhindered(cpus=1.0))
        before = LINUX.read(f"/proc/{pid}/cgroup")
        applied = chain.apply(groups[f"test-{pid}"][0], sensed, Setting(share=0.5, cores=1, frozen=True), 0.0)
        assert not applied.problems
        assert len(LINUX.affinity(pid)) == 1
        chain.restore()
        assert LINUX.affinity(pid) == sensed.cpus
        until(lambda: LINUX.read(f"/proc/{pid}/cgroup") == before, "it is where it was")
        assert len(wal) == 0
    finally:
        wal.close()
        kit.close()
