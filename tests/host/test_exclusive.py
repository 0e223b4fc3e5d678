"""Guaranteed and best-effort work on CPUs of their own: who runs where, decided and carried out on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import PriorityClass
from shoal.host.guard.affinity import CpuAffinity
from shoal.host.guard.config import parse_config
from shoal.host.guard.live import LiveHost
from shoal.host.guard.loop import Loop
from shoal.host.linux.topology import Topology
from shoal.host.policy import make_policy
from shoal.host.policy.exclusive import exclusive_sets
from shoal.host.types import Control, Domain, DomainState, Group, GroupState, Plan, Setting, Snapshot

BUSY = "import time\nwhile True: time.sleep(0.01)"


def feed(free: set[int], *, cpus: float | None = 1.0, name: str = "feed", has: set[int] | None = None) -> GroupState:
    applied = Setting() if has is None else Setting(cpus=frozenset(has))
    group = Group(name, PriorityClass.GUARANTEED, cpus=cpus)
    return GroupState(group, frozenset({0}), free=frozenset(free), applied=applied)


def batch(free: set[int], name: str = "batch") -> GroupState:
    return GroupState(Group(name, PriorityClass.BEST_EFFORT), frozenset({0}), free=frozenset(free))


def seen(*groups: GroupState, homes: tuple[Domain, ...] = ()) -> Snapshot:
    everyone = frozenset[int]().union(*(one.free for one in groups))
    domains = homes or (Domain(0, everyone),)
    return Snapshot(1.0, tuple(DomainState(one) for one in domains), groups)


def two_domains(size: int, **more: Any) -> tuple[Domain, Domain]:
    return Domain(0, frozenset(range(size)), **more), Domain(1, frozenset(range(size, 2 * size)))


def test_on_two_cpus_each_has_one() -> None:
    assert exclusive_sets(seen(feed({0, 1}), batch({0, 1}))).own == {"feed": {0}, "batch": {1}}


@pytest.mark.parametrize(
    "groups",
    [(feed({0, 1}),), (batch({0, 1}),), (feed({0}), batch({1})), (feed(set()), batch({0, 1}))],
    ids=["nobody beside it", "nobody to protect", "apart by themselves", "not there yet"],
)
def test_nobody_is_moved_without_need(groups: tuple[GroupState, ...]) -> None:
    sets = exclusive_sets(seen(*groups))
    assert sets.own == {}
    assert sets.why is None


@pytest.mark.parametrize(
    ("groups", "code"),
    [
        ((feed({0, 1}, cpus=2), batch({0, 1})), "too-few-cpus"),
        ((feed({0, 1}, cpus=1.2), batch({0, 1})), "too-few-cpus"),
        ((feed({0}, cpus=2), batch({0, 1, 2})), "too-few-cpus"),
        ((feed({0, 1}, cpus=None), batch({0, 1})), "cpus-unknown"),
        ((feed({0}, name="a"), feed({2, 3}, name="b"), batch({0, 1, 2, 3})), None),
        ((feed({0, 1, 2}), batch({0})), "bound-here"),
    ],
)
def test_where_it_cannot_be_it_says_why(groups: tuple[GroupState, ...], code: str | None) -> None:
    sets = exclusive_sets(seen(*groups))
    assert (sets.why.code if sets.why else None) == code
    if code not in (None, "bound-here"):
        assert sets.own == {}


def test_guaranteed_work_keeps_to_one_domain_and_to_whole_cores() -> None:
    both = set(range(8))
    homes = two_domains(4)
    assert exclusive_sets(seen(feed(both, cpus=4), batch(both), homes=homes)).own == {
        "feed": {0, 1, 2, 3},
        "batch": {4, 5, 6, 7},
    }
    siblings = tuple(frozenset({cpu, cpu + 2}) for cpu in (0, 1))
    assert exclusive_sets(seen(feed(both), batch(both), homes=two_domains(4, siblings=siblings))).own["feed"] == {0, 2}
    smaller = (Domain(0, frozenset(range(6))), Domain(1, frozenset({6, 7})))
    assert exclusive_sets(seen(feed(both, cpus=2), batch(both), homes=smaller)).own["feed"] == {6, 7}


def test_what_is_in_force_stays_unless_domains_would_be_shared_less() -> None:
    four = {0, 1, 2, 3}
    assert exclusive_sets(seen(feed(four, cpus=2, has={1, 2}), batch(four))).own["feed"] == {1, 2}
    assert exclusive_sets(seen(feed(four, cpus=2, has={1, 2}), batch(four), homes=two_domains(2))).own["feed"] == {0, 1}
    assert exclusive_sets(seen(feed(four, cpus=1, has={1, 2}), batch(four))).own["feed"] == {0}


def test_guaranteed_work_may_have_all_the_cpus_that_it_may_run_on_and_no_more() -> None:
    assert exclusive_sets(seen(feed({0, 1}, cpus=2), batch({0, 1, 2}))).own == {"feed": {0, 1}, "batch": {2}}
    why = exclusive_sets(seen(feed({0, 1}, cpus=3), batch({0, 1, 2, 3}))).why
    assert why is not None
    assert why.code == "too-few-cpus"
    assert why.as_json()["facts"] == {"need": 3, "cpus": 2}


def test_guaranteed_groups_that_are_bound_to_different_cpus_stay_with_the_rest() -> None:
    four = {0, 1, 2, 3}
    sets = exclusive_sets(seen(feed(four), feed({3}, name="bound"), batch(four)))
    assert sets.own == {}
    assert sets.why is not None
    assert sets.why.code == "bound-elsewhere"
    assert sets.why.text == "bound is bound to other CPUs than the rest"


@given(
    promised=st.lists(st.floats(0.1, 4), min_size=1, max_size=3),
    others=st.integers(1, 3),
    count=st.integers(2, 12),
    split=st.integers(1, 11),
)
def test_sets_are_disjoint_and_large_enough(promised: list[float], others: int, count: int, split: int) -> None:
    everyone = set(range(count))
    parts = range(min(split, count)), range(min(split, count), count)
    homes = tuple(Domain(at, frozenset(part)) for at, part in enumerate(parts) if part)
    groups = [feed(everyone, cpus=one, name=f"feed{at}") for at, one in enumerate(promised)]
    groups += [batch(everyone, name=f"batch{at}") for at in range(others)]
    sets = exclusive_sets(seen(*groups, homes=homes))
    if sets.why is not None:
        assert sum(promised) > count - 1 - 1e-6
        return
    ours, rest = (frozenset[int]().union(*(sets.own[f"{who}{at}"] for at in range(number)))
                  for who, number in (("feed", len(promised)), ("batch", others)))  # fmt: skip
    assert ours.isdisjoint(rest)
    assert ours | rest == everyone
    assert sum(promised) - 1e-6 <= len(ours) < sum(promised) + 1


def test_plans_say_where_and_explain_why_not() -> None:
    policy = make_policy("model")
    plan, state = policy.step(seen(feed({0, 1}), batch({0, 1})), policy.start())
    assert plan.settings["feed"] == Setting(cpus=frozenset({0}), weight=20.0)
    assert plan.settings["batch"].cpus == {1}
    assert plan.reasons["feed"].code == "exclusive-cpus"
    plan, _ = policy.step(seen(feed({0, 1}, cpus=2), batch({0, 1})), state)
    assert {name: one.cpus for name, one in plan.settings.items()} == {"batch": None, "feed": None}
    assert "guaranteed work was promised 2 CPUs, and there are 2" in plan.reasons["batch"].text
    alone, _ = policy.step(
        replace(seen(feed({0, 1}), batch({0, 1})), controls=frozenset({Control.SHARE})), policy.start()
    )
    assert all(one.cpus is None for one in alone.settings.values())


def test_guaranteed_work_goes_before_what_is_in_no_group_while_best_effort_work_runs_beside_it() -> None:
    policy = make_policy("static", share=0.5)

    def weights(*groups: GroupState, controls: frozenset[Control] = frozenset(Control)) -> dict[str, float | None]:
        plan, _ = policy.step(replace(seen(*groups), controls=controls), policy.start())
        return {name: one.weight for name, one in plan.settings.items() if one.weight is not None}

    eight = set(range(8))
    assert weights(feed(eight, cpus=2.5), batch(eight)) == {"feed": 60.0}, "on each of its CPUs"
    assert weights(feed({0}), batch({1})) == {"feed": 20.0}, "what leaves a paced core comes to the others"
    assert weights(feed(eight)) == {}, "nothing is limited for its sake"
    assert weights(feed(eight), batch(set())) == {}
    assert weights(feed(eight, cpus=None), batch(eight)) == {}, "it was promised no CPUs"
    assert weights(feed(eight), batch(eight), controls=frozenset(Control) - {Control.WEIGHT}) == {}
    plan, _ = policy.step(seen(feed({0}), batch({1})), policy.start())
    assert plan.reasons["feed"].code == "weighed"


def test_a_move_is_no_change_that_the_limit_counts() -> None:
    at = iter(seen(feed({0, 1}, cpus=cpus), batch({0, 1})) for cpus in (1, 2))
    loop = Loop(make_policy("static", share=0.5), lambda _: next(at), None, changes_per_minute=1)
    assert loop.tick(1.0).withheld == ()
    second = loop.tick(1.1)
    assert second.withheld == ()
    assert second.changed == ("batch", "feed")
    assert second.plan.settings == {"batch": Setting(share=0.5), "feed": Setting(weight=40.0)}


# --- on this machine ---


@pytest.fixture
def two() -> Iterator[list[subprocess.Popen[bytes]]]:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("it takes two CPUs")
    started = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    yield started
    for one in started:
        one.kill()
        one.wait()


def told(two: list[subprocess.Popen[bytes]], allow: str) -> Any:
    groups = [
        {"name": "feed", "class": "guaranteed", "pids": [two[0].pid], "cpus": 1},
        {"name": "batch", "class": "best-effort", "pids": [two[1].pid]},
    ]
    return parse_config({"groups": groups, "actuators": {"allow": [allow]}})


@pytest.mark.parametrize("mechanism", ["cpus-cpuset", "cpus-affinity"])
def test_processes_are_set_apart_at_once_and_left_as_they_were(
    tmp_path: Path, two: list[subprocess.Popen[bytes]], mechanism: str
) -> None:
    before = [os.sched_getaffinity(one.pid) for one in two]
    config = told(two, mechanism)
    host = LiveHost(config, tmp_path)
    try:
        if Control.CPUS not in host.sense(time.monotonic()).controls:
            pytest.skip(f"{mechanism} does not work here")
        policy = make_policy("static", share=0.5)
        loop = Loop(policy, host.sense, host)
        tick = loop.tick(time.monotonic())
        assert tick.by["batch"] == (mechanism,)
        ours, theirs = (os.sched_getaffinity(one.pid) for one in two)
        assert len(ours) == 1
        assert ours.isdisjoint(theirs)
        again = loop.tick(time.monotonic())
        assert again.snapshot.groups[1].free == before[1], "what it may use when nothing binds it is not forgotten"
        host.exchange([one for one in config.groups if one.name == "batch"])
        loop.tick(time.monotonic())
        assert os.sched_getaffinity(two[1].pid) == before[1], "with nobody to protect it has all CPUs"
    finally:
        assert host.close() == ()
    assert [os.sched_getaffinity(one.pid) for one in two] == before


def test_placement_is_probed_again_when_domains_change(tmp_path: Path, two: list[subprocess.Popen[bytes]]) -> None:
    found: list[Topology] = []
    host = LiveHost(told(two, "placement-affinity"), tmp_path, measure=lambda known: found[0] if found else known)
    try:
        one = replace(host.topology, domains=(Domain(0, frozenset({0, 1})),), virtual=True)
        host._moves._known = host.topology = one
        found.append(replace(one, domains=(Domain(0, frozenset({0})), Domain(1, frozenset({1})))))
        at = time.monotonic()
        deadline = at + 30
        while Control.DOMAINS not in host.sense(at).controls or len(host.topology.domains) < 2:
            assert time.monotonic() < deadline
            at += 1
            time.sleep(0.01)
        host.apply(Plan({"batch": Setting(domains=frozenset({1}))}))
        assert os.sched_getaffinity(two[1].pid) == {1}
    finally:
        host.close()


def test_the_guards_thread_leaves_its_seat_as_it_was() -> None:
    before = os.sched_getaffinity(0), os.sched_getscheduler(0)
    affinity = CpuAffinity()
    affinity.move(frozenset({max(before[0])}))
    there = os.sched_getaffinity(0)
    affinity.leave()
    assert (os.sched_getaffinity(0), os.sched_getscheduler(0)) == before
    assert there in ({max(before[0])}, before[0] - {max(before[0])}, before[0])
