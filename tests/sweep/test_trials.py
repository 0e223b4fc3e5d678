"""What trials run with, and which go on, held against oracles."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from typing import Any

import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.trial import create_trial
from pydantic import ValidationError

from shoal.core import Invalid
from shoal.sweep import Sweep, every_trial, goes_on, rungs, substitute, title
from shoal.sweep.asha import order
from shoal.sweep.median import above_median

VALUES = st.lists(st.one_of(st.integers(-9, 9), st.text(max_size=3), st.booleans()), min_size=1, max_size=4)


@given(st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1))
def test_a_grid_is_every_combination_once(given_: dict[str, list[Any]]) -> None:
    sweep = Sweep.model_validate({"parameters": given_})
    expected = [dict(zip(given_, values, strict=True)) for values in itertools.product(*given_.values())]
    assert every_trial(sweep) == expected == [sweep.trial(index) for index in range(sweep.count)]
    with pytest.raises(Invalid, match=rf"array: the sweep has no trial {sweep.count} \(array: 0-{sweep.count - 1}\)"):
        sweep.trial(sweep.count)


@given(
    st.floats(-100, 100), st.floats(0.5, 100), st.integers(-5, 5), st.integers(1, 20), st.integers(0, 2**40)
)  # fmt: skip
def test_draws_lie_in_their_ranges_and_come_again(low: float, span: float, least: int, more: int, seed: int) -> None:
    parameters: dict[str, Any] = {
        "flat": {"min": low, "max": low + span}, "log": {"min": 1e-5, "max": 0.1, "log": True},
        "whole": {"min": least, "max": least + more, "integer": True},
        "both": {"min": 1, "max": 1 + more, "integer": True, "log": True}, "name": ["a", "b"],
    }  # fmt: skip
    sweep = Sweep.model_validate({"parameters": parameters, "random": 50, "seed": seed})
    found = every_trial(sweep)
    assert len(found) == 50
    for index, values in enumerate(found):
        assert low <= values["flat"] <= low + span  # type: ignore[operator]
        assert 1e-5 <= values["log"] <= 0.1  # type: ignore[operator]
        assert values["whole"] in range(least, least + more + 1)
        assert values["both"] in range(1, more + 2)
        assert values["name"] in ("a", "b")
        assert values == sweep.trial(index)
    longer = Sweep.model_validate({"parameters": parameters, "random": 60, "seed": seed})
    assert every_trial(longer)[:50] == found


def test_draws_are_even() -> None:
    """Each half, each decade, each number gets its share: within five standard deviations."""
    parameters: dict[str, Any] = {
        "flat": {"min": -1, "max": 1}, "log": {"min": 1e-4, "max": 1, "log": True},
        "whole": {"min": 1, "max": 4, "integer": True}, "named": ["a", "b", "c"],
    }  # fmt: skip
    found = every_trial(Sweep.model_validate({"parameters": parameters, "random": 4000}))
    for shares, parts in (
        (Counter(one["flat"] > 0 for one in found), 2),  # type: ignore[operator]
        (Counter(math.floor(math.log10(one["log"])) for one in found), 4),  # type: ignore[arg-type]
        (Counter(one["whole"] for one in found), 4),
        (Counter(one["named"] for one in found), 3),
    ):
        assert len(shares) == parts
        assert all(abs(count - 4000 / parts) < 5 * math.sqrt(4000 / parts) for count in shares.values())


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ({}, "either `parameters` or `rows`"),
        ({"parameters": {"a": [1]}, "rows": [{"a": 1}]}, "either `parameters` or `rows`"),
        ({"parameters": {"a": {"min": 0, "max": 1}}}, "say with `random`"),
        ({"parameters": {"a": {"min": 1, "max": 1}}, "random": 1}, "is not below"),
        ({"parameters": {"a": {"min": 0, "max": 1, "log": True}}, "random": 1}, "begins above 0"),
        ({"parameters": {"a": {"min": 0.5, "max": 2, "integer": True}}, "random": 1}, "whole numbers"),
        ({"rows": [{"a": 1}, {"b": 1}]}, "same names"),
        ({"rows": [{"a": 1}], "random": 3}, "does not go with"),
        ({"parameters": {"a": [1]}, "stop": {}}, "needs a `metric`"),
        ({"parameters": {"a": list(range(101)), "b": list(range(100))}}, "10100 trials"),
        ({"parameters": {"a b": [1]}}, "pattern"),
        ({"parameters": {"a": []}}, "at least 1"),
        ({"parameters": {"a": [[1]]}}, "valid"),
    ],
)
def test_what_is_no_sweep_is_refused_in_words(section: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Sweep.model_validate(section)


def test_values_are_written_once_and_no_shell_sees_them() -> None:
    values = {"a": "${sweep.b}; rm -rf /", "b": True, "c": 1e-05, "d": 3}
    assert substitute("--a=${sweep.a} ${sweep.b}$c ${sweep.c}/${sweep.d}", values) == (
        "--a=${sweep.b}; rm -rf / true$c 1e-05/3"
    )
    assert title({"lr": 0.123456, "opt": "adam", "n": 3}) == "lr=0.1235,opt=adam,n=3"
    with pytest.raises(Invalid, match="no parameter 'x'") as caught:
        substitute("${sweep.x}", values)
    assert (caught.value.where, caught.value.hint) == ("${sweep.x}", "parameters: a, b, c, d")


# --- halving ---

numbers = st.one_of(st.integers(-5, 5).map(float), st.just(math.nan))


@given(numbers, st.lists(numbers, max_size=30), st.integers(2, 5), st.booleans())
def test_a_trial_goes_on_if_few_enough_are_better(value: float, others: list[float], eta: int, lower: bool) -> None:
    """The words of the rule, counted: among the best 1/eta (one at least) of all that have reached the rung."""

    def better(one: float) -> bool:
        if math.isnan(one):
            return False
        return math.isnan(value) or (one < value if lower else one > value)

    room = max(1, (len(others) + 1) // eta)
    assert goes_on(value, others, eta, lower=lower) == (sum(better(one) for one in others) < room)


@given(st.integers(-5, 5), st.lists(st.integers(-5, 5), min_size=1, max_size=12), st.integers(2, 4), st.booleans())
def test_halving_is_that_of_optuna(value: int, others: list[int], eta: int, lower: bool) -> None:
    """Optuna compares with those that are at the rung, and keeps all as long as they are fewer than eta."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    key = "completed_rung_0"
    study = optuna.create_study(direction="minimize" if lower else "maximize")
    study.add_trials([
        create_trial(value=one, intermediate_values={1: one}, system_attrs={key: float(one)}) for one in others
    ])  # fmt: skip
    study.ask()
    number = study.trials[-1].number
    trial = optuna.trial.Trial(study, study._storage.get_trial_id_from_study_id_trial_number(study._study_id, number))
    trial.report(float(value), 1)
    pruned = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=eta).prune(
        study, study.trials[number]
    )
    assert goes_on(float(value), map(float, others), eta, lower=lower) == (not pruned)


