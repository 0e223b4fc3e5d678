"""Intervals of starts hold as often as they say: on lifetimes alone, and on small clusters whose truth is drawn."""

from __future__ import annotations

import statistics
from dataclasses import replace
from random import Random

import pytest

from shoal.admission import Outlook, explain, with_interval
from shoal.admission.index import ClusterIndex
from shoal.admission.lives import Lives
from shoal.admission.past import PastBook

from .cases import NOW, G, devices, index_of, job, node, running

DRAWS = 19


def test_one_more_lifetime_lies_between_nineteen_drawn_ones_in_nine_of_ten_cases() -> None:
    """Of whatever shape they are: two-humped here. The one that is not over is known to be longer than its age."""
    truth, inside, widths = Random(1), 0, []
    for case in range(1000):
        one = [truth.choice((10.0, 300.0)) * truth.lognormvariate(0, 0.4) for _ in range(31)]
        age = 0.3 * one[0]
        seen = [life for life in one[1:] if life > age] or [age * 2]
        drawn = [Lives(seen, [age]).draw(Random(f"{case} {number}"), age) for number in range(DRAWS)]
        assert min(drawn) >= age
        inside += min(drawn) <= one[0] <= max(drawn)
        widths.append((max(drawn) - min(drawn)) / max(seen))
    assert 860 <= inside <= 940
    assert statistics.median(widths) < 2


def middle(lives: Lives) -> float:
    return statistics.median(lives.copy().draw(Random(number)) for number in range(400))


def test_a_lifetime_that_goes_on_counts_as_one_that_is_longer() -> None:
    """Otherwise the first ones to end, which are short, would be all that is known."""
    for ended in ([10.0] * 4, [10.0] * 30):
        assert middle(Lives(ended)) == pytest.approx(10, rel=0.2)
        assert middle(Lives(ended, [500.0] * 40)) > 50


def test_few_are_not_far_from_what_is_given() -> None:
    assert middle(Lives([], near=70.0)) == pytest.approx(70, rel=0.2)
    assert 70 < middle(Lives([100.0], near=70.0)) < 100
    assert middle(Lives([100.0] * 10, near=7.0)) == pytest.approx(100, rel=0.2)
    assert not Lives([]).known


@pytest.mark.parametrize("seen", [2, 40])
def test_what_is_not_known_of_all_is_drawn_once(seen: int) -> None:
    """A sum of twenty is as unsure as their common mean where few were seen, and surer where many were."""
    past = [100 * Random(number).lognormvariate(0, 0.5) for number in range(seen)]

    def total(number: int) -> float:
        lives, chance = Lives(past).copy(), Random(number)
        return sum(lives.draw(chance) for _ in range(20))

    totals = sorted(total(number) for number in range(100))
    assert (totals[90] / totals[10] > 3) is (seen < 5)


def world(truth: Random, past: int) -> tuple[ClusterIndex, list[float]]:
    """A device that runs a job with some behind it, and how long each really takes."""
    index = index_of([node("n0", {"a100": 1})], [job(f"j{at}", at=float(at)) for at in range(3)])
    for number in range(past):
        index.start(running(f"r{number}", {"gone": devices(0)}))
        index.stop(f"r{number}", ran_s=100 * truth.lognormvariate(0, 0.6))
    age = 60.0 * truth.random()
    lives = [100 * truth.lognormvariate(0, 0.6) for _ in range(3)]
    while lives[0] <= age:
        lives[0] = 100 * truth.lognormvariate(0, 0.6)
    index.start(running("r", {"n0": devices(0)}, started=NOW - age))
    lives[0] -= age
    return index, lives


def test_a_queue_starts_within_its_intervals_in_nine_of_ten_cases() -> None:
    truth, inside, asked, widths = Random(3), 0, 0, []
    for _ in range(40):
        index, lives = world(truth, 16)
        outlook = Outlook(index.snapshot(NOW))
        for at in (0, 2):
            told = with_interval(explain(outlook.snapshot, f"j{at}", outlook), outlook)
            assert told.start_between is not None
            low, high = told.start_between
            assert high is not None
            assert told.estimated_start is not None
            assert low <= told.estimated_start <= high
            start = NOW + sum(lives[: at + 1])
            asked += 1
            inside += low <= start <= high
            widths.append((high - low) / (start - NOW))
    assert 0.8 <= inside / asked <= 0.98
    assert statistics.median(widths) < 6


def test_an_interval_is_wider_where_guaranteed_jobs_came_before() -> None:
    plain = world(Random(3), 16)[0].snapshot(NOW)
    book = PastBook.thaw(plain.past)
    book.freeze(NOW - 60.0)
    book.came(job("g", "other", cls=G))  # the only one: no future draws it again
    pressed = replace(plain, past=book.freeze(NOW - 50.0))
    (low, high), (earlier, later) = [
        with_interval(explain(one, "j2", outlook), outlook).start_between or (0.0, None)
        for one, outlook in ((plain, Outlook(plain)), (pressed, Outlook(pressed)))
    ]
    assert high is not None
    assert later is not None
    assert (low - NOW) / (earlier - NOW) == pytest.approx(1.5 / 1.1)
    assert (later - NOW) / (high - NOW) == pytest.approx(1.5 / 1.1)


def test_of_what_nothing_is_known_no_interval_is_said() -> None:
    index = index_of([node("n0", {"a100": 1})], [job("j")], [running("r", {"n0": devices(0)})])
    outlook = Outlook(index.snapshot(NOW))
    told = with_interval(explain(outlook.snapshot, "j", outlook), outlook)
    assert (told.estimated_start, told.start_between) == (None, None)
