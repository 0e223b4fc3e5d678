"""The guard's loop, configuration, journal, replay and metrics; sensors and actuators that fail."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from host.simulate import simulate, workload_set
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Invalid, LeaseLost, NotFound, PriorityClass, Reason
from shoal.host.guard.config import MECHANISMS, FollowedConfig, GuardConfig, parse_config, read_config
from shoal.host.guard.contradictions import contradictions
from shoal.host.guard.daemon import GuardDaemon
from shoal.host.guard.history import changes, present
from shoal.host.guard.journal import Head, Journal, adapter, files_of, read_journal
from shoal.host.guard.loop import POLICY_FAULTS, Loop, Record, Tick, tighter
from shoal.host.guard.metrics import Counters, Metrics
from shoal.host.guard.replay import replay
from shoal.host.policy import POLICIES, make_policy
from shoal.host.types import (
    UNLIMITED,
    Applied,
    Control,
    Domain,
    DomainState,
    Group,
    GroupState,
    Missing,
    Plan,
    Reading,
    Setting,
    Snapshot,
)

FEED = Group("feed", PriorityClass.GUARANTEED)
FLOOD = Group("flood", PriorityClass.BEST_EFFORT)


def snapshot(at: float, step_s: float = 0.001) -> Snapshot:
    feed = GroupState(FEED, frozenset({0}), step_s=Reading(step_s), alone_s=Reading(0.001), cpus=Reading(1.0))
    flood = GroupState(FLOOD, frozenset({0}), cpus=Reading(1.0))
    return Snapshot(at, (DomainState(Domain(0, frozenset({0, 1}))),), (feed, flood))


class Script:
    """A policy that gives these plans, one after another, and the last one ever after."""

    name = "script"

    def __init__(self, plans: Sequence[dict[str, Setting] | Exception]) -> None:
        self.plans = plans
        self.seen: list[Snapshot] = []

    def start(self) -> int:
        return 0

    def step(self, snapshot: Snapshot, state: int) -> tuple[Plan, int]:
        self.seen.append(snapshot)
        plan = self.plans[min(state, len(self.plans) - 1)]
        if isinstance(plan, Exception):
            raise plan
        return Plan(plan, {name: Reason("script", "as written") for name in plan}), state + 1


class Machine:
    """Does what it is told, unless it is told to fail."""

    def __init__(self) -> None:
        self.sensing: Exception | None = None
        self.contended = False
        self.acting: Exception | None = None
        self.errors: tuple[str, ...] = ()
        self.plans: list[Plan] = []

    def sense(self, now: float) -> Snapshot:
        if self.sensing is not None:
            raise self.sensing
        paused = bool(self.plans) and self.plans[-1].settings.get("flood", UNLIMITED).frozen
        return snapshot(now, 0.003 if self.contended and not paused else 0.001)

    def apply(self, plan: Plan) -> Applied:
        self.plans.append(plan)
        if self.acting is not None:
            raise self.acting
        return Applied(dict(plan.settings), self.errors)


def shares(*values: float) -> list[dict[str, Setting] | Exception]:
    return [{"flood": Setting(share=value)} if value < 1 else {} for value in values]


def test_a_tick_senses_decides_and_acts() -> None:
    machine, policy = Machine(), Script(shares(0.5, 0.25))
    loop = Loop(policy, machine.sense, machine)
    first, second = loop.tick(0.0), loop.tick(0.1)
    assert first.changed == second.changed == ("flood",)
    assert policy.seen[1].groups[1].applied == Setting(share=0.5), "what is in force is put into the next snapshot"
    assert [plan.settings["flood"].share for plan in machine.plans] == [0.5, 0.25]
    assert loop.tick(0.2).changed == ()


def test_a_sensor_that_fails_is_written_down_and_readings_grow_old() -> None:
    machine, policy = Machine(), Script(shares(0.5))
    loop = Loop(policy, machine.sense, machine)
    loop.tick(0.0)
    machine.sensing = OSError("the counter is gone")
    tick = loop.tick(5.0)
    assert "the counter is gone" in tick.faults[0]
    assert tick.snapshot.groups[0].step_s.known() is None
    assert tick.snapshot.groups[0].step_s.age_s == 5.0
    assert tick.plan.settings, "the policy decides all the same"
    blind = Loop(Script(shares(0.5)), machine.sense, machine).tick(0.0)
    assert blind.snapshot.groups == ()


def test_silent_sensors_lift_the_models_limits() -> None:
    machine = Machine()
    machine.contended = True
    loop = Loop(make_policy("model"), machine.sense, machine)
    at = 0.0
    for _ in range(5):
        at += loop.tick(at).plan.next_in_s
    assert machine.plans[-1].settings
    machine.sensing = OSError("gone")
    for _ in range(80):
        at += loop.tick(at).plan.next_in_s
    assert machine.plans[-1].settings == {}


def test_an_actuator_that_fails_is_written_down_and_tried_again() -> None:
    machine = Machine()
    loop = Loop(Script(shares(0.5)), machine.sense, machine)
    machine.acting = PermissionError("no")
    first = loop.tick(0.0)
    assert "PermissionError" in first.faults[0]
    assert first.applied == {}
    machine.acting, machine.errors = None, ("flood: quota: refused",)
    second = loop.tick(0.1)
    assert second.faults == ("flood: quota: refused",)
    assert second.applied == {"flood": Setting(share=0.5)}


def test_a_lost_lease_means_that_nothing_is_in_force() -> None:
    machine, policy = Machine(), Script(shares(0.5))
    loop = Loop(policy, machine.sense, machine)
    loop.tick(0.0)
    machine.acting = LeaseLost("the watchdog is gone")
    assert loop.tick(0.1).applied == {}
    machine.acting = None
    loop.tick(0.2)
    assert policy.seen[-1].groups[1].applied == UNLIMITED
    assert loop.tick(0.3).applied == {"flood": Setting(share=0.5)}


def test_a_policy_that_fails_holds_then_starts_anew_without_limits() -> None:
    machine = Machine()
    loop = Loop(Script([*shares(0.5), ZeroDivisionError("defect")]), machine.sense, machine)
    loop.tick(0.0)
    for number in range(1, POLICY_FAULTS):
        tick = loop.tick(0.1 * number)
        assert tick.plan.settings == {"flood": Setting(share=0.5)}
        assert "defect" in tick.faults[0]
    lifted = loop.tick(10.0)
    assert lifted.plan.settings == {}
    assert lifted.plan.reasons["flood"].code == "policy-failed"


def test_guaranteed_work_is_never_limited_whatever_a_policy_says() -> None:
    machine = Machine()
    Loop(Script([{"feed": Setting(share=0.1), "flood": Setting(share=0.5)}]), machine.sense, machine).tick(0.0)
    assert set(machine.plans[0].settings) == {"flood"}


def test_too_many_changes_stop_loosening_but_not_tightening() -> None:
    machine = Machine()
    loop = Loop(Script(shares(0.5, 0.6, 0.7, 0.4, 0.9)), machine.sense, machine, changes_per_minute=2)
    ticks = [loop.tick(0.1 * number) for number in range(5)]
    assert [tick.plan.settings["flood"].share for tick in ticks] == [0.5, 0.6, 0.6, 0.4, 0.4]
    assert [tick.withheld for tick in ticks] == [(), (), ("flood",), (), ("flood",)]
    assert ticks[2].plan.reasons["flood"].code == "too-many-changes"
    assert loop.tick(61.0).plan.settings["flood"].share == 0.9


def test_pauses_to_measure_and_lifting_everything_are_not_counted() -> None:
    machine = Machine()
    frozen = {"flood": Setting(share=0.5, frozen=True)}
    plans = [*shares(0.5), *[frozen, {"flood": Setting(share=0.5)}] * 5, {}]
    loop = Loop(Script(plans), machine.sense, machine, changes_per_minute=1)
    ticks = [loop.tick(0.1 * number) for number in range(len(plans))]
    assert all(not tick.withheld for tick in ticks)
    assert ticks[-1].applied == {}


def test_a_dry_run_does_nothing() -> None:
    machine, policy = Machine(), Script(shares(0.5))
    loop = Loop(policy, machine.sense, None)
    tick = loop.tick(0.0)
    loop.tick(0.1)
    assert tick.dry_run
    assert tick.plan.settings
    assert machine.plans == []
    assert policy.seen[1].groups[1].applied == UNLIMITED, "nothing is in force"


@given(new=st.builds(Setting, share=st.floats(0, 1)), old=st.builds(Setting, share=st.floats(0, 1)))
def test_tighter_is_an_order(new: Setting, old: Setting) -> None:
    assert tighter(new, new)
    assert tighter(new, old) or tighter(old, new)
    assert tighter(new, UNLIMITED)


TIGHT = Setting(share=0.5, prefetching=2, cores=2, domains=frozenset({0}))


@pytest.mark.parametrize(
    "looser",
    [{"share": 0.6}, {"prefetching": 3}, {"prefetching": None}, {"cores": 3}, {"cores": None},
     {"domains": frozenset({0, 1})}, {"domains": frozenset({1})}, {"domains": None}],
)  # fmt: skip
def test_one_looser_part_is_enough_not_to_be_tighter(looser: dict[str, Any]) -> None:
    assert not tighter(replace(TIGHT, **looser), TIGHT)
    assert tighter(TIGHT, replace(TIGHT, **looser)) == (looser != {"domains": frozenset({1})})


def test_a_freeze_cpus_and_a_weight_are_neither_tighter_nor_looser() -> None:
    assert tighter(replace(TIGHT, frozen=True, cpus=frozenset({1}), weight=20.0), TIGHT)
    assert tighter(TIGHT, replace(TIGHT, frozen=True, cpus=frozenset({1}), weight=20.0))


# --- configuration ---

GROUPS: list[dict[str, Any]] = [
    {"name": "feed", "class": "guaranteed", "pids": [1], "slo": {"max_slowdown": 1.1}, "ring": "/run/feed.ring"},
    {"name": "flood", "class": "best-effort", "cgroup": "batch.slice", "weight": 2, "min_share": 0.1},
]


def test_a_configuration_is_read_from_yaml_and_toml(tmp_path: Path) -> None:
    yaml, toml = tmp_path / "guard.yaml", tmp_path / "guard.toml"
    yaml.write_text(
        "groups:\n  - {name: feed, class: guaranteed, pids: [1], slo: {max_slowdown: 1.1}, ring: /run/feed.ring}\n"
        "  - {name: flood, class: best-effort, cgroup: batch.slice, weight: 2, min_share: 0.1}\n"
        "policy: {name: static, share: 0.2}\nactuators: {allow: [pace, freeze]}\n"
    )
    toml.write_text(
        'policy = {name = "static", share = 0.2}\nactuators = {allow = ["pace", "freeze"]}\n'
        '[[groups]]\nname = "feed"\nclass = "guaranteed"\npids = [1]\nslo = {max_slowdown = 1.1}\n'
        'ring = "/run/feed.ring"\n'
        '[[groups]]\nname = "flood"\nclass = "best-effort"\ncgroup = "batch.slice"\nweight = 2\nmin_share = 0.1\n'
    )
    found = read_config(yaml)
    assert read_config(toml) == found
    assert found.groups[0].group == Group("feed", PriorityClass.GUARANTEED, max_slowdown=1.1)
    assert found.groups[1].group == Group("flood", PriorityClass.BEST_EFFORT, 2.0, 0.1)
    assert found.policy.make() == make_policy("static", share=0.2)
    assert found.actuators.mechanisms == {"pace", "freeze", "stop-signal"}, "a mechanism, and a control with all of its"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"groups": []}, "groups: there is nothing in it"),
        ({"groups": [{**GROUPS[0], "pids": [], "label": "X"}]}, "must be NAME=VALUE as in the environment"),
        ({"groups": [{**GROUPS[0], "pids": [0]}]}, "groups[0].pids[0]: must be more than 0, not 0"),
        ({"groups": [{**GROUPS[0], "pids": ["me"]}]}, "must be a whole number, not 'me'"),
        ({"groups": [{**GROUPS[0], "pids": 7}]}, "groups[0].pids: must be a list, not 7"),
        ({"groups": [{**GROUPS[0], "name": "a b"}]}, "must be up to 63 letters, digits"),
        ({"groups": [{**GROUPS[0], "cpus": float("inf")}]}, "groups[0].cpus: must be at most 100000, not inf"),
        ({"groups": [{"name": "x", "pids": [1]}]}, "groups[0].class: this field is missing"),
        ({"groups": ["x"]}, "groups[0]: must be a mapping of fields, not 'x'"),
        ({"metrics": {"port": 70000}}, "metrics.port: must be at most 65535, not 70000"),
        ({"groups": [{**GROUPS[0], "label": "A=1"}]}, "give exactly one of cgroup, pids and label"),
        ({"groups": [{"name": "x", "class": "best-effort"}]}, "which processes are it"),
        ({"groups": [{**GROUPS[0], "class": "gold"}]}, "must be guaranteed or best-effort, not 'gold'"),
        ({"groups": [{**GROUPS[0], "slo": {"max_slowdown": 0.9}}]}, "max_slowdown"),
        ({"groups": [{**GROUPS[0], "weight": 3}]}, "weight means nothing for a guaranteed group"),
        ({"groups": [GROUPS[1], GROUPS[1]]}, "two groups are called flood"),
        ({"groups": [{**GROUPS[0], "owners": ["nosuchuser"]}]}, "there is no user 'nosuchuser' on this host"),
        ({"groups": [{**GROUPS[0], "owners": []}]}, "groups[0].owners: there is nothing in it"),
        ({"policy": "best"}, "there is no policy 'best'"),
        ({"policy": {"name": "model", "speed": 1}}, "no setting speed"),
        ({"policy": {"name": "static", "share": 7}}, "a share of 7"),
        ({"policy": {"name": "static", "share": "much"}}, "wrong type"),
        ({"tick_s": 0}, "tick_s"),
        ({"actuators": {"allow": ["nonsense"]}}, "nothing is called 'nonsense'; there are weight, cpus"),
        ({"actuators": {"allow": ["pace", "qota"]}}, "pace, quota, prefetchers"),
        ({"actuators": {"allow": []}}, "actuators.allow: there is nothing in it"),
        ({"groups": [GROUPS[0], {**GROUPS[1], "cgroup": "", "pids": [2, 1]}]}, "groups[1]: pids 1 are of group feed"),
        ({"groups": [{**GROUPS[1], "cgroup": "a/../../etc"}]}, "must be a path without . and .., not 'a/../../etc'"),
        ({"groups": [{**GROUPS[1], "cgroup": "//"}]}, "the root holds all processes"),
        ({"groups": [{**GROUPS[1], "cpus": 2}]}, "groups[0].cpus: cpus means nothing for a best-effort group"),
        ({"groups": [{**GROUPS[0], "reports": {}}]}, "groups[0].reports: give either lines or gateway"),
        ({"groups": [{**GROUPS[0], "reports": {"gateway": "http://h/m"}}]}, "which of the gateway's models"),
        ({"groups": [{**GROUPS[0], "reports": {"lines": "/a", "tenant": "b"}}]}, "tenant means nothing without a"),
        ({"policy": {"name": "static", "share": 7, "sahre": 1}}, "has no setting sahre"),
        ({"policy": {"name": "static", "share": 7, "sahre": 1}}, "a share of 7"),
        ({"intervall": 1}, "there is no such field"),
    ],
)
def test_a_wrong_configuration_says_what_is_wrong(change: dict[str, Any], said: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_config({"groups": GROUPS, **change})
    text = " ".join(f"{one.where}: {one.what}" for one in caught.value.problems)
    assert said in text
    assert not re.search(r"Input|validation|Tuple|\bshould\b", text), "in the house's words"


def test_promised_cpus_exist_and_one_is_left_for_all_else() -> None:
    def problems(*promised: float, beside: bool = True) -> list[str]:
        groups: list[dict[str, Any]] = [
            {"name": f"g{at}", "class": "guaranteed", "pids": [at + 1], "cpus": each}
            for at, each in enumerate(promised)
        ]
        if beside:
            groups.append({"name": "flood", "class": "best-effort", "pids": [100]})
        return [f"{one.where}: {one.what}" for one in contradictions({"groups": groups}, cpus=4)]

    assert problems(1, 2) == problems(1.5, 0.5) == problems(4, beside=False) == []
    assert problems(5) == ["groups[0].cpus: 5 CPUs are promised, this machine has 4"]
    assert problems(5, beside=False) == problems(5)
    left = "groups: 4 CPUs are promised, this machine has 4: leave one for best-effort groups and all other work"
    assert problems(4) == problems(3, 1) == problems(2.5, 0.5) == [left]
    document = {"groups": [{"name": "g", "class": "guaranteed", "pids": [1], "cpus": 99_000}]}
    with pytest.raises(Invalid) as caught:
        parse_config(document)
    assert "99000 CPUs are promised" in caught.value.problems[0].what
    assert parse_config(document, kind=FollowedConfig)  # what the server writes is the promises of its own jobs


_MATCHER = {"cgroup": "a/b", "label": "ROLE=x", "pids": [7, 8]}


@pytest.mark.parametrize("matcher", _MATCHER)
@pytest.mark.parametrize("kinds", [("guaranteed", "best-effort"), ("best-effort", "best-effort")])
def test_processes_are_of_one_group(matcher: str, kinds: tuple[str, str]) -> None:
    groups = [{"name": name, "class": kind, matcher: _MATCHER[matcher]} for name, kind in zip("ab", kinds, strict=True)]
    with pytest.raises(Invalid) as caught:
        parse_config({"groups": groups})
    assert [one.where for one in caught.value.problems] == ["groups[1]"]
    assert "of group a too" in caught.value.problems[0].what
    groups[1][matcher] = {"cgroup": "a/bc", "label": "ROLE=y", "pids": [9]}[matcher]
    assert len(parse_config({"groups": groups}).groups) == 2


@pytest.mark.parametrize(("kind", "wrong"), [("guaranteed", True), ("best-effort", False)])
def test_a_part_of_a_cgroup_may_be_a_group_of_its_own_within_its_class(kind: str, wrong: bool) -> None:
    slice_ = {"name": "slice", "class": "best-effort", "cgroup": "/batch.slice/"}
    for groups in ([slice_, {"name": "a", "class": kind, "cgroup": "batch.slice/a"}],):
        for ordered in (groups, groups[::-1]):
            if wrong:
                with pytest.raises(Invalid, match="wrong"):
                    parse_config({"groups": ordered})
            else:
                parse_config({"groups": ordered})


_MISTAKES: dict[str, tuple[str, Callable[[dict[str, Any]], Any]]] = {
    "a limit for guaranteed work": ("groups[0].weight", lambda told: told["groups"][0].update(weight=2)),
    "a promise to best-effort work": ("groups[1].slo", lambda told: told["groups"][1].update(slo={})),
    "no number": ("groups[1].weight", lambda told: told["groups"][1].update(weight="much")),
    "a field that there is not": ("groups[1].colour", lambda told: told["groups"][1].update(colour="red")),
    "two names": ("groups", lambda told: told["groups"][1].update(name="feed")),
    "two matchers": ("groups[0]", lambda told: told["groups"][0].update(label="A=1")),
    "a path upwards": ("groups[1].cgroup", lambda told: told["groups"][1].update(cgroup="../x")),
    "no policy": ("policy", lambda told: told.update(policy="best")),
    "no mechanism": ("actuators.allow", lambda told: told.update(actuators={"allow": ["nonsense"]})),
    "too fast": ("tick_s", lambda told: told.update(tick_s=0)),
}


@given(made=st.sets(st.sampled_from(sorted(_MISTAKES)), min_size=1))
def test_everything_that_is_wrong_is_reported_at_once(made: set[str]) -> None:
    told: dict[str, Any] = {"groups": [dict(one) for one in GROUPS]}
    for name in sorted(made):
        _MISTAKES[name][1](told)
    with pytest.raises(Invalid) as caught:
        parse_config(told)
    assert sorted({str(one.where) for one in caught.value.problems}) == sorted({_MISTAKES[name][0] for name in made})
    assert len(caught.value.problems) == len(made), "each once"


def test_a_group_that_is_wrong_is_the_only_problem() -> None:
    with pytest.raises(Invalid) as caught:
        parse_config({"groups": [{**GROUPS[0], "tag": "X"}]})
    assert [one.where for one in caught.value.problems] == ["groups[0].tag"]


def test_a_gateway_that_holds_a_password_is_not_repeated() -> None:
    reports = {"gateway": "http://me:secret@127.0.0.1/metrics", "models": ["ocr"]}
    with pytest.raises(Invalid) as caught:
        parse_config({"groups": [{**GROUPS[0], "reports": reports}]})
    text = " ".join(map(str, caught.value.problems))
    assert "without a user" in text
    assert "secret" not in text


def test_a_file_that_is_no_configuration_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "guard.yaml"
    for content, said in ((b"groups: [", "no YAML"), (b"\xff\xfe", "no text"), (b"- 1", "a mapping")):
        file.write_bytes(content)
        with pytest.raises(Invalid, match=said):
            read_config(file)
    with pytest.raises(Invalid, match="cannot be read"):
        read_config(tmp_path / "absent.yaml")


def test_owners_are_users_by_name_or_number() -> None:
    told = parse_config({"groups": [{**GROUPS[0], "owners": ["root", 65534]}, GROUPS[1]]})
    assert [one.members.owners for one in told.groups] == [{0, 65534}, None]


def test_without_a_list_every_mechanism_may_be_used_and_each_control_has_some() -> None:
    assert parse_config({"groups": GROUPS}).actuators.mechanisms == set(MECHANISMS)
    assert set(MECHANISMS.values()) == set(Control)


# --- journal and replay ---


@pytest.fixture(scope="module")
def ticks() -> list[Tick]:
    found: list[Tick] = []
    simulate(replace(workload_set()[7], duration_s=4.0), make_policy("model"), record=found.append)
    return found


def written(path: Path, ticks: Sequence[Tick], **limits: Any) -> Journal:
    journal = Journal(path, Head("model", None, started_at=1000.0), **limits)
    for tick in ticks:
        journal.write(tick)
    journal.close()
    return journal


def test_ticks_are_gathered_and_none_is_lost(tmp_path: Path, ticks: list[Tick]) -> None:
    path = tmp_path / "j"
    journal = Journal(path, Head("model", None), gather_s=1.0)
    journal.write(ticks[0])
    assert len(list(read_journal(path)[1])) == 1, "the first is there at once"
    for tick in ticks[1:5]:
        journal.write(tick)
    assert len(list(read_journal(path)[1])) == 1
    for tick in ticks[5:]:
        journal.write(tick)
    assert len(list(read_journal(path)[1])) > 1
    journal.close()
    assert [one.number for one in read_journal(path)[1]] == [one.number for one in ticks]


def test_what_is_written_is_read_back(tmp_path: Path, ticks: list[Tick]) -> None:
    written(tmp_path / "j", ticks)
    head, records = read_journal(tmp_path / "j")
    found = list(records)
    assert head.policy == "model"
    assert [one.snapshot for one in found] == [one.snapshot for one in ticks]
    assert [one.plan for one in found] == [one.plan for one in ticks]


@pytest.mark.parametrize("name", POLICIES)
def test_replaying_a_journal_gives_the_same_plans_whatever_the_policy(tmp_path: Path, name: str) -> None:
    path = tmp_path / "j"
    journal = Journal(path, Head(name, None), max_bytes=60_000, files=3)
    simulate(replace(workload_set()[7], duration_s=12.0), make_policy(name), record=journal.write)
    journal.close()
    files = files_of(path)
    assert len(files) == 3, "each file can be replayed by itself, in the middle of the story too"
    for file in files:
        found = list(replay(file))
        assert found
        assert [one.record.number for one in found if one.differs] == []


def test_another_policy_decides_otherwise_on_what_was_seen(tmp_path: Path, ticks: list[Tick]) -> None:
    written(tmp_path / "j", ticks)
    found = list(replay(tmp_path / "j", make_policy("none")))
    assert len(found) == len(ticks)
    assert all(one.plan.settings == {} for one in found)
    assert any(one.differs for one in found)


def test_files_are_bounded(tmp_path: Path, ticks: list[Tick]) -> None:
    journal = written(tmp_path / "j", ticks * 10, max_bytes=50_000, files=3)
    files = files_of(tmp_path / "j")
    assert [one.name for one in files] == ["j.2", "j.1", "j"]
    assert all(one.stat().st_size < 60_000 for one in files)
    assert journal.lost == 0


def test_a_full_disk_costs_lines_and_not_the_guard(tmp_path: Path, ticks: list[Tick]) -> None:
    full = tmp_path / "j"
    full.symlink_to("/dev/full")
    journal = Journal(full, Head("model", None))
    machine = Machine()
    loop = Loop(make_policy("model"), machine.sense, machine, record=journal.write)
    for number in range(3):
        loop.tick(0.1 * number)
    assert journal.lost == 3
    assert "No space left" in str(journal.problem)
    assert len(machine.plans) == 3


def test_a_journal_that_cannot_be_opened_is_an_error_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Invalid, match="cannot be written"):
        Journal(tmp_path / "file" / "j", Head("model", None))


def test_a_torn_last_line_is_left_out_and_damage_is_named(tmp_path: Path, ticks: list[Tick]) -> None:
    path = tmp_path / "j"
    written(path, ticks[:5])
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert len(list(replay(path))) == 4
    lines = whole.split(b"\n")
    path.write_bytes(b"\n".join([*lines[:3], b'{"tick": 3}', *lines[3:]]))
    with pytest.raises(Invalid, match="no tick") as caught:
        list(replay(path))
    assert caught.value.where == f"{path}:4"
    path.write_text("hello\n")
    with pytest.raises(Invalid, match="no JSON"):
        read_journal(path)
    path.write_text("{}\n")
    with pytest.raises(Invalid, match="no journal"):
        read_journal(path)


def test_history_tells_changes_with_reasons_and_no_pauses(tmp_path: Path, ticks: list[Tick]) -> None:
    path = tmp_path / "j"
    written(path, ticks)
    found = changes(path, group="flood", last=1000)
    assert found
    assert all(one.group == "flood" and one.reason is not None for one in found)
    assert not any(one.setting.frozen for one in found)
    assert [one.at for one in found] == sorted(one.at for one in found)
    assert found[0].at >= 1000.0
    assert len(changes(path, last=2)) == 2
    with pytest.raises(NotFound, match="no group 'nobody'"):
        changes(path, group="nobody")
    last = present(path, now=1000.0 + ticks[-1].at + 2.5)
    assert last.record.number == ticks[-1].number
    assert last.age_s == pytest.approx(2.5)
    assert not last.running


@settings(max_examples=50, deadline=None)
@given(
    value=st.one_of(st.floats(0, 1e12), st.builds(Missing, st.text())), age=st.floats(0, 1e6),
    setting=st.builds(
        Setting, share=st.floats(0, 1), cores=st.none() | st.integers(0, 99),
        domains=st.none() | st.frozensets(st.integers(0, 9)), frozen=st.booleans(),
    ),
)  # fmt: skip
def test_any_record_survives_json(value: float | Missing, age: float, setting: Setting) -> None:
    state = GroupState(FLOOD, frozenset({0}), bandwidth=Reading(value, age), applied=setting)
    plan = Plan({"flood": setting}, {"flood": Reason("c", "t", {"a": 1.5})})
    record = Record(1, 2.0, Snapshot(2.0, (), (state,)), plan, {"flood": setting})
    kept = adapter(Record)
    assert kept.validate_json(kept.dump_json(record)) == record


# --- metrics and the process ---

LINE = re.compile(r'^[a-z0-9_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? [-+0-9.e]+$')


def render(tick: Tick, counters: Counters) -> str:
    made = Metrics("model")
    made.tick, made.counters = tick, counters
    return made.text()


def test_metrics_say_what_is_known_and_nothing_else(ticks: list[Tick]) -> None:
    counters = Counters()
    for tick in ticks:
        counters.count(tick)
    text = render(ticks[-1], counters)
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.fullmatch(line) for line in samples)
    assert 'shoal_guard_share_ratio{group="flood"}' in text
    assert f"shoal_guard_ticks_total {len(ticks)}" in text
    assert "step_p99" in text
    feed = replace(FEED, cpus=1.0)
    waits = GroupState(feed, frozenset({0}), cpus=Reading(0.1), rate=Reading(90.0), wait=Reading(3.0, age_s=5.0))
    hungry = replace(ticks[-1], at=ticks[-1].at + 2, snapshot=replace(snapshot(0.0), groups=(waits,)))
    counters.count(hungry)
    counters.count(replace(hungry, at=hungry.at + 3))
    text = render(hungry, counters)
    assert 'shoal_guard_waiting_ratio{class="guaranteed",group="feed"} 0.75' in text
    assert 'shoal_guard_units_per_second{class="guaranteed",group="feed"} 90' in text
    assert "throttled" not in text
    assert "steal" not in text
    held = replace(waits, throttled=Reading(0.4))
    text = render(replace(hungry, snapshot=replace(hungry.snapshot, groups=(held,), steal=Reading(0.2))), counters)
    assert 'shoal_guard_throttled_ratio{class="guaranteed",group="feed"} 0.4' in text
    assert "shoal_guard_steal_ratio 0.2" in text
    assert counters.violated_s >= 5, "no CPU time shows it, and it is slower than promised"
    blind = replace(ticks[-1], snapshot=replace(snapshot(0.0), groups=(GroupState(FEED, frozenset({0})),)))
    assert "slowdown" not in render(blind, counters), "unknown has no sample"


def config(**more: Any) -> GuardConfig:
    return parse_config({"groups": GROUPS, **more})


@pytest.fixture
def guard(tmp_path: Path) -> Iterator[tuple[GuardDaemon, Machine]]:
    machine = Machine()
    told = config(metrics={"port": 0, "file": str(tmp_path / "guard.prom")})
    made = GuardDaemon(told, machine, tmp_path / "journal.jsonl", wait=lambda _: False)
    yield made, machine
    made.close()


def test_the_process_ticks_journals_and_shows_metrics(guard: tuple[GuardDaemon, Machine], tmp_path: Path) -> None:
    made, machine = guard
    made.run(ticks=5)
    assert len(machine.plans) == 5
    _, records = read_journal(tmp_path / "journal.jsonl")
    assert len(list(records)) == 5
    with urllib.request.urlopen(f"http://127.0.0.1:{made.metrics_port}/metrics") as answer:
        assert "shoal_guard_ticks_total 5" in answer.read().decode()
    assert "shoal_guard_ticks_total" in (tmp_path / "guard.prom").read_text()
    assert present(tmp_path / "journal.jsonl").running


def test_the_process_ends_when_it_is_asked(tmp_path: Path) -> None:
    machine = Machine()
    made = GuardDaemon(
        config(), machine, None, wait=lambda _: False, on_tick=lambda tick: tick.number == 3 and made.stop()
    )
    made.run()
    made.close()
    assert len(machine.plans) == 4


def test_the_document_of_a_tick_is_plain_json(ticks: list[Tick], tmp_path: Path) -> None:
    written(tmp_path / "j", ticks[:3])
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()]
    assert set(lines[0]) == {"head"}
    assert lines[1]["tick"]["plan"]["reasons"]["flood"]["code"]
