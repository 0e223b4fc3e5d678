"""The round mechanism: what holds whatever is entered, and that time received comes to what was promised."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from shoal.core import Invalid, Quota, Tenant
from shoal.schedule import Allocation, Pairs, Pool, Problem, decide
from shoal.schedule.rounds import Ranking, Round, Rounds, Settings, State, Why

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


def shares(problem: Problem, share: Any, pairs: Pairs | None = None) -> Allocation:
    extra = {} if pairs is None else {"pairs": pairs}
    return Allocation(problem, "given", np.array(share, np.float64), np.zeros(len(problem.pools)), **extra)


JOB = st.tuples(
    st.integers(1, 4), st.integers(0, 1), st.lists(st.sampled_from([0.0, 1.0, 3.0]), min_size=4, max_size=4)
)


@hypothesis_settings(max_examples=40, stateful_step_count=20, deadline=None)
class Machine(RuleBasedStateMachine):
    """Jobs and pools come and go, allocations change, rounds pass, jobs fail, the mechanism is restarted."""

    @initialize(ranking=st.sampled_from(Ranking), hold=st.sampled_from([0.0, 250.0]), spare=st.booleans())
    def begin(self, ranking: Ranking, hold: float, spare: bool) -> None:
        self.settings = Settings(ROUND_S, ranking, keep_s=200.0, quantum_s=1000.0, min_run_s=hold, spare=spare)
        self.rounds = Rounds(self.settings)
        self.now, self.number, self.jobs = 0.0, 0, {}
        self.last: Round | None = None
        self.since: dict[str, tuple[float, int]] = {}
        self.problem: Problem | None = None

    @rule(new=st.lists(JOB, max_size=5), gone=st.sets(st.integers(0, 12)), seed=st.integers(0, 99), fewer=st.booleans())
    def enter(self, new: list[Any], gone: set[int], seed: int, fewer: bool) -> None:
        for name in [str(each) for each in gone]:
            self.jobs.pop(name, None)
        for job in new:
            self.jobs[str(self.number)] = job
            self.number += 1
        pools = (Pool("a", 2, per_node=2, unconsolidated="a_far"), *POOLS[1:]) if fewer else POOLS
        self.problem = problem_of([(name, *job) for name, job in self.jobs.items()], pools=pools, now=self.now)
        chance = np.random.default_rng(seed)
        share = chance.dirichlet(np.ones(COLUMNS + 1), self.problem.jobs)[:, :COLUMNS]
        share = np.where(self.problem.possible & (chance.random(share.shape) < 0.5), share, 0.0)
        self.rounds.enter(self.problem, shares(self.problem, share), now=self.now)

    @precondition(lambda self: self.problem is not None)
    @rule(seconds=st.sampled_from([ROUND_S, ROUND_S / 2, 3 * ROUND_S]))
    def next(self, seconds: float) -> None:
        before, self.last = self.last, self.rounds.next(self.now)
        for job in self.last:
            name = self.last.problem.ids[job]
            place = int(self.last.column[job])
            if self.settings.min_run_s and before is not None and name in before.problem.ids and name in self.since:
                began, column = self.since[name]
                same_pools = before.problem.pools == self.last.problem.pools
                if same_pools and self.now - began < self.settings.min_run_s:
                    assert place == column, "held jobs are not moved"
            if self.last.restarted[job] or name not in self.since or self.since[name][1] != place:
                self.since[name] = (self.now, place)
        running = {self.last.problem.ids[job] for job in self.last}
        self.since = {name: each for name, each in self.since.items() if name in running}
        self.now += seconds

    @precondition(lambda self: self.last is not None and self.last.problem is self.problem)
    @rule(seed=st.integers(0, 9))
    def fail(self, seed: int) -> None:
        running = list(self.last)
        if running:
            self.rounds.left(running[seed % len(running)], at=self.now)
            self.since.pop(self.last.problem.ids[running[seed % len(running)]], None)

    @precondition(lambda self: self.problem is not None)
    @rule()
    def restart(self) -> None:
        """A restored mechanism decides as the old one would."""
        text = json.dumps(self.rounds.state().as_json())
        again = Rounds.restore(State.from_json(json.loads(text)), self.settings)
        again.enter(self.problem, now=self.now)
        copy = Rounds.restore(State.from_json(json.loads(text)), self.settings)
        copy.enter(self.problem, now=self.now)
        self.rounds.enter(self.problem, now=self.now)
        mine, theirs = self.rounds.next(self.now), again.next(self.now)
        assert mine.column.tolist() == theirs.column.tolist()
        assert mine.restarted.tolist() == theirs.restarted.tolist()
        assert mine.nodes == theirs.nodes
        self.rounds, self.last = copy, None

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


def received(problem: Problem, allocation: Allocation, settings: Settings, rounds: int) -> np.ndarray:
    """The fraction of time that each job ran in each column."""
    mechanism = Rounds(settings)
    mechanism.enter(problem, allocation, now=0.0)
    time = np.zeros(problem.rate.shape)
    for at in range(rounds):
        found = mechanism.next(at * settings.round_s)
        for job in found:
            time[job, found.column[job]] += 1.0 / rounds
    return time


@pytest.mark.parametrize("ranking", list(Ranking))
@pytest.mark.parametrize("seed", range(4))
def test_time_received_comes_to_the_allocation(ranking: Ranking, seed: int) -> None:
    chance = np.random.default_rng(seed)
    problem = plain(chance.uniform(1, 5, (9, 2)), work_left=1e6)
    allocation = decide("max-min", problem)
    time = received(problem, allocation, Settings(100.0, ranking, keep_s=200.0, quantum_s=1000.0), 3000)
    assert np.abs(time - allocation.share).max() < 0.03


@pytest.mark.parametrize("ranking", list(Ranking))
def test_gangs_have_their_share_of_time(ranking: Ranking) -> None:
    """A gang that needs the whole pool is owed more and more until its turn comes."""
    problem = plain([[1.0, 0.0]] * 3, gang=[2, 1, 1], work_left=1e6)
    allocation = shares(problem, [[0.5, 0], [0.5, 0], [0.5, 0]])
    time = received(problem, allocation, Settings(100.0, ranking, keep_s=200.0, quantum_s=1000.0), 2000)
    assert time[:, 0] == pytest.approx([0.5, 0.5, 0.5], abs=0.02)


@pytest.mark.parametrize("ranking", list(Ranking))
def test_time_received_counts_for_who_stops_early(ranking: Ranking) -> None:
    """A job that failed after a tenth of its round has had that tenth, and the one that had nothing comes next."""
    problem = plain([[1.0, 0.0]] * 2, gang=2, work_left=1e6)
    mechanism = Rounds(Settings(100.0, ranking, keep_s=0.0, quantum_s=1000.0))
    mechanism.enter(problem, shares(problem, [[0.5, 0]] * 2), now=0.0)
    assert mechanism.next(0.0).column.tolist() == [0, -1]
    mechanism.left(0, at=10.0)
    state = mechanism.state().jobs["0"]
    assert state.received_s["a"] == pytest.approx(50.0 + 10.0), "half a round to begin with, and ten seconds"
    assert state.owed_s["a"] == pytest.approx(-10.0)
    assert mechanism.next(100.0).column.tolist() == [-1, 0]


def test_credit_moves_jobs_less_often_than_priority() -> None:
    problem = plain([[1.0, 0.0]] * 4, work_left=1e6)
    allocation = shares(problem, [[0.5, 0]] * 4)
    restarts = {}
    for ranking in Ranking:
        mechanism = Rounds(Settings(100.0, ranking, keep_s=1000.0))
        mechanism.enter(problem, allocation, now=0.0)
        restarts[ranking] = sum(int(mechanism.next(at * 100.0).restarted.sum()) for at in range(500))
    assert restarts[Ranking.CREDIT] * 4 < restarts[Ranking.PRIORITY]


@pytest.mark.parametrize("ranking", list(Ranking))
def test_what_is_left_over_is_given_out(ranking: Ranking) -> None:
    problem = plain([[1.0, 1.0]] * 3)
    mechanism = Rounds(Settings(ranking=ranking))
    mechanism.enter(problem, shares(problem, [[1, 0], [0, 0], [0, 0]]), now=0.0)
    found = mechanism.next(0.0)
    assert (found.column >= 0).all()
    assert found.reason(1).code == ("spare" if ranking is Ranking.CREDIT else "started")
    idle = Rounds(Settings(ranking=ranking, spare=False))
    idle.enter(problem, shares(problem, [[1, 0], [0, 0], [0, 0]]), now=0.0)
    assert idle.next(0.0).column.tolist() == [0, -1, -1]


def test_pairs_run_beside_each_other_on_the_same_accelerators() -> None:
    problem = Problem.columnar((Pool("a", 1),), [[1.0], [1.0], [1.0]], kind=0, pair_rate=np.full((1, 1, 1), 0.8))
    pair = Pairs(np.array([0]), np.array([1]), np.array([0]), np.array([1.0]))
    mechanism = Rounds(Settings(spare=False))
    mechanism.enter(problem, shares(problem, [[0.0]] * 3, pair), now=0.0)
    found = mechanism.next(0.0)
    assert found.column.tolist() == [0, 0, -1]
    assert found.partner.tolist() == [1, 0, -1]
    assert "beside 1" in found.reason(0).text
    assert not mechanism.next(360.0).restarted.any()


def test_an_elastic_job_runs_in_its_configuration_and_a_new_size_is_a_restart() -> None:
    from shoal.schedule import Configurations

    ways = Configurations(np.array([0, 0]), np.array([0, 0]), np.array([1, 2]), np.array([1.0, 1.8]))
    problem = Problem.columnar((Pool("a", 2),), [[1.0]], configurations=ways)
    mechanism = Rounds(Settings())
    sizes = []
    for at, chosen in enumerate((1, 1, 0)):
        allocation = Allocation(problem, "given", np.ones((1, 1)), np.zeros(1), configuration=np.array([chosen]))
        mechanism.enter(problem, allocation, now=at * 360.0)
        found = mechanism.next(at * 360.0)
        sizes.append((int(found.accelerators[0]), bool(found.restarted[0])))
    assert sizes == [(2, False), (2, False), (1, True)]


def test_a_gang_without_machines_of_its_own_is_spread_where_that_is_offered() -> None:
    pools = (Pool("a", 6, per_node=2, unconsolidated="far"),)
    rates = [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.5]]
    problem = Problem.columnar(pools, rates, gang=[1, 1, 1, 2])
    mechanism = Rounds(Settings())
    mechanism.enter(problem, shares(problem, [[1, 0]] * 4), now=0.0)
    first = mechanism.next(0.0)
    assert first.column.tolist() == [0, 0, 0, 0]
    assert len(first.nodes[3]) == 1
    assert len({first.nodes[job][0][0] for job in range(3)}) == 2, "the singles share machines"


def test_a_job_may_ask_to_be_held() -> None:
    problem = plain([[1.0, 0.0]] * 3, held=[True, False, False], placed=[0, -1, -1])
    state = State.from_json(
        {"version": 1, "number": 7, "settled": 0.0, "jobs": {"0": {"column": "a", "accelerators": 1, "ran": True}}}
    )
    mechanism = Rounds.restore(state)
    mechanism.enter(problem, shares(problem, [[0, 0], [1, 0], [1, 0]]), now=100.0)
    found = mechanism.next(100.0)
    assert found.number == 8
    assert found.column[0] == 0
    assert found.reason(0).code == "held"


def test_a_round_says_for_how_long_it_is_good() -> None:
    problem = plain([[1.0, 0.0]] * 4, work_left=1e6)
    settings = Settings(100.0, keep_s=500.0, quantum_s=1000.0)
    mechanism = Rounds(settings)
    mechanism.enter(problem, shares(problem, [[1, 0], [0.7, 0], [0.3, 0], [0, 0]]), now=0.0)
    first = mechanism.next(0.0)
    twin = Rounds.restore(mechanism.state(), settings)
    twin.enter(problem, now=0.0)
    assert 100.0 < first.good_for_s < float("inf")
    at = 100.0
    while at < first.good_for_s:
        assert twin.next(at).column.tolist() == first.column.tolist()
        at += 100.0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda: Rounds().next(0.0), "nothing to make a round of"),
        (lambda: Settings(round_s=0.0), "0 seconds"),
        (lambda: Settings(keep_s=-1.0), "-1 seconds"),
        (lambda: State.from_json({"version": 9}), "version 9"),
        (lambda: State.from_json({"version": 1, "number": 1, "settled": 0, "jobs": {"a": {"since": "x"}}}), "no state"),
        (lambda: State.from_json({"version": 1, "number": 1, "settled": float("nan"), "jobs": {}}), "not finite"),
    ],
)
def test_faults_are_named(fault: Any, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        fault()


def test_time_does_not_go_back_and_allocations_belong_to_their_problem() -> None:
    problem, other = plain([[1.0, 1.0]]), plain([[1.0, 1.0]])
    mechanism = Rounds()
    with pytest.raises(Invalid, match="another problem"):
        mechanism.enter(problem, shares(other, [[1, 0]]), now=0.0)
    mechanism.enter(problem, shares(problem, [[1, 0]]), now=0.0)
    mechanism.next(100.0)
    with pytest.raises(Invalid, match="back by 50"):
        mechanism.next(50.0)
