"""Total time on transient servers, against what can be worked out by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from statistics import fmean, median

import pytest

from shoal.core import Invalid
from shoal.forecast import best_interval_s
from shoal.forecast.transient import Training, total_time

DAY_S = 86_400.0


class Constant:
    """Revocations at a constant rate, ten days at most."""

    def __init__(self, mean_s: float) -> None:
        self.mean_s = mean_s

    def survival(self, kind: str, region: str, age_s: float, ahead_s: float) -> float:
        return math.exp(-ahead_s / self.mean_s) if age_s + ahead_s < 10 * DAY_S else 0.0


SAFE, RISKY = Constant(1e12), Constant(3 * 3600.0)
TRAINING = Training(work_s=36_000, checkpoint_s=10, every_s=1000, restart_s=120)


def test_without_revocations_only_checkpoints_are_added() -> None:
    found = total_time(TRAINING, SAFE, "k80", "east")
    assert found.low == found.median == found.high == 36_000 + 35 * 10


def test_on_risky_servers_it_takes_as_long_as_renewal_theory_says() -> None:
    segment, rate = 1010.0, 1 / RISKY.mean_s
    # Each segment of work and checkpoint is tried until no revocation falls into it (Daly, FGCS 2006).
    expected = 36 * (RISKY.mean_s + 120) * math.expm1(segment * rate)
    found = [total_time(TRAINING, RISKY, "k80", "east", seed=seed).median for seed in range(3)]
    assert fmean(found) == pytest.approx(expected, rel=0.05)
    assert found[0] != found[1]


def walked(training: Training, mean_s: float, servers: int, draw: random.Random) -> float:
    """One training of a gang, second by second in steps of ten: another way to the same answer."""
    now, done, kept, until = 0.0, 0.0, 0.0, 0.0
    while done < training.work_s:
        now += 10.0
        if now <= until:  # a restart or a checkpoint
            continue
        if draw.random() < 1 - math.exp(-servers * 10.0 / mean_s):
            done, until = kept, now + training.restart_s
            continue
        done += 10.0
        if done - kept >= training.every_s and done < training.work_s:
            kept, until = done, now + training.checkpoint_s
    return now


@pytest.mark.slow
def test_intervals_of_gangs_hold_for_trainings_that_are_walked_through() -> None:
    draw = random.Random(3)
    for servers in (1, 4):
        found = total_time(TRAINING, RISKY, "k80", "east", servers=servers)
        walks = [walked(TRAINING, RISKY.mean_s, servers, draw) for _ in range(300)]
        assert 0.85 <= fmean(found.low <= one <= found.high for one in walks) <= 0.95
        assert found.median == pytest.approx(median(walks), rel=0.03)


def test_a_gang_is_lost_with_any_of_its_servers() -> None:
    alone, four = (total_time(TRAINING, RISKY, "k80", "east", servers=servers) for servers in (1, 4))
    assert four.low > alone.median
    assert "gangs of 4" in four.source
    assert best_interval_s(10, 4e4, servers=4) == best_interval_s(10, 1e4)
    with pytest.raises(Invalid, match="one server at least"):
        total_time(TRAINING, RISKY, "k80", "east", servers=0)


def test_the_same_seed_gives_the_same_distribution() -> None:
    assert total_time(TRAINING, RISKY, "k80", "east") == total_time(TRAINING, RISKY, "k80", "east")


def test_the_best_interval_is_better_than_much_shorter_and_longer_ones() -> None:
    best = best_interval_s(TRAINING.checkpoint_s, RISKY.mean_s)
    medians = [
        total_time(replace(TRAINING, every_s=best * factor), RISKY, "k80", "east").median for factor in (0.1, 1, 8)
    ]
    assert medians[1] == min(medians)


def test_servers_that_die_before_a_checkpoint_are_told() -> None:
    with pytest.raises(Invalid, match="hardly live long enough"):
        total_time(replace(TRAINING, every_s=36_000), Constant(60.0), "k80", "east")


def test_work_that_is_too_long_to_simulate_is_told_apart_from_servers_that_die() -> None:
    with pytest.raises(Invalid, match=r"10,000 replacements do 9\.78% of this work"):
        total_time(replace(TRAINING, work_s=3.6e9), Constant(36_000.0), "k80", "east")


@pytest.mark.parametrize("wrong", [{"work_s": 0}, {"every_s": 0}, {"checkpoint_s": -1}, {"restart_s": -1}])
def test_negative_times_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(Invalid, match=r"positive|0 or more"):
        replace(TRAINING, **wrong)
