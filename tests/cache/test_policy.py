"""Who gets how much: against other solvers, and what holds whatever the numbers."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from shoal.cache import POLICIES, Allocation, Mode, Problem, allocate, certify, decide
from shoal.cache.policy.knapsack import Packer, fill
from shoal.core import Invalid
from tests.cache.made import best_fractions, best_lottery, contents, problems, random_problem, worth

BOTH = pytest.mark.parametrize("mode", list(Mode))


def logs(values: np.ndarray, weight: np.ndarray) -> float:
    return float(weight @ np.log(values))


# --- the oracle of all policies ---


@given(st.integers(1, 12), st.integers(0, 10**6), st.sampled_from([0.05, 0.3, 0.7, 1.1]))
def test_a_packing_is_the_best_of_all(items: int, seed: int, part: float) -> None:
    chance = np.random.default_rng(seed)
    size, value = chance.lognormal(0, 1, items), chance.lognormal(0, 1, items) * (chance.random(items) < 0.8)
    every = np.array(list(itertools.product((0, 1), repeat=items)))
    capacity = part * size.sum()
    best = (every @ value)[every @ size <= capacity].max()
    found = Packer(size, capacity).best(value)
    assert found.value == pytest.approx(best)
    assert found.bound == pytest.approx(best)
    assert found.parts @ size <= capacity * (1 + 1e-12)
    assert not found.parts[value == 0].any()


@given(st.integers(0, 10**6))
def test_many_items_are_packed_as_well_as_few(seed: int) -> None:
    """Branch and bound, which packs more than 22 items, against enumeration of halves."""
    chance = np.random.default_rng(seed)
    size, value = chance.lognormal(0, 1, 22), chance.lognormal(0, 1, 22)
    more = np.concatenate([size, np.full(4, 0.01)]), np.concatenate([value, np.zeros(4)])
    capacity = 0.4 * size.sum()
    assert Packer(more[0], capacity).best(more[1]).value == pytest.approx(Packer(size, capacity).best(value).value)


def test_a_search_that_is_cut_short_says_how_much_better_it_could_be() -> None:
    chance = np.random.default_rng(1)
    size = 1.0 + 0.001 * chance.random(60)
    value = size + 0.001 * chance.random(60)
    short = Packer(size, 30.5, nodes=50).best(value)
    longer = Packer(size, 30.5, nodes=5000).best(value)
    assert short.parts @ size <= 30.5
    assert short.value <= longer.value <= longer.bound * (1 + 1e-12) <= short.bound * (1 + 1e-9)
    assert short.bound > short.value


@given(st.integers(1, 8), st.integers(0, 10**6), st.sampled_from([0.1, 0.5, 1.5]))
def test_a_filling_is_that_of_a_linear_program(items: int, seed: int, part: float) -> None:
    chance = np.random.default_rng(seed)
    size, value = chance.lognormal(0, 1, items), chance.lognormal(0, 1, items)
    capacity = part * size.sum()
    best = linprog(-value, A_ub=[size], b_ub=[capacity], bounds=(0, 1))
    found = fill(value, size, capacity)
    assert value @ found == pytest.approx(-best.fun)
    assert size @ found <= capacity * (1 + 1e-9)


# --- proportional fairness, against other solvers ---


@pytest.mark.parametrize("loading", [False, True])
@pytest.mark.parametrize("seed", range(8))
def test_a_lottery_is_as_good_as_one_over_all_contents(seed: int, loading: bool) -> None:
    problem = random_problem(Mode.LOTTERY, 2 + seed % 4, 4 + seed % 5, seed, loading=loading)
    found = allocate(problem, tolerance=1e-5)
    utility = worth(problem, contents(problem))
    active = utility.max(0) > 0
    weight = problem.weight[active]
    scaled = utility[:, active] / utility.max(0)[active]
    reached = sum(one.probability * worth(problem, one.fractions[None])[0] for one in found.configurations)
    assert logs((reached / utility.max(0).clip(1e-9))[active], weight) >= best_lottery(scaled, weight) - 1e-4
    assert sum(one.probability for one in found.configurations) == pytest.approx(1)
    assert all(one.fractions @ problem.size <= problem.capacity * (1 + 1e-9) for one in found.configurations)


@pytest.mark.parametrize("seed", range(8))
def test_fractions_are_as_good_as_those_of_a_cone_solver(seed: int) -> None:
    problem = random_problem(Mode.FRACTION, 2 + seed, 5 + 3 * seed, seed)
    found = allocate(problem, tolerance=1e-5).fractions
    active = problem.benefit.any(1)
    rows = problem.benefit[active] / problem.benefit[active].max(1, keepdims=True)
    weight = problem.weight[active]
    assert logs(rows @ found, weight) >= best_fractions(problem, rows, weight) - 1e-4
    assert problem.size @ found <= problem.capacity * (1 + 1e-9)
    assert ((found >= 0) & (found <= 1)).all()


@pytest.mark.parametrize("seed", range(4))
def test_sparse_and_dense_utilities_give_the_same(seed: int) -> None:
    problem = random_problem(Mode.FRACTION, 20, 100, seed)
    few = replace(problem, benefit=problem.benefit * (np.random.default_rng(seed).random((20, 100)) < 0.2))
    few = replace(few, use=few.benefit)
    many = replace(few, benefit=few.benefit + 1e-9)
    one, other = certify(few, allocate(few)), certify(many, allocate(many))
    assert one.scaled == pytest.approx(other.scaled, abs=2e-2)
    assert max(one.gap, other.gap) <= 1e-3


# --- max-min fairness, against linear programs ---


def max_min_level(rows: np.ndarray, size: np.ndarray, capacity: float) -> float:
    count = rows.shape[1]
    limits = np.vstack([np.column_stack([-rows, np.ones(len(rows))]), np.append(size, 0)])
    found = linprog(
        np.append(np.zeros(count), -1), A_ub=limits,
        b_ub=np.append(np.zeros(len(rows)), capacity), bounds=[(0, 1)] * count + [(None, None)],
    )  # fmt: skip
    return -found.fun


@given(problems(Mode.FRACTION))
def test_max_min_raises_the_smallest_as_far_as_it_goes(problem: Problem) -> None:
    certificate = certify(problem, allocate(problem, POLICIES["mmf"]))
    active = certificate.claim > 0
    if not active.any():
        return
    claim = certificate.claim[active]
    rows = problem.benefit[active] / certificate.alone[active, None] / claim[:, None]
    best = max_min_level(rows, problem.size, problem.capacity)
    assert (certificate.scaled[active] / claim).min() == pytest.approx(best, rel=1e-5)


@given(problems(Mode.LOTTERY, tenants=4, sets=6))
def test_max_min_of_lotteries_is_that_over_all_contents(problem: Problem) -> None:
    found = certify(problem, allocate(problem, POLICIES["mmf"]))
    active = found.claim > 0
    if not active.any():
        return
    utility = worth(problem, contents(problem))[:, active]
    rows = (utility / utility.max(0) / found.claim[active]).T
    count = rows.shape[1]
    best = linprog(
        np.append(np.zeros(count), -1), A_ub=np.column_stack([-rows, np.ones(len(rows))]), b_ub=np.zeros(len(rows)),
        A_eq=[np.append(np.ones(count), 0)], b_eq=[1], bounds=[(0, None)] * count + [(None, None)],
    )  # fmt: skip
    assert (found.scaled[active] / found.claim[active]).min() == pytest.approx(-best.fun, rel=1e-5)


def test_max_min_goes_on_after_the_first_level() -> None:
    """The first tenant's level is final first: only a quarter of the time is left for it. The others share what that
    leaves open, a and b, evenly, although the first level alone would allow any mix of them."""
    benefit = np.array([[0, 0, 1.0], [1.0, 0, 0.9], [0, 1.0, 0.9]])
    problem = Problem.of(Mode.LOTTERY, 1.0, [1.0, 1.0, 1.0], benefit, weight=[3.0, 1.0, 1.0])
    found = certify(problem, allocate(problem, POLICIES["mmf"]))
    assert found.scaled[1] == pytest.approx(found.scaled[2], abs=1e-6)
    fractions = allocate(problem, POLICIES["mmf"]).fractions
    assert fractions.sum() == pytest.approx(1)


# --- the certificate ---


@BOTH
@given(st.data())
def test_the_gap_is_small_and_no_tenant_gets_less_than_its_part(mode: Mode, data: st.DataObject) -> None:
    problem = data.draw(problems(mode, loading=True))
    found = decide(problem)
    assert 0 <= found.certificate.gap <= 1e-3
    assert not found.certificate.incentive_broken()
    assert (found.certificate.scaled >= found.certificate.claim * (1 - 1.1e-3)).all()


@given(problems(Mode.LOTTERY, sets=7))
def test_the_gap_is_what_all_contents_say(problem: Problem) -> None:
    allocation = Allocation.certain(contents(problem)[-1])
    saved = worth(problem, allocation.fractions[None])[0]
    utility = worth(problem, contents(problem))
    active = (utility.max(0) > 0) & (problem.weight > 0)
    gap = certify(problem, allocation).gap
    if not active.any():
        assert gap == 0
    elif (saved[active] <= 0).any():
        assert gap == np.inf
    else:
        weight = problem.weight[active]
        best = ((utility[:, active] / saved[active]) @ weight).max() / weight.sum()
        assert gap == pytest.approx(best - 1, abs=1e-9)


@BOTH
def test_what_is_not_fair_has_a_gap(mode: Mode) -> None:
    problem = Problem.of(mode, 2.0, [1.0, 1.0, 1.0, 1.0], np.array([[5.0, 4.0, 0, 0], [0, 0, 2.0, 1.0]]))
    unequal = [1.0, 0.9, 0.1, 0.0] if mode is Mode.FRACTION else [1.0, 1.0, 0.0, 0.0]
    unfair = certify(problem, Allocation.certain(np.array(unequal)))
    assert unfair.gap > 0.5
    assert unfair.incentive_broken()


@given(problems(Mode.LOTTERY, tenants=6, sets=6))
def test_no_coalition_is_better_off_by_itself(problem: Problem) -> None:
    """The core: for every group, no lottery in its part of the time gives each member more (but for the gap)."""
    problem = replace(problem, weight=np.ones(len(problem.tenants)))
    found = certify(problem, allocate(problem))
    members = [at for at in range(len(problem.tenants)) if found.claim[at] > 0]
    utility = worth(problem, contents(problem))
    for count in range(1, len(members) + 1):
        for group in itertools.combinations(members, count):
            part = count / len(members)
            rows = part * utility[:, group].T / found.saved[list(group), None]
            width = rows.shape[1]
            best = linprog(
                np.append(np.zeros(width), -1), A_ub=np.column_stack([-rows, np.ones(count)]), b_ub=np.zeros(count),
                A_eq=[np.append(np.ones(width), 0)], b_eq=[1], bounds=[(0, None)] * width + [(None, None)],
            )  # fmt: skip
            assert -best.fun <= 1 + found.gap + 1e-6


# --- what holds whatever the numbers ---


@BOTH
@given(st.data())
def test_a_tenants_unit_and_the_order_change_nothing(mode: Mode, data: st.DataObject) -> None:
    problem = data.draw(problems(mode))
    order = np.arange(len(problem.tenants))[::-1]
    scale = 10.0 ** np.arange(len(order))
    changed = Problem.of(
        mode, problem.capacity, problem.size, (problem.benefit * scale[:, None])[order], weight=problem.weight[order]
    )
    one, other = (
        certify(problem, allocate(problem, tolerance=1e-5)),
        certify(changed, allocate(changed, tolerance=1e-5)),
    )
    assert other.scaled[::-1] == pytest.approx(one.scaled, abs=0.02)


@BOTH
@given(st.data())
def test_a_weight_of_two_is_two_tenants(mode: Mode, data: st.DataObject) -> None:
    problem = data.draw(problems(mode, tenants=3, sets=6))
    weight = np.ones(len(problem.tenants))
    weight[0] = 2
    heavy = replace(problem, weight=weight)
    cloned = Problem.of(mode, problem.capacity, problem.size, np.vstack([problem.benefit[:1], problem.benefit]))
    one, other = certify(heavy, allocate(heavy, tolerance=1e-5)), certify(cloned, allocate(cloned, tolerance=1e-5))
    assert other.scaled[1:] == pytest.approx(one.scaled, abs=0.02)


@BOTH
@pytest.mark.parametrize("kind", ["asks for nothing", "weighs nothing"])
def test_a_tenant_without_a_claim_costs_nothing(mode: Mode, kind: str) -> None:
    problem = random_problem(mode, 3, 8, 5)
    benefit, weight = np.vstack([problem.benefit, problem.benefit[:1]]), np.append(problem.weight, 1.0)
    if kind == "asks for nothing":
        benefit[3] = 0
    else:
        benefit[3] = benefit[3][::-1]
        weight[3] = 0
    more = Problem.of(mode, problem.capacity, problem.size, benefit, weight=weight)
    found = decide(more)
    assert found.certificate.scaled[:3] == pytest.approx(certify(problem, allocate(problem)).scaled, abs=0.01)
    assert found.certificate.claim[3] == 0
    assert np.isfinite(found.allocation.fractions).all()


@BOTH
def test_one_tenant_alone_has_all_it_wants(mode: Mode) -> None:
    problem = Problem.of(mode, 3.0, [2.0, 1.0, 4.0], np.array([[2.0, 3.0, 1.0]]))
    found = decide(problem)
    assert found.allocation.fractions[:2] == pytest.approx([1, 1], abs=2e-3)
    assert found.certificate.scaled[0] == pytest.approx(1, abs=1e-3)


@BOTH
def test_no_capacity_and_no_tenant(mode: Mode) -> None:
    problem = random_problem(mode, 3, 4, 0)
    assert decide(replace(problem, capacity=0.0)).allocation.fractions.sum() == 0
    nobody = Problem.of(mode, 1.0, [1.0], np.zeros((0, 1)))
    assert decide(nobody).certificate.gap == 0


def test_a_tenant_whose_only_set_is_too_large_is_named() -> None:
    problem = Problem.of(
        Mode.LOTTERY, 10.0, [20.0, 5.0], np.array([[1.0, 0.0], [0.0, 1.0]]), tenants=("big", "small"), sets=("b", "s")
    )
    found = decide(problem)
    assert found.explain()["big"].code == "too-large"
    assert found.explain()["b"].code == "too-large"
    assert found.allocation.fractions.tolist() == [0, 1]
    assert found.certificate.gap == pytest.approx(0, abs=1e-3)


# --- loading and retention ---


def test_a_set_that_is_there_is_kept_where_loading_another_saves_less() -> None:
    benefit = np.array([[10.0, 11.0]])
    free = Problem.of(Mode.LOTTERY, 1.0, [1.0, 1.0], benefit, held=[1.0, 0.0])
    charged = replace(free, loading=np.ones(2) * 5.0)
    assert allocate(free).fractions.tolist() == [0, 1]
    assert allocate(charged).fractions.tolist() == [1, 0]


def test_a_load_is_shared_in_proportion_to_use() -> None:
    problem = Problem.of(Mode.FRACTION, 1.0, [1.0], np.array([[9.0], [3.0]]), loading=np.array([4.0]))
    assert problem.fresh[:, 0] == pytest.approx([6.0, 2.0])
    assert Allocation.certain(np.array([0.5])).utility(problem) == pytest.approx([3.0, 1.0])
    half = replace(problem, held=np.array([0.5]))
    assert Allocation.certain(np.array([1.0])).utility(half) == pytest.approx([7.5, 2.5])
    assert Allocation.certain(np.array([0.25])).utility(half) == pytest.approx([2.25, 0.75])


@BOTH
def test_what_is_held_stays_while_there_is_room(mode: Mode) -> None:
    problem = Problem.of(mode, 3.0, [1.0, 1.0, 2.0], np.array([[1.0, 0.0, 0.0]]), held=[0.0, 1.0, 1.0])
    found = decide(problem)
    expected = [1, 1, 0.5] if mode is Mode.FRACTION else [1, 1, 0]
    assert found.allocation.fractions == pytest.approx(expected, abs=1e-3)
    assert found.explain()["s1"].code == "retained"


def test_a_reason_says_what_a_part_of_ones_own_would_hold() -> None:
    problem = Problem.of(
        Mode.FRACTION, 100.0, [150.0, 60.0], np.array([[150.0, 0.0], [10.0, 180.0]]), tenants=("vision", "speech"),
        sets=("imagenet", "libri"),
    )  # fmt: skip
    reason = decide(problem).explain()["imagenet"]
    assert reason.code == "partly"
    assert reason.facts["tenant"] == "vision"
    assert reason.facts["kept_with_own_part"] == pytest.approx(1 / 3, abs=0.01)
    assert reason.facts["saved_over_own_part"] > 0.98
    assert "vision would keep 33% with 50% of the cache of its own" in reason.text


@pytest.mark.parametrize("field", ["capacity", "size", "benefit", "weight", "loading"])
@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_numbers_that_mean_nothing_are_refused(field: str, value: float) -> None:
    good = random_problem(Mode.FRACTION, 2, 3, 0)
    wrong = value if field == "capacity" else np.full_like(getattr(good, field), value)
    with pytest.raises(Invalid, match=field):
        replace(good, **{field: wrong}).check()


# --- what to compare with ---


def test_baselines_fit_and_are_what_they_are_called() -> None:
    from shoal.cache.baselines import BASELINES

    for mode in Mode:
        problem = random_problem(mode, 4, 10, 3)
        found = {name: allocate(problem, policy) for name, policy in BASELINES.items()}
        for one in found.values():
            assert all(each.fractions @ problem.size <= problem.capacity * (1 + 1e-9) for each in one.configurations)
        saved = {name: float(problem.weight @ one.utility(problem)) for name, one in found.items()}
        assert saved["optp"] == pytest.approx(max(saved.values()))
        assert saved["optp"] >= float(problem.weight @ allocate(problem).utility(problem)) - 1e-9
        assert not certify(problem, found["rsd"]).incentive_broken()
