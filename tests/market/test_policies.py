"""Properties of the safety net, the optimum and the policies over made-up markets."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Invalid, Reason
from shoal.market.history import Availability, History, Offer, Track
from shoal.market.optimum import optimum
from shoal.market.policy.baselines import Greedy, Ross
from shoal.market.policy.beliefs import COUNT, Rates, age_of, learn
from shoal.market.policy.coarse import CoarsePlan, plan_for
from shoal.market.policy.fallback import choose, measured
from shoal.market.policy.markov import Markov, prior_of
from shoal.market.policy.names import NAMES, policy_named
from shoal.market.policy.plan import Plan, Terms, transitions
from shoal.market.policy.view import Decision, View, dearer, safe
from shoal.market.simulate import simulate, view_at
from shoal.market.ticks import Job, Ticks, cut
from tests.market.made import CHOICES, Anything, market_of, markets, refusing


@settings(max_examples=400, deadline=None)
@given(refusing(), CHOICES)
def test_no_policy_misses_a_deadline_that_on_demand_could_meet(market: Ticks, choices: list[int | None]) -> None:
    if market.needed(market.work, None, 0) <= market.deadline:
        assert simulate(market, Anything(choices)).met


@settings(max_examples=60, deadline=None)
@given(markets() | refusing(), st.sampled_from(NAMES))
def test_every_policy_keeps_deadlines_and_none_beats_the_optimum(market: Ticks, name: str) -> None:
    outcome, best = simulate(market, policy_named(name)), optimum(market)
    assert best.lower <= best.upper
    assert outcome.usd == pytest.approx(sum(step.usd for step in outcome.steps))
    if market.needed(market.work, None, 0) <= market.deadline:
        assert outcome.met
    if outcome.met:
        assert outcome.usd >= best.lower - 1e-9


@settings(max_examples=40, deadline=None)
@given(markets(ticks=6) | refusing(ticks=6))
def test_the_optimum_is_that_of_trying_every_schedule(market: Ticks) -> None:
    choices = [None, *range(len(market.offers))]
    least = math.inf
    for schedule in itertools.product(choices, repeat=market.deadline):
        least = min(least, _cost(market, schedule))
    best = optimum(market)
    if math.isinf(least):
        assert math.isinf(best.upper)
    else:
        assert best.lower - 1e-9 <= least <= best.upper + 1e-9
        assert best.upper == pytest.approx(best.lower)  # halves lie on the second grid


def _cost(market: Ticks, schedule: tuple[int | None, ...]) -> float:
    """A schedule without a policy or a net; infinite where it does not end in time or asks for what is not there."""
    work, running, launching, spent = market.work, None, 0, 0.0
    for tick, chosen in enumerate(schedule):
        if running is not None and not market.up[tick, running]:
            work = min(market.work, work + market.lost) if launching == 0 else work
            running = None
        if chosen is not None:
            if not market.up[tick, chosen]:
                return math.inf
            if chosen != running:
                if not market.begins(tick, chosen):
                    return math.inf
                launching, spent = market.launch, spent + market.launch_usd[chosen]
            if launching:
                launching, spent = launching - 1, spent + market.usd[tick, chosen]
            else:
                speed = market.speed[chosen]
                spent += market.usd[tick, chosen] * min(1.0, work / speed)
                work = max(0.0, work - speed)
                if work <= 1e-9:
                    return float(spent)
        running = chosen
    return math.inf


def test_bounds_meet_where_speeds_lie_on_no_grid() -> None:
    market = market_of([[True], [False], [True]] * 20, work=20.3, speeds=[0.737, 1.0], launch=0)
    coarse, fine = optimum(market, tolerance=1.0), optimum(market, tolerance=0.01)
    assert coarse.lower <= fine.lower <= fine.upper <= coarse.upper
    assert fine.gap <= 0.01
    assert fine.grid < 1


def test_a_job_that_cannot_end_has_no_optimum_and_runs_on_demand() -> None:
    market = market_of([[True]] * 5, work=9)
    assert math.isinf(optimum(market).upper)
    outcome = simulate(market, policy_named("greedy"))
    assert not outcome.met
    assert {step.offer for step in outcome.steps} == {1}


def test_preemptions_lose_work_and_launches_cost_egress() -> None:
    market = market_of([[True]] * 4 + [[False]] * 2 + [[True]] * 30, work=5, lost=2, launch_usd=0.7)
    outcome = simulate(market, policy_named("greedy"))
    assert (outcome.launches, outcome.preemptions, outcome.lost_s) == (2, 1, 1200.0)
    assert outcome.egress_usd == pytest.approx(1.4)
    assert outcome.usd == pytest.approx(1.4 + 2 + 7)  # two launches, three ticks, and four after the loss
    assert outcome.finish_s == 11 * 600.0


def test_uniform_progress_follows_the_line() -> None:
    market = market_of([[False]] * 20, work=10, launch=1)
    steps = simulate(market, policy_named("uniform-progress")).steps
    held = [step.offer for step in steps]
    assert held[0] is None
    assert 1 in held[:3]
    assert None in held[5:15]  # it waits again once two launches ahead


def test_failover_takes_zones_in_order_and_never_moves_back() -> None:
    up = [[True, True]] * 2 + [[False, True]] + [[True, True]] * 9
    held = [step.offer for step in simulate(market_of(up, work=6), policy_named("failover")).steps]
    assert held[:6] == [0, 0, 1, 1, 1, 1]


def test_ucb_prefers_zones_that_last() -> None:
    rows = [[tick % 2 == 0, tick not in (29, 30, 31)] for tick in range(60)]
    held = [step.offer for step in simulate(market_of(rows, work=15), policy_named("ucb")).steps]
    assert held.count(1) > held.count(0)


def test_capacity_that_was_there_for_long_is_believed_to_stay() -> None:
    rng = np.random.default_rng(1)
    up = np.concatenate([np.full(int(n), k % 2 == 0) for k, n in enumerate(rng.pareto(1.1, 400) * 3 + 1)])[:, None]
    rates = learn(up, 600.0)
    assert rates.hazards[1][0] > 3 * rates.hazards[1][-1]
    assert transitions(rates, 600.0).sum(axis=1) == pytest.approx(np.ones(2 * COUNT))
    assert age_of(np.array([True, True, False, False, True])).tolist() == [0, 1, 0, 1, 0]


def test_others_count_for_less_than_what_was_seen_here() -> None:
    others = Rates(np.full((2, COUNT), 1e6), np.full((2, COUNT), 5e5))
    own = Rates(np.full((2, COUNT), 900.0), np.zeros((2, COUNT)))
    assert others.hazards[1][0] == pytest.approx(0.5, abs=0.01)
    assert (others.weighed(100.0) + own).hazards[1][0] == pytest.approx(0.05, abs=0.01)


def test_a_plan_costs_what_a_sure_market_costs() -> None:
    always = Rates(np.full((2, COUNT), 1e9), np.zeros((2, COUNT)))
    plan = Plan(Terms((1.0, 3.0), (1.0, 1.0), (0.0, 0.0), 1, 0.0), always, 10.0, 30, 600.0)
    costs = plan.choices(30, 2 * COUNT - 1, 0, 0, 10.0, (1.0, 3.0))
    assert costs[1] == pytest.approx(11.0, abs=0.05)  # a launch and ten ticks
    assert costs[2] > costs[1]
    away = plan.choices(12, COUNT - 1, 0, 0, 10.0, (1.0, 3.0))
    assert np.isinf(away[1])
    assert away[2] == pytest.approx(away.min())


COMMON = Rates(np.full((2, COUNT), 50.0), np.array([[5.0, 3.0, 2.0, 1.0, 0.5]] * 2))


@pytest.mark.parametrize(("launch", "lost", "demand"), [(1, 0.0, 3.0), (1, 2.0, 3.0), (3, 1.0, 1.5), (0, 0.0, 3.0)])
@pytest.mark.parametrize("each", [2, 3, 8])
def test_longer_steps_err_by_no_more_than_they_say(launch: int, lost: float, demand: float, each: int) -> None:
    terms = Terms((1.0, demand), (1.0, 1.0), (0.1, 0.0), launch, lost)
    fine = Plan(terms, COMMON, 96.0, 130, 600.0).expected(130, 96.0)
    coarse = CoarsePlan(terms, COMMON, 96.0, 130, 600.0, each)
    assert np.abs(coarse.expected(130, 96.0) / fine - 1).max() <= coarse.error


def test_a_step_of_one_tick_costs_what_the_fine_plan_costs() -> None:
    terms = Terms((1.0, 3.0), (1.0, 1.0), (0.1, 0.2), 2, 0.5)
    rates = replace(COMMON, moves=3.0, together=50.0)
    fine, one = Plan(terms, rates, 30.0, 60, 600.0), CoarsePlan(terms, rates, 30.0, 60, 600.0, 1)
    assert one.expected(60, 30.0)[COUNT:] == pytest.approx(fine.expected(60, 30.0)[COUNT:], rel=0.02)


def test_a_plan_of_months_is_small_and_says_how_exact_it_is() -> None:
    terms = Terms((1.0, 3.0), (1.0, 1.0), (0.0, 0.0), 1, 0.0)
    plan = plan_for(terms, COMMON, 30_000.0, 42_000, 600.0)
    assert sum(layer.nbytes for layer in plan.cost) < 2e8
    assert 0.01 <= plan.error < 0.15
    assert 30_000 < plan.expected(42_000, 30_000.0).min() < plan.expected(42_000, 30_000.0).max() < 90_000
    market = replace(market_of([[True]] * 2, work=30_000, deadline=42_000), usd=np.array([[1.0, 3.0]] * 2))
    decision = Markov().decide(view_at(market, 0, 30_000.0, None, 0, 0))
    assert decision.offer == 0
    assert "planned in steps of" in decision.reason.text
    assert decision.reason.facts["error"] == pytest.approx(plan.error, rel=0.5)


@pytest.mark.parametrize(("launch", "lost", "deadline"), [(0, 0.0, 13), (1, 0.0, 14), (3, 1.0, 16), (5, 0.0, 20)])
def test_a_plan_expects_what_the_safety_net_leaves(launch: int, lost: float, deadline: int) -> None:
    """Against a recursion over views that asks `safe` itself, where capacity has no memory."""
    comes, goes, work = 0.4, 0.2, 9.0
    market = market_of([[True]] * deadline, work=work, launch=launch, lost=lost, deadline=deadline)

    @cache
    def least(left: int, work: float, running: int | None, launching: int, there: bool) -> float:
        if work <= 0:
            return 0.0
        if running == 0 and not there:
            work, running = (min(market.work, work + lost) if launching == 0 else work), None
        view = replace(view_at(market, deadline - left, work, running, launching, 0), up=np.array([there, True]))
        chance = {True: 1 - goes if there else comes}
        chance[False] = 1 - chance[True]
        costs = []
        for chosen in (None, 0, 1) if left else ():
            if safe(view, Decision(chosen, Reason("x", "x"))).offer != chosen or (chosen == 0 and not there):
                continue
            to_come, after, paid = (launching if chosen == running else launch), work, 0.0
            if chosen is not None:
                paid = float(market.usd[0, chosen]) * (1.0 if to_come else min(1.0, work))
                after = work if to_come else work - 1
            costs.append(
                paid + sum(p * least(left - 1, after, chosen, max(0, to_come - 1), t) for t, p in chance.items())
            )
        return min(costs, default=1e6)

    rates = Rates(np.full((2, COUNT), 1e9), np.array([[comes * 1e9] * COUNT, [goes * 1e9] * COUNT]))
    terms = Terms((1.0, 3.0), (1.0, 1.0), (0.0, 0.0), launch, lost, most=work)
    expected = Plan(terms, rates, work, deadline, 600.0).expected(deadline, work)
    exact = np.repeat([least(deadline, work, None, 0, there) for there in (False, True)], COUNT)
    # A job that leaves an offer on demand during its launch is charged the rest of the launch.
    assert expected == pytest.approx(exact, rel=1e-6 if launch < 2 else 0.01)


@pytest.mark.slow
def test_another_policy_takes_over_where_replays_say_so() -> None:
    class Late:
        def decide(self, view: View) -> Decision:
            return Decision(0 if view.tick % 60 >= 40 or view.running == 0 else None, Reason("late", "knows the hour"))

    hours = [[tick % 60 >= 40 or tick % 5 == 0] for tick in range(60)]
    long = market_of(hours, work=8, launch=8, deadline=60)
    found = choose(long, [long], baselines={"late": Late})
    assert found.name == "late"
    assert found.usd["late"] < found.usd["markov"]
    decision = found.policy(None).decide(view_at(long, 40, 8.0, None, 0, 0))
    assert (decision.offer, decision.reason.code) == (0, "late")
    assert "in replays" in decision.reason.text
    assert choose(replace(long, launch=1, work=40.0), [long], baselines={"late": Late}).name == "markov"
    assert choose(long, [market_of(hours[:30], work=8, launch=8)], baselines={"late": Late}).name == "markov"
    worse = choose(long, [long], baselines={"greedy": Greedy})
    assert isinstance(worse.policy(None), Markov) == (worse.name == "markov")


def test_jobs_unlike_those_that_markov_was_measured_on_are_told_apart() -> None:
    usual = market_of([[True]] * 60, work=40, launch=1, deadline=60)
    assert measured(usual)
    assert measured(replace(usual, deadline=44))
    for unlike in (
        {"launch": 0}, {"launch": 6}, {"lost": 5.0}, {"deadline": 43}, {"work": 35.0}, {"tick_s": 601.0},
        {"speed": np.array([1.0, 0.5])},
    ):  # fmt: skip
        assert not measured(replace(usual, **unlike)), unlike


def test_of_offers_on_demand_the_job_has_the_cheapest_that_ends_in_time() -> None:
    base = market_of([[False, False]] * 40, work=20)
    offers = (*base.offers, replace(base.offers[-1], instance="v100-x8", accelerators=8))
    usd = np.concatenate([base.usd, np.full((40, 1), 24.0)], axis=1)
    market = replace(
        base, offers=offers, usd=usd, up=np.concatenate([base.up, np.ones((40, 1), bool)], axis=1),
        speed=np.array([1.0, 1.0, 1.0, 6.0]), launch_usd=np.zeros(4),
    )  # fmt: skip
    assert market.fallback == 3
    never = prior_of([market_of([[False]] * 500, work=5)])
    assert Markov(never).decide(view_at(market, 0, 20.0, None, 0, 0)).offer in (None, 2)
    outcome = simulate(market, Markov(never))
    assert outcome.met
    assert outcome.usd == pytest.approx(63.0)
    tight = simulate(market.window(0, 12), Markov(never))
    assert tight.met
    assert 3 in {step.offer for step in tight.steps}


def test_of_equal_costs_the_job_works() -> None:
    always = Rates(np.full((2, COUNT), 1e9), np.zeros((2, COUNT)))
    market = market_of([[True]] * 60, work=20, deadline=60)
    assert Markov(always).decide(view_at(market, 0, 20.0, None, 0, 0)).offer == 0
    dear = replace(market, usd=market.usd[:, ::-1])
    assert Markov(always).decide(view_at(dear, 0, 20.0, None, 0, 0)).offer == 1


def test_the_markov_decision_says_why_and_a_dearer_price_changes_it() -> None:
    market = market_of([[True]] * 40, work=20, deadline=40)
    view = view_at(market, 0, 20.0, None, 0, 0)
    decision = Markov().decide(view)
    assert decision.offer == 0
    assert decision.reason.facts["spot"] < decision.reason.facts["on demand"]
    assert Markov().decide(dearer(view, 4.0)).offer != 0


def test_markov_waits_for_capacity_that_returns_and_not_for_what_does_not() -> None:
    often = prior_of([market_of([[tick % 10 != 0] for tick in range(2000)], work=5, deadline=50)])
    never = prior_of([market_of([[tick < 10] for tick in range(2000)], work=5, deadline=50)])
    view = view_at(market_of([[False]] * 60, work=20), 0, 20.0, None, 0, 0)
    assert Markov(often).decide(view).offer is None
    tight = view_at(market_of([[False]] * 26, work=20), 0, 20.0, None, 0, 0)
    assert Markov(never).decide(tight).offer in (1, None)
    assert simulate(market_of([[False]] * 26, work=20), Markov(never)).usd == pytest.approx(63.0)


def test_the_net_says_so() -> None:
    market = market_of([[True]] * 11, work=10)
    view = view_at(market, 0, 10.0, None, 0, 0)
    decision = safe(view, Decision(None, Reason("x", "x")))
    assert decision.offer == market.fallback
    assert decision.reason.code == "safety-net"


def test_gangs_need_all_nodes_and_egress_is_charged_away_from_home() -> None:
    offer = Offer("aws", "us-west-2", "us-west-2a", "v100-x1", "v100")
    trace = Availability(0.0, 600.0, np.array([4, 3, 4, 4]))
    job = Job(600.0, 1800.0, nodes=4, data_gb=100.0, state_gb=10.0, home="us-east-1")
    at_home = Offer("aws", "us-east-1", "us-east-1a", "v100-x1", "v100")
    history = History({offer: Track(None, trace), at_home: Track(None, trace)})
    market = cut(history, job, on_demand_usd=3.0, spot_usd=1.0)
    away, home = market.offers.index(offer), market.offers.index(at_home)
    assert market.up[:, away].tolist() == [True, False, True, True]
    assert market.usd[0, [away, -1]].tolist() == pytest.approx([4 / 6, 12 / 6])
    assert market.launch_usd[[away, home, -1]].tolist() == pytest.approx([110 * 0.02, 0.0, 0.0])
    with pytest.raises(Invalid, match="ends 1 ticks before"):
        market.window(2)
    with pytest.raises(Invalid, match="on demand"):
        replace(market, offers=(offer, at_home, offer))


def test_a_launch_that_fails_costs_nothing_and_the_offer_is_left_alone_for_a_tick() -> None:
    market = market_of([[True, True]] * 30, work=5)
    refused = np.zeros((30, 3), bool)
    refused[0, 0] = refused[2, 1] = True
    outcome = simulate(replace(market, refused=refused), policy_named("greedy"))
    assert [step.offer for step in outcome.steps[:4]] == [None, 1, 1, 1]
    assert (outcome.refusals, outcome.launches) == (1, 1)
    assert outcome.usd == pytest.approx(6.0)
    assert outcome.steps[0].failed
    alone = simulate(replace(market_of([[True]] * 30, work=5), refused=refused[:, [0, 2]]), policy_named("greedy"))
    assert [step.offer for step in alone.steps[:3]] == [None, None, 0]


def test_launches_on_demand_fail_no_more_than_said() -> None:
    market = market_of([[True]] * 300, work=5).refusing(1.0, 0.9, retries=2, seed=4)
    assert market.refused is not None
    runs = "".join("x" if row else "." for row in market.refused[:, 1])
    assert "xx" in runs
    assert "xxx" not in runs
    assert market.window(7, 100).refused is not None
    assert market.needed(5.0, None, 0) == 8
    assert market.needed(5.0, market.fallback, 1) == 6
    with pytest.raises(Invalid, match="retries"):
        market.refusing(0.1, 0.1)
    with pytest.raises(Invalid, match="between 0 and 1"):
        market.refusing(1.1)


def test_of_zones_at_one_price_the_one_that_lasts_is_taken() -> None:
    rows = [[tick % 3 != 0, True] for tick in range(40)]
    view = view_at(market_of(rows, work=5), 31, 5.0, None, 0, 0)
    assert view.up[:2].all()
    assert Markov().decide(view).offer == 1
    moved = view_at(market_of(rows, work=5), 31, 5.0, 1, 0, 5)
    assert Markov().decide(moved).offer == 1
    cheaper = replace(view, usd=np.array([0.5, 1.0, 3.0]))
    assert Markov().decide(cheaper).offer == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=24, max_size=24), st.integers(6, 14))
def test_ross_keeps_its_bound_on_average(up: list[bool], work: int) -> None:
    """Where a launch takes no time, as its paper has it. A tick is a large part of so short a job: hence the slack."""
    market = market_of([[one] for one in up], work=work, launch=0)
    costs = [simulate(market, Ross(seed)).usd for seed in range(40)]
    assert float(np.mean(costs)) <= math.sqrt(3.0) * optimum(market).upper + 3.0


def test_ross_draws_an_interval_and_the_same_seed_draws_the_same() -> None:
    market = market_of([[False]] * 60, work=40, launch=0)
    first, again = (simulate(market, Ross(3)) for _ in range(2))
    other = simulate(market, Ross(4))
    assert [step.offer for step in first.steps] == [step.offer for step in again.steps]
    assert [step.offer for step in first.steps] != [step.offer for step in other.steps]
    drawn = sum(step.reason.startswith("on demand in an interval") for step in first.steps)
    assert drawn == pytest.approx(40 / (1 + math.sqrt(3)), abs=1.5)


def test_ross_warms_up_while_there_is_time() -> None:
    market = market_of([[False]] * 60, work=20, launch=0)
    assert "even progress" in simulate(market, Ross(0)).steps[0].reason