@given(numbers, st.lists(numbers, max_size=12), st.integers(1, 5), st.booleans())
def test_the_median_is_that_of_those_before(value: float, others: list[float], least: int, lower: bool) -> None:
    told = [one for one in others if not math.isnan(one)]
    if len(told) < least:
        expected = True
    elif math.isnan(value):
        expected = False
    else:
        middle = statistics.median(told)
        expected = value <= middle if lower else value >= middle
    assert above_median(value, others, least=least, lower=lower) == expected


@given(st.integers(1, 5), st.integers(2, 4), st.integers(-1, 200), st.integers(0, 200))
def test_rungs_are_reached_once(first: int, eta: int, before: int, now: int) -> None:
    expected = [k for k in range(20) if before < first * eta**k <= now]
    assert rungs(first, eta, before, now) == expected


def test_halving_finds_the_best_with_a_part_of_the_work() -> None:
    """27 trials of 27 steps whose loss is their number, one step after the other: the best one reaches the end."""
    eta, first, last = 3, 1, 27
    at_rung: dict[int, list[float]] = {}
    steps, done = dict.fromkeys(range(27), 0), set()
    for step in range(1, last + 1):
        for trial in range(27):
            if trial in done:
                continue
            steps[trial] = step
            for rung in rungs(first, eta, step - 1, step):
                if not goes_on(float(trial), at_rung.get(rung, ()), eta, lower=True):
                    done.add(trial)
                at_rung.setdefault(rung, []).append(float(trial))
    assert steps[0] == last
    assert sum(steps.values()) < 27 * last / 3


@given(st.lists(st.one_of(st.none(), numbers), max_size=9), st.booleans())
def test_the_best_come_first(values: list[float | None], lower: bool) -> None:
    found = [values[at] for at in order(values, lower=lower)]
    told = [one for one in found if one is not None and not math.isnan(one)]
    assert told == sorted(told, reverse=not lower)
    assert found[: len(told)] == told
