"""Gangs that exchange gradients: what made the data is found again, and the slowest worker counts."""

from __future__ import annotations

import json
import random

import pytest

from shoal.core import Invalid
from shoal.forecast.allreduce import AllReduce, Gang


def true_seconds(gang: Gang) -> float:
    workers = len(gang.alone_s)
    return (
        max(gang.alone_s)
        + 2 * (workers - 1) / workers * gang.weight_bytes / 1e9
        + 2 * (workers - 1) * gang.tensors * 5e-6
    )  # fmt: skip


def measured(noise: float = 0.0, seed: int = 1) -> dict[str, list[tuple[Gang, float]]]:
    draw = random.Random(seed)
    found = {}
    for number in range(8):
        model = draw.uniform(1e7, 4e8), draw.randint(30, 400), draw.uniform(0.1, 0.5)
        gangs = [Gang(model[0], model[1], (model[2],) * workers) for workers in (1, 2, 4, 8)]
        found[str(number)] = [(one, true_seconds(one) * draw.lognormvariate(0, noise)) for one in gangs]
    return found


def test_it_finds_the_costs_that_made_the_data() -> None:
    model = AllReduce.fit(measured())
    assert (model.byte_s, model.round_s) == (pytest.approx(1e-9), pytest.approx(5e-6))
    assert AllReduce.from_json(json.loads(json.dumps(model.as_json()))) == model


def test_intervals_hold_among_noise() -> None:
    model = AllReduce.fit(measured(noise=0.05))
    others = [pair for of in measured(noise=0.05, seed=2).values() for pair in of]
    held = sum((found := model.predict(gang)).low <= seconds <= found.high for gang, seconds in others)
    assert 27 <= held <= 32
    assert model.width < 0.15


def test_a_mixed_gang_waits_for_its_slowest_worker() -> None:
    model = AllReduce.fit(measured())
    mixed, slow = (model.predict(Gang(1e8, 100, alone)).median for alone in ((0.1, 0.4), (0.4, 0.4)))
    assert mixed == slow
    assert model.predict(Gang(1e8, 100, (0.4,))).median == 0.4


def test_workers_that_never_exchange_are_no_measure() -> None:
    alone = {m: [of[0]] for m, of in measured().items()}
    with pytest.raises(Invalid, match="gangs of several workers"):
        AllReduce.fit(alone)
    with pytest.raises(Invalid, match="a worker at least"):
        Gang(1e8, 100, ())
