"""The round mechanism: what holds whatever is entered, and that time received comes to what was promised."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.core import Invalid, Quota, Tenant
from shoal.schedule import Allocation, Configurations, Pool, Problem, decide
from shoal.schedule.baselines.gavel import GavelRounds, GavelSettings
from shoal.schedule.rounds import Round, Settings, State, Why, next_round
from tests.schedule.kit import remembered

POOLS = (Pool("a", 4, per_node=2, unconsolidated="a_far"), Pool("b", 6, per_node=4), Pool("c", 3))
COLUMNS = 4
TENANTS = (Tenant("x", quota=Quota(accelerators=7, by_type=(("b", 3),))), Tenant("y"))
ROUND_S = 100.0


def problem_of(
    jobs: list[tuple[str, int, int, list[float]]], *, pools: tuple[Pool, ...] = POOLS, **given: Any
) -> Problem:
    """Jobs are (id, gang, tenant, rates)."""
    return Problem.columnar(
        pools, np.array([rates for *_, rates in jobs]).reshape(-1, COLUMNS), ids=[name for name, *_ in jobs],
        gang=[gang for _, gang, *_ in jobs], tenant=[tenant for _, _, tenant, _ in jobs], tenants=TENANTS, **given,
    )  # fmt: skip


def shares(problem: Problem, share: Any) -> Allocation:
    return Allocation(problem, "given", np.array(share, np.float64), np.zeros(len(problem.pools)))


JOB = st.tuples(
    st.integers(1, 4), st.integers(0, 1), st.lists(st.sampled_from([0.0, 1.0, 3.0]), min_size=4, max_size=4)
)


@hypothesis_settings(max_examples=40, stateful_step_count=20, deadline=None)
class Machine(RuleBasedStateMachine):
    """Jobs and pools come and go, allocations change, rounds pass, jobs fail, the memory goes through a file."""

    @initialize(hold=st.sampled_from([0.0, 250.0]), spare=st.booleans())
    def begin(self, hold: float, spare: bool) -> None:
        self.settings = Settings(ROUND_S, keep_s=200.0, time_slice_s=1000.0, min_run_s=hold, spare=spare)
        self.state, self.now, self.number = State(), 0.0, 0
        self.jobs: dict[str, Any] = {}
        self.last: Round | None = None
        self.places: dict[str, tuple[str, float, tuple[tuple[int, int], ...]]] = {}
        self.pools = POOLS

    @rule(new=st.lists(JOB, max_size=5), gone=st.sets(st.integers(0, 12)), fewer=st.booleans())
    def change(self, new: list[Any], gone: set[int], fewer: bool) -> None:
        for name in [str(each) for each in gone]:
            self.jobs.pop(name, None)
            self.places.pop(name, None)
        for job in new:
            self.jobs[str(self.number)] = job
            self.number += 1
        self.pools = (Pool("a", 2, per_node=2, unconsolidated="a_far"), *POOLS[1:]) if fewer else POOLS
        if fewer:
            self.places = {}

    @precondition(lambda self: self.jobs)
    @rule(seed=st.integers(0, 99), seconds=st.sampled_from([ROUND_S, ROUND_S / 2, 3 * ROUND_S, -ROUND_S]))
    def next(self, seed: int, seconds: float) -> None:
        problem = problem_of([(name, *job) for name, job in self.jobs.items()], pools=self.pools, now=self.now)
        names = [column.name for column in problem.columns]
        placed = [names.index(self.places[name][0]) if name in self.places else -1 for name in problem.ids]
        problem = replace(problem, placed=np.array(placed, np.intp))
        since = np.array([self.places[name][1] if name in self.places else self.now for name in problem.ids])
        nodes = {row: self.places[name][2] for row, name in enumerate(problem.ids) if name in self.places}
        nodes = {row: each for row, each in nodes.items() if each}
        chance = np.random.default_rng(seed)
        share = chance.dirichlet(np.ones(COLUMNS + 1), problem.jobs)[:, :COLUMNS]
        share = np.where(problem.possible & (chance.random(share.shape) < 0.5), share, 0.0)
        given: dict[str, Any] = {"since": since, "nodes": nodes}
        found, after = next_round(self.state, problem, shares(problem, share), self.now, self.settings, **given)
        text = json.dumps(self.state.as_json())
        read = State.from_json(json.loads(text))
        again, _ = next_round(read, problem, shares(problem, share), self.now, self.settings, **given)
        assert again.column.tolist() == found.column.tolist()
        assert again.restarted.tolist() == found.restarted.tolist()
        assert again.nodes == found.nodes
        held = (np.array(placed) >= 0) & (self.now - since < self.settings.min_run_s)
        machines = np.array([problem.pools[problem.pool_of[at]].per_node is not None for at in placed])
        assert (found.column[held & ~machines] == problem.placed[held & ~machines]).all(), "held jobs are not moved"
        self.last, self.state = found, after
        self.places = {
            str(problem.ids[job]): (
                names[int(found.column[job])], float(since[job]) if found.kept[job] else self.now,
                tuple(found.nodes.get(job, ())),
            )
            for job in found
        }  # fmt: skip
        self.now += seconds

    @precondition(lambda self: self.places)
    @rule(seed=st.integers(0, 9))
    def fail(self, seed: int) -> None:
        self.places.pop(list(self.places)[seed % len(self.places)])

    @invariant()
    def fits(self) -> None:
        if getattr(self, "last", None) is None:
            return
        found = self.last
        problem = found.problem
        runs = found.column >= 0
        used = np.bincount(problem.pool_of[found.column[runs]], found.accelerators[runs], minlength=len(problem.pools))
        assert (used <= problem.counts).all(), "no pool gives more than it has"
        assert (found.accelerators[runs] == problem.gang[runs]).all(), "gangs are whole"
        assert (found.accelerators[~runs] == 0).all()
        assert (found.reserved[runs] == -1).all(), "places are reserved for waiting jobs only"
        rows = np.flatnonzero(runs)
        assert (problem.rate[rows, found.column[rows]] > 0).all(), "only where they can run"
        for at, tenant in enumerate(problem.tenants):
            held = np.where(runs & (problem.tenant == at), found.accelerators, 0)
            if tenant.quota.accelerators is not None:
                assert held.sum() <= tenant.quota.accelerators
            for kind, limit in tenant.quota.by_type:
                kinds = [problem.pools[problem.pool_of[max(c, 0)]].type for c in found.column]
                there = np.array([each == kind for each in kinds], np.bool_)
                assert held[there].sum() <= limit
        self._machines(found)
        for job in range(problem.jobs):
            reason = found.reason(job)
            assert reason.code
            assert reason.text
            assert json.dumps(reason.as_json())
            assert (Why(int(found.why[job])) <= Why.SPARE) == bool(runs[job])

    def _machines(self, found: Round) -> None:
        for pool, each in enumerate(found.problem.pools):
            load: dict[int, int] = {}
            for job in found:
                column = found.problem.columns[int(found.column[job])]
                if column.pool != pool or each.per_node is None:
                    continue
                nodes = found.nodes[job]
                assert sum(count for _, count in nodes) == found.accelerators[job]
                gang = int(found.problem.gang[job])
                if each.unconsolidated and not column.spread:
                    assert len(nodes) == -(-gang // each.per_node), "consolidated is on as few machines as possible"
                for node, count in nodes:
                    load[node] = load.get(node, 0) + count
            assert all(count <= (each.per_node or 0) for count in load.values())


TestMachine = Machine.TestCase

PLAIN = (Pool("a", 2), Pool("b", 4))


def plain(rates: Any, **given: Any) -> Problem:
    return Problem.columnar(PLAIN, rates, **given)


class Player:
    """Rounds of an unchanging problem in which everybody runs as told, from round to round."""

    def __init__(self, problem: Problem, settings: Settings) -> None:
        self.problem, self.settings, self.state = problem, settings, State()
        self.now, self.nodes = 0.0, {}
        self.since = np.zeros(problem.jobs)

    def next(self, share: Any, kept_s: Any = None) -> Round:
        given = replace(self.problem, now=self.now)
        found, self.state = next_round(
            self.state, given, shares(given, share), self.now, self.settings, since=self.since, kept_s=kept_s,
            nodes=self.nodes,
        )  # fmt: skip
        self.since = np.where(found.kept, self.since, self.now)
        self.problem, self.nodes = replace(given, placed=found.column), dict(found.nodes)
        self.now += self.settings.round_s
        return found


def received(problem: Problem, share: Any, settings: Settings, rounds: int) -> np.ndarray:
    """The fraction of time that each job ran in each column."""
    player = Player(problem, settings)
    time = np.zeros(problem.rate.shape)
    for _ in range(rounds):
        found = player.next(share)
        for job in found:
            time[job, found.column[job]] += 1.0 / rounds
    return time


@pytest.mark.few(count=2)
@pytest.mark.parametrize("seed", range(4))
def test_time_received_comes_to_the_allocation(seed: int) -> None:
    chance = np.random.default_rng(seed)
    problem = plain(chance.uniform(1, 5, (9, 2)), work_left=1e6)
    allocation = decide("max-min", problem)
    time = received(problem, allocation.share, Settings(100.0, keep_s=200.0, time_slice_s=1000.0), 1000)
    assert np.abs(time - allocation.share).max() < 0.03


def test_gangs_have_their_share_of_time() -> None:
    """A gang that needs the whole pool is owed more and more until its turn comes."""
    problem = plain([[1.0, 0.0]] * 3, gang=[2, 1, 1], work_left=1e6)
    time = received(problem, [[0.5, 0]] * 3, Settings(100.0, keep_s=200.0, time_slice_s=1000.0), 1000)
    assert time[:, 0] == pytest.approx([0.5, 0.5, 0.5], abs=0.02)


def test_deficits_move_jobs_less_often_than_gavels_priorities() -> None:
    problem = plain([[1.0, 0.0]] * 4, work_left=1e6)
    ours = Player(problem, Settings(100.0, keep_s=1000.0))
    moved = sum(int(ours.next([[0.5, 0]] * 4).restarted.sum()) for _ in range(500))
    theirs = GavelRounds(GavelSettings(100.0))
    theirs.enter(problem, shares(problem, [[0.5, 0]] * 4), now=0.0)
    assert moved * 4 < sum(int(theirs.next(at * 100.0).restarted.sum()) for at in range(500))


def test_what_is_left_over_is_given_out() -> None:
    problem = plain([[1.0, 1.0]] * 3)
    found = Player(problem, Settings()).next([[1, 0], [0, 0], [0, 0]])
    assert (found.column >= 0).all()
    assert found.reason(1).code == "spare"
    assert Player(problem, Settings(spare=False)).next([[1, 0], [0, 0], [0, 0]]).column.tolist() == [0, -1, -1]


def test_an_elastic_job_runs_in_its_configuration_and_a_new_size_is_a_restart() -> None:
    ways = Configurations(np.array([0, 0]), np.array([0, 0]), np.array([1, 2]), np.array([1.0, 1.8]))
    problem = Problem.columnar((Pool("a", 2),), [[1.0]], configurations=ways)
    state, placed, gang, sizes = State(), -1, 1, []
    for at, chosen in enumerate((1, 1, 0)):
        now = replace(problem, placed=np.array([placed]), gang=np.array([gang]), now=at * 360.0)
        allocation = Allocation(now, "given", np.ones((1, 1)), np.zeros(1), configuration=np.array([chosen]))
        found, state = next_round(state, now, allocation, at * 360.0, Settings())
        placed, gang = int(found.column[0]), int(found.accelerators[0])
        sizes.append((gang, bool(found.restarted[0])))
    assert sizes == [(2, False), (2, False), (1, True)]


def test_a_gang_without_machines_of_its_own_is_spread_where_that_is_offered() -> None:
    pools = (Pool("a", 6, per_node=2, unconsolidated="far"),)
    rates = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.5]]
    problem = Problem.columnar(pools, rates, gang=[1, 1, 1, 2])
    first = Player(problem, Settings()).next([[1, 0]] * 4)
    assert first.column.tolist() == [0, 0, 0, 0]
    assert len(first.nodes[3]) == 1
    assert len({first.nodes[job][0][0] for job in range(3)}) == 2, "the singles share machines"


def test_a_job_may_ask_to_be_held() -> None:
    problem = plain([[1.0, 0.0]] * 3, held=[True, False, False], placed=[0, -1, -1])
    state = remembered("a", {"0": {"column": "a", "ran": True}}, number=7)
    found, after = next_round(state, problem, shares(problem, [[0, 0], [1, 0], [1, 0]]), 100.0, Settings())
    assert (found.number, after.number) == (8, 8)
    assert found.column[0] == 0
    assert found.reason(0).code == "held"


@given(
    st.floats(0.0, 1.0), st.floats(1.0, 100.0), st.one_of(st.none(), st.floats(0.0, 100.0)), st.booleans()
)  # fmt: skip
def test_time_owed_is_what_shares_promise_less_what_ran(
    share: float, elapsed: float, started: float | None, placed: bool
) -> None:
    """`started`: how long after the last round the job came to run; None if it does not."""
    problem = Problem.columnar((Pool("v", 1),), [[1.0]], ids=["j"], placed=-1 if started is None else 0)
    job = {"since": -5.0 if placed else 0.0, "share": {"v": share}} | ({"column": "v"} if placed else {})
    state = remembered("v", {"j": job})
    since = np.array([-5.0 if placed else started or 0.0])
    found, after = next_round(state, problem, shares(problem, [[1.0]]), elapsed, Settings(), since=since)
    ran = elapsed if placed else 0.0 if started is None else max(0.0, elapsed - started)
    assert found.deficit[0, 0] == pytest.approx(share * elapsed - ran)
    assert after.received_s[0, 3] == pytest.approx(ran)
    assert after.promised_s[0, 3] == pytest.approx(share * elapsed)
    again, _ = next_round(after, problem, shares(problem, [[1.0]]), elapsed, Settings(), since=since)
    assert again.deficit[0, 0] == found.deficit[0, 0], "no time passed"
    back, _ = next_round(after, problem, shares(problem, [[1.0]]), elapsed - 50.0, Settings(), since=since)
    assert back.deficit[0, 0] == found.deficit[0, 0], "a clock that goes back counts nothing"


def test_what_is_owed_is_bounded_and_forgotten_where_there_is_no_share() -> None:
    problem = plain([[1.0, 1.0]])
    owed = {"a": 9_000.0, "b": -9_000.0}
    state = remembered("ab", {"0": {"deficit_s": owed}})
    found, _ = next_round(state, problem, shares(problem, [[0.5, 0.5]]), 0.0, Settings(time_slice_s=100.0))
    assert found.deficit.tolist() == [[1000.0, -1000.0]]
    other, _ = next_round(
        state, problem, shares(problem, [[0.0, 0.5]]), 0.0, Settings(time_slice_s=100.0, remember_s=7.0)
    )
    assert other.deficit.tolist() == [[0.0, -7.0]]


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda: Settings(round_s=0.0), "0 seconds"),
        (lambda: Settings(keep_s=-1.0), "-1 seconds"),
        (lambda: State.from_json({"version": 9}), "version 9"),
        (lambda: State.from_json({"version": 3}), "no state"),
        (lambda: State.from_json(State().as_json() | {"since": ["x"]}), "no state"),
        (lambda: State.from_json(State().as_json() | {"share": [[1.0]]}), "no state"),
        (lambda: State.from_json(State().as_json() | {"settled": float("nan")}), "not finite"),
        (lambda: State.from_json(State().as_json() | {"took_s": [float("inf")]}), "not finite"),
        (lambda: State.from_json(State().as_json() | {"ids": ["a"], "since": [0.0], "column": [2]}), "no state"),
    ],
)
def test_faults_are_named(fault: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        fault()


def test_allocations_belong_to_their_problem() -> None:
    problem, other = plain([[1.0, 1.0]]), plain([[1.0, 1.0]])
    with pytest.raises(Invalid, match="another problem"):
        next_round(State(), problem, shares(other, [[1, 0]]), 0.0, Settings())


def test_a_quota_is_used_up_and_never_exceeded() -> None:
    problem = Problem.columnar((Pool("b", 6),), [[1.0]] * 5, tenant=[0, 0, 0, 0, 1], tenants=TENANTS)
    found = Player(problem, Settings()).next([[1]] * 5)
    assert (found.column[:4] >= 0).sum() == 3, "its quota of this type"
    assert found.column[4] == 0
