"""The parts of live scheduling by themselves: translation, bookkeeping, placing, measuring, memory, settings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from shoal.admission import ClusterIndex, Decision, Policy, Snapshot, Turn
from shoal.admission import decide as admit
from shoal.cli.app import app
from shoal.control.settings import load_settings
from shoal.core import ANY, Invalid, Money, Quota, Tenant
from shoal.schedule import Pool, Problem
from shoal.schedule.live.extension import NONE, Schedule, ScheduleSection
from shoal.schedule.live.facts import Facts, steps_left
from shoal.schedule.live.placing import Placing, leaving
from shoal.schedule.live.plan import Plan, make, rules_of
from shoal.schedule.live.problem import LiveProblem, competing_groups, live_problem, type_of
from shoal.schedule.live.sampler import Sampler
from shoal.schedule.live.state_file import NOTHING, load, save
from shoal.schedule.loop import decide_round
from shoal.schedule.oracle import Oracle, Sample
from shoal.schedule.presets import ScheduleSettings
from shoal.schedule.rounds import State
from tests.admission.cases import (
    NOW,
    B,
    G,
    clusters,
    devices,
    fits,
    free_of,
    index_of,
    job,
    need,
    node,
    running,
)
from tests.schedule.kit import remembered

RUNS = settings(max_examples=60, deadline=None, derandomize=True, phases=[Phase.generate])
POLICIES = ("max-min", "fifo", "hierarchical", "blend", "finish-time")


def look(job_id: str) -> Facts:
    return Facts(kind=f"kind {int(job_id[1:], 36) % 3}", attempts=int(job_id.startswith("r")))


def scene(snapshot: Snapshot, policy: str = "max-min", oracle: Oracle | None = None) -> LiveProblem:
    def asked(job_id: str) -> Facts:
        waiting = snapshot.pending.by_id.get(job_id)
        return replace(look(job_id), per_node=waiting.per_node if waiting is not None else 0)

    return live_problem(snapshot, asked, oracle or Oracle(), rules_of(ScheduleSettings(policy, restart_cost_s=0.0)))


def plan_of(snapshot: Snapshot, policy: str = "max-min") -> Plan | None:
    found = scene(snapshot, policy)
    if not found.views or not found.pools:
        return None
    asked = ScheduleSettings(policy, restart_cost_s=0.0)
    return make(found, asked, NOTHING)[0]


def decision_of(snapshot: Snapshot, policy: str = "max-min") -> Decision:
    plan = plan_of(snapshot, policy)
    decision = admit(snapshot, Placing(snapshot, plan, lambda _, needs: needs))
    return leaving(decision, snapshot, plan, list(plan.leave) if plan else [])


class NoTurns(Placing):
    def turns(self, *_: Any) -> Iterator[Turn]:
        return iter(())


class TestPlacing:
    @RUNS
    @given(clusters(), st.sampled_from(POLICIES))
    def test_nothing_is_given_twice_gangs_are_whole_and_quotas_hold(self, index: ClusterIndex, policy: str) -> None:
        snapshot = index.snapshot(NOW)
        decision = decision_of(snapshot, policy)
        used = Counter(
            (rank.node, device)
            for each in snapshot.running.values()
            for rank in each.placement
            for device in rank.devices
        )
        for start in decision.starts:
            waiting = snapshot.pending.by_id[start.job_id]
            assert [rank.rank for rank in start.placement] == list(range(len(start.placement)))
            assert waiting.ranks <= len(start.placement) <= waiting.most
            kinds = {device.split(":")[0] for rank in start.placement for device in rank.devices}
            assert len(kinds) == 1 if ANY in waiting.resources.accelerators else True
            used.update((rank.node, device) for rank in start.placement for device in rank.devices)
        assert max(used.values(), default=0) <= 1
        asked = [(snapshot.pending.by_id[start.job_id].resources, start.placement) for start in decision.starts]
        for kinds_free, cpu, memory in free_of(snapshot, asked).values():
            assert min([*kinds_free.values(), cpu, memory]) >= 0
        for name in {snapshot.pending.by_id[start.job_id].tenant for start in decision.starts}:
            quota = snapshot.tenants[name].tenant.quota
            mine = [each.placement for each in snapshot.running.values() if each.tenant == name]
            mine += [s.placement for s in decision.starts if snapshot.pending.by_id[s.job_id].tenant == name]
            held = sum(len(rank.devices) for placement in mine for rank in placement)
            assert quota.accelerators is None or held <= quota.accelerators
            assert quota.running_jobs is None or len(mine) <= quota.running_jobs

    @RUNS
    @given(clusters(), st.sampled_from(POLICIES))
    def test_admissions_own_come_first_and_only_best_effort_gives_way(self, index: ClusterIndex, policy: str) -> None:
        snapshot = index.snapshot(NOW)
        base = admit(snapshot, NoTurns(snapshot, None, lambda _, needs: needs))
        decision = decision_of(snapshot, policy)
        assert decision.starts[: len(base.starts)] == base.starts
        assert decision.claims == base.claims
        for preemption in decision.preemptions:
            victim = snapshot.running[preemption.job_id]
            assert victim.priority_class is B
            assert not victim.stopping
        assert len({each.job_id for each in decision.preemptions}) == len(decision.preemptions)

    @RUNS
    @given(clusters(), st.sampled_from(POLICIES))
    def test_every_wait_has_a_reason_and_room_is_not_left_over(self, index: ClusterIndex, policy: str) -> None:
        snapshot = index.snapshot(NOW)
        decision = decision_of(snapshot, policy)
        begun = {start.job_id for start in decision.starts}
        asked = [(snapshot.pending.by_id[start.job_id].resources, start.placement) for start in decision.starts]
        free = free_of(snapshot, asked)
        kept = bool(decision.claims) or any(reason.code == "making-room" for reason in decision.waits.values())
        for group in competing_groups(snapshot):
            left = [each for each in group.ready if each.job_id not in begun]
            if left:
                assert left[0].job_id in decision.waits
                limited = snapshot.tenants[left[0].tenant].tenant.quota != Quota()
                assert kept or limited or not fits(free, left[0].resources, left[0].ranks)

    def test_a_gang_of_the_plan_is_kept_room_until_those_before_it_have_left(self) -> None:
        held = [running(f"r{at}", {"n": devices(at)}, stopping=at < 2) for at in range(3)]
        index = index_of([node("n", {"a100": 4})], [job("j1", resources=4, at=1.0), job("j2", at=2.0)], held)
        snapshot = index.snapshot(NOW)
        plan = plan_of(index_of([node("n", {"a100": 4})], [job("j1", resources=4, at=1.0)]).snapshot(NOW))
        decision = admit(snapshot, Placing(snapshot, plan, lambda _, needs: needs))
        assert decision.starts == ()
        assert decision.waits["j1"].code == "making-room"
        assert decision.waits["j1"].facts["after"] == ["r0", "r1", "r2"]

    @settings(max_examples=60, deadline=None, derandomize=True)
    @example([1, 3], [(2, 2, 1)], "max-min")
    @example([4, 2, 4], [(2, 2, 2)], "max-min")
    @example([4, 3, 3], [(0, 2, 1), (2, 2, 1)], None)
    @given(
        st.lists(st.integers(0, 4), min_size=2, max_size=4),
        st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.integers(1, 3), st.sampled_from([1, 2])), max_size=5),
        st.sampled_from([None, *POLICIES]),
    )
    def test_each_node_gets_as_many_ranks_as_was_asked_for(
        self, sizes: list[int], asked: list[tuple[int, int, int]], policy: str | None
    ) -> None:
        made = [node(f"n{at}", {"a100": size}) for at, size in enumerate(sizes)]
        waiting = [
            job(f"j{at}", resources=count, ranks=times * (each or 1), per_node=each, at=float(at))
            for at, (each, times, count) in enumerate(asked)
        ]
        snapshot = index_of(made, waiting).snapshot(NOW)
        plan = plan_of(snapshot, policy) if policy is not None else None
        decision = admit(snapshot, Placing(snapshot, plan, lambda _, needs: needs))
        for start in decision.starts:
            each = snapshot.pending.by_id[start.job_id].per_node
            counts = Counter(rank.node for rank in start.placement).values()
            assert not each or set(counts) == {each}
        left = Counter({f"n{at}": size for at, size in enumerate(sizes)})
        left.subtract(rank.node for start in decision.starts for rank in start.placement for _ in rank.devices)
        for first in decision.waits:
            each, times, count = asked[int(first[1:])]
            if each and decision.waits[first].code != "making-room" and len(decision.waits) == 1:
                assert sum(free >= each * count for free in left.values()) < times
        if policy is not None and (found := scene(snapshot, policy)).views:
            for view in found.views:
                each, times, count = asked[int(view.id[1:])]
                could = sum(size >= each * count for size in sizes) >= times
                assert not each or bool(view.throughput) == could

    def test_what_is_reserved_for_a_guaranteed_gang_stays_free(self) -> None:
        """Best-effort jobs took it, one after the other: without preemption the gang never started."""
        held = [running("r0", {"n": devices(0)}, cls=G, end=NOW + 100)]
        gang, small = job("j1", "b", 4, at=NOW - 500, cls=G), job("j2", at=2.0)
        index = index_of([node("n", {"a100": 4})], [gang, small], held, policy=Policy(preemption=False))
        assert decision_of(index.snapshot(NOW)).starts == ()


class TestScene:
    @RUNS
    @given(clusters(), st.sampled_from(POLICIES))
    def test_pools_are_what_the_others_leave(self, index: ClusterIndex, policy: str) -> None:
        snapshot = index.snapshot(NOW)
        found = scene(snapshot, policy)
        shut = {name for name, state in snapshot.nodes.items() if not state.schedulable}
        there = Counter(d.type for name, s in snapshot.nodes.items() if name not in shut for d in s.node.devices)
        for each in snapshot.running.values():
            if (kind := type_of(snapshot, each.placement)) is None:
                continue
            if each.priority_class is G:
                there[kind] -= sum(len(rank.devices) for rank in each.placement if rank.node not in shut)
            elif not each.stopping:  # it may stay where nobody else may come
                there[kind] += sum(len(rank.devices) for rank in each.placement if rank.node in shut)
        assert {pool.type: pool.count for pool in found.pools} == {kind: n for kind, n in there.items() if n > 0}
        competing = {each.job_id for group in competing_groups(snapshot) for each in group.ready}
        assert competing <= {view.id for view in found.views}
        assert all(found.on[view.id].type == view.placed for view in found.views if view.placed is not None)
        found.problem()

    def test_weights_priorities_quotas_and_speeds(self) -> None:
        oracle = Oracle()
        oracle.observe(
            [Sample("", "kind 1 x2", each, rate, 1.0, 0.0) for each, rate in (("a100", 5.0), ("h100", 20.0))]
        )
        index = index_of(
            [node("n", {"a100": 4, "h100": 2})],
            [job("j1", resources=need(2, ANY), priority=10), job("j2", "b", resources=8)],
            [running("r1", {"n": devices(0)}, cls=G)],
            [Tenant("a", 3.0, Quota(accelerators=4, by_type=(("a100", 1),)))],
        )
        found = scene(index.snapshot(NOW), oracle=oracle)
        first, second = found.views
        assert (first.gang, first.weight) == (2, 6.0)
        assert {kind: speed.per_s for kind, speed in first.throughput.items()} == {"a100": 5.0, "h100": 20.0}
        assert second.throughput == {}  # no node has eight
        assert found.tenants[0].quota == Quota(accelerators=3, by_type=(("a100", 0),))

    def test_lengths_are_reported_or_expected(self) -> None:
        assert steps_left({"step": 30, "total": 100}) == 70.0
        assert steps_left({"step": 100, "total": 100}) == 1.0
        assert steps_left({"step": 3}) is None
        snapshot = index_of([node("n", {"a100": 4})], [job("j1", expected_s=50.0)]).snapshot(NOW)
        assert scene(snapshot, "max-min").views[0].work_left is None
        assert scene(snapshot, "blend").views[0].work_left == 50.0


class TestMeter:
    def test_samples_come_from_steps_and_the_first_of_an_attempt_is_marked(self) -> None:
        meter = Sampler(1.0)

        def read(attempt: int, step: float | None, at: float, **more: float) -> Sample | None:
            return meter.read("j", "k", "v", attempt, {"step": step, "reported_at": at, **more})

        assert read(1, 10, 100.0) is None
        assert read(1, 12, 100.5) is None
        first, second = read(1, 14, 102.0), read(1, 20, 104.0)
        assert first is not None
        assert second is not None
        assert (first.steps, first.seconds, first.restarted) == (4.0, 2.0, True)
        assert (second.per_s, second.restarted) == (3.0, False)
        assert read(1, 20, 110.0) is None
        assert read(2, 5, 120.0) is None
        again = read(2, 7, 122.0)
        assert again is not None
        assert again.restarted
        assert read(2, 1, 123.0) is None  # went back: counted from here
        assert meter.read("j", "k", "v", 2, {}) is None

    def test_a_rate_without_steps_is_believed(self) -> None:
        meter = Sampler(1.0)
        assert meter.read("j", "k", "v", 1, {"rate_per_s": 7.0, "reported_at": 1.0}) is None
        found = meter.read("j", "k", "v", 1, {"rate_per_s": 7.0, "reported_at": 3.0})
        assert found is not None
        assert found.per_s == 7.0


class TestMemory:
    def test_it_comes_back_as_it_was(self, tmp_path: Path) -> None:
        oracle = Oracle()
        oracle.observe([Sample("j", "k", "v", 5.0, 1.0, 0.0)])
        job = {"column": "v", "since": 2.0, "deficit_s": {"v": 3.0}, "ran": True}
        state = remembered("v", {"j": job}, number=7, settled=12.0)
        save(tmp_path / "m.json", state, oracle)
        found, beliefs = load(tmp_path / "m.json")
        assert found.as_json() == state.as_json()
        assert found.deficit_s.tolist() == [[3.0]]
        assert beliefs.as_json() == oracle.as_json()
        assert [path.name for path in tmp_path.iterdir()] == ["m.json"]
        assert (tmp_path / "m.json").stat().st_mode & 0o077 == 0

    def test_max_min_fairness_beside_blend_comes_back_and_a_damaged_one_is_left_aside(self, tmp_path: Path) -> None:
        problem = Problem.columnar((Pool("v", 1),), np.ones((2, 1)), ids=["x", "y"], work_left=[100.0, 50.0])
        rules = ScheduleSettings("blend", round_s=60.0)
        state = decide_round(rules, problem, State(), 0.0).state
        save(tmp_path / "m.json", state, Oracle())
        found = load(tmp_path / "m.json")[0]
        assert found.as_json() == state.as_json()
        later = problem.again(now=30.0)
        known = [decide_round(rules, later, one, 30.0).state.reference for one in (state, found)]
        ends, again = [[] if one is None else one.ends_s().tolist() for one in known]
        assert again == pytest.approx(ends)
        assert ends == pytest.approx([170.0, 70.0]), "both have had half of thirty seconds"
        text = json.loads((tmp_path / "m.json").read_text())
        for name, value in (("there", [0, 7]), ("share", [[1.0]]), ("now", "soon"), ("pools", None)):
            told = {**text["rounds"], "reference": {**text["rounds"]["reference"], name: value}}
            (tmp_path / "m.json").write_text(json.dumps({**text, "rounds": told}))
            assert load(tmp_path / "m.json")[0] is NOTHING

    @pytest.mark.parametrize("text", ["", "[1]", "{", '{"version": 1}', '{"version": 3, "rounds": 3, "oracle": {}}'])
    def test_what_cannot_be_read_is_left_aside(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "m.json").write_text(text)
        assert load(tmp_path / "m.json")[0] is NOTHING
        assert load(tmp_path / "absent.json")[0] is NOTHING


def section(home: Path, *sets: str, environ: dict[str, str] | None = None) -> ScheduleSection:
    found = load_settings({"home": home}, sets=sets, environ=environ or {}).values.section(Schedule)
    assert isinstance(found, ScheduleSection)
    return found


class TestSettings:
    def test_below_one_key_or_by_name_and_off_by_default(self, tmp_path: Path) -> None:
        assert section(tmp_path).policy == NONE
        (tmp_path / "config.yaml").write_text("schedule: {policy: max-min, round_s: 5, prices: {a100: 2.5}}\n")
        found = section(tmp_path, "schedule.agnostic=on", environ={"SHOAL_SCHEDULE__ROUND_S": "7"})
        assert found.rounds() == ScheduleSettings("max-min", True, 7.0, 30.0, (("a100", Money.usd("2.5")),))
        assert section(tmp_path, "schedule.policy=none").policy == NONE

    @pytest.mark.parametrize(
        ("sets", "where", "what"),
        [
            (["policy=fastest"], "--set schedule.policy", "max-min"),
            (["policy=allox"], "--set schedule.policy", "must be none or one of"),
            (["policy=elastic", "agnostic=on"], "--set schedule", "no agnostic form"),
            (["policy=fifo", "round_s=0"], "--set schedule.round_s", "more than 0"),
            (["policy=fifo", "prices=a100"], "--set schedule.prices", "TYPE=DOLLARS"),
            (["policy=blend", "agnostic=on"], "--set schedule", "no agnostic form"),
            (["policy=min-cost"], "--set schedule", "needs the price"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, sets: list[str], where: str, what: str) -> None:
        with pytest.raises(Invalid, match=what) as caught:
            section(tmp_path, *(f"schedule.{one}" for one in sets))
        assert caught.value.where == where

    def test_without_a_policy_nothing_of_it_is_imported(self) -> None:
        code = (
            "import sys, shoal.control.server, shoal.control.plane, shoal.control.api.app; "
            "sys.exit(' '.join(name for name in sys.modules if name.startswith(('shoal.schedule', 'numpy', 'scipy'))))"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert found.stderr.strip() == ""


def test_a_snapshot_is_played_with_another_policy(tmp_path: Path) -> None:
    lines = [
        {"shoal": "schedule", "version": 1, "now": 1000.0}, {"pool": "v", "count": 1},
        {"job": "a", "throughput": {"v": 2.0}, "work_left": 9.0, "placed": "v", "placed_s": 10.0},
        {"job": "b", "throughput": {"v": 2.0}, "work_left": 1.0},
    ]  # fmt: skip
    (path := tmp_path / "live.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))

    def shoal(*words: str, code: int = 0) -> str:
        found = CliRunner().invoke(app, ["schedule", "what-if", "--snapshot", str(path), *words])
        assert found.exit_code == code, found.output
        return found.output

    found = json.loads(shoal("--policy", "max-min", "--restart-cost", "0", "--json"))
    assert found["simulated"]
    assert found["prices"]["v"] > 0.0
    assert {name: (row["now"], row["then"]) for name, row in found["jobs"].items()} == {
        "a": ("v", "v"), "b": (None, None),
    }  # fmt: skip
    assert found["jobs"]["b"]["reason"]["facts"]["prices"] == found["prices"]
    assert "would change the place of 0 of 2 jobs" in shoal("--policy", "max-min")
    assert "there is no policy" in shoal("--policy", "best", code=2)
