"""Policies that prove nothing, held against what their papers say: FIFO, isolated, AlloX, Gandiva."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest

from shoal.core import Quota, Tenant
from shoal.schedule import Pool, Problem, decide
from tests.schedule.oracle import ALONE, instance, pair_rates

TWO = (Pool("slow", 2), Pool("fast", 2))


def problem(rate: Any = ((1.0, 2.0),), pools: tuple[Pool, ...] = TWO, jobs: int | None = None, **given: Any) -> Problem:
    table = np.repeat(np.asarray(rate, np.float64), jobs, axis=0) if jobs else np.asarray(rate, np.float64)
    return Problem.columnar(pools, table, now=100.0, **given)


class TestFifo:
    def test_in_order_of_arrival_each_on_the_fastest_free_type(self) -> None:
        found = decide("fifo", problem(jobs=5, arrived=[4.0, 3.0, 2.0, 1.0, 0.0]))
        assert found.share.argmax(axis=1)[[4, 3, 2, 1]].tolist() == [1, 1, 0, 0]
        assert found.time.tolist() == [0.0, 1.0, 1.0, 1.0, 1.0]

    def test_a_gang_that_finds_no_room_blocks_those_behind_it(self) -> None:
        found = decide(
            "fifo", problem(jobs=3, gang=[1, 2, 1], arrived=[0.0, 1.0, 2.0], pools=(TWO[0], Pool("fast", 0)))
        )
        assert found.time.tolist() == [1.0, 0.0, 0.0]

    @pytest.mark.parametrize("order", [[0, 1], [1, 0]])
    @pytest.mark.parametrize(("kept", "pairs"), [((0.5, 0.7), 0), ((0.9, 0.7), 1)])
    def test_a_job_joins_another_where_each_keeps_enough_of_its_own_rate(
        self, order: list[int], kept: tuple[float, float], pairs: int
    ) -> None:
        alone = np.array([10.0, 2.0])
        beside = np.zeros((2, 2, 1))
        beside[0, 1], beside[1, 0] = alone * kept
        given = Problem.columnar(
            (Pool("a", 1),), alone[order][:, None], kind=order, pair_rate=beside, now=2.0, arrived=[0.0, 1.0]
        )
        assert len(decide("fifo", given, space_sharing=True).pairs.first) == pairs

    def test_a_quota_blocks_only_its_own_tenant(self) -> None:
        tenants = (Tenant("bound", quota=Quota(accelerators=1)), Tenant("free"))
        found = decide("fifo", problem(jobs=3, tenant=[0, 0, 1], tenants=tenants, arrived=[0.0, 1.0, 2.0]))
        assert found.time.tolist() == [1.0, 0.0, 1.0]

    def test_agnostic_leaves_running_jobs_where_they_are_and_is_seeded(self) -> None:
        given = problem(jobs=6, placed=[-1, -1, -1, -1, 1, 0], arrived=np.arange(6.0))
        for seed in range(5):
            found = decide("fifo", given, agnostic=True, seed=seed)
            assert found.share[4, 1] == found.share[5, 0] == 1.0
            np.testing.assert_array_equal(found.share, decide("fifo", given, agnostic=True, seed=seed).share)

    def test_who_finds_no_room_joins_the_job_it_goes_best_with(self) -> None:
        kind = [0, 1, 2]  # beside a ResNet-18, A3C keeps most of what both do alone
        given = Problem.columnar(
            [Pool("k80", 0), Pool("p100", 0), Pool("v100", 2)], ALONE[kind], kind=kind, pair_rate=pair_rates(),
            arrived=[0.0, 1.0, 2.0], now=10.0,
        )  # fmt: skip
        found = decide("fifo", given, space_sharing=True)
        assert (found.pairs.first.tolist(), found.pairs.second.tolist()) == ([0], [2])
        assert found.throughput.tolist() == pytest.approx([18.0, 4.39, 4.39])


class TestIsolated:
    @pytest.mark.parametrize("seed", [0, 1, 2])
    def test_everybody_has_the_same_part_of_every_pool(self, seed: int) -> None:
        given = replace(instance(seed, 40, per_type=0.1), weight=np.ones(40))
        part = given.counts / 40 / given.gang[:, None]
        part /= np.maximum(part.sum(axis=1), 1.0)[:, None]
        np.testing.assert_allclose(decide("isolated", given).share, part)

    def test_parts_follow_weights_and_nobody_has_more_than_all_its_time(self) -> None:
        found = decide("isolated", problem(jobs=3, weight=[1.0, 1.0, 6.0]))
        assert found.time.tolist() == pytest.approx([0.5, 0.5, 1.0])


class TestAlloX:
    @pytest.mark.parametrize("seed", range(8))
    def test_the_mean_completion_time_is_the_least_that_there_is(self, seed: int) -> None:
        """Those that start are the first ones of an order that no other order and assignment beats."""
        chance = np.random.default_rng(seed)
        rate, left = chance.uniform(0.5, 3.0, (4, 2)), chance.uniform(10.0, 90.0, 4)
        given = problem(rate, (Pool("a", 1), Pool("b", 1)), work_left=left)
        times = left[:, None] / rate

        def total(order: tuple[int, ...], places: tuple[int, ...]) -> float:
            ends, busy = 0.0, [0.0, 0.0]
            for job, place in zip(order, places, strict=True):
                busy[place] += times[job, place]
                ends += busy[place]
            return ends

        every = [(total(o, w), o, w) for o in permutations(range(4)) for w in product((0, 1), repeat=4)]
        least, order, places = min(every)
        best = {(job, place) for place in set(places) for job in [order[places.index(place)]]}
        ties = [each for each in every if each[0] <= least * (1 + 1e-9)]
        assert len({frozenset(zip(o, w, strict=True)) for _, o, w in ties}) == 1
        found = decide("allox", given, considered=1.0)
        assert set(zip(*np.nonzero(found.share), strict=True)) == best

    def test_running_jobs_stay(self) -> None:
        given = problem(jobs=4, work_left=[9.0, 1.0, 1.0, 1.0], placed=[1, -1, -1, -1], pools=(Pool("slow", 0), TWO[1]))
        found = decide("allox", given)
        assert found.share[0, 1] == 1.0
        assert found.time.sum() == 2.0


class TestGandiva:
    def test_equal_time_for_each_pair_and_each_single_job(self) -> None:
        given = replace(instance(3, 30), gang=np.ones(30, np.intp))
        found = decide("gandiva", given, seed=1)
        alone = np.setdiff1d(np.arange(30), np.concatenate([found.pairs.first, found.pairs.second]))
        groups = len(alone) + len(set(found.pairs.first.tolist()))
        assert len(alone) < 30
        np.testing.assert_allclose(found.share[alone].sum(axis=0), given.counts * len(alone) / groups)

    def test_pairs_pay_and_stay_together(self) -> None:
        given = instance(3, 30)
        found = decide("gandiva", given, seed=1)
        again = decide("gandiva", given, seed=2, previous=found)
        pairs = set(zip(found.pairs.first.tolist(), found.pairs.second.tolist(), strict=True))
        assert pairs <= set(zip(again.pairs.first.tolist(), again.pairs.second.tolist(), strict=True))
        for one, other in pairs:
            kinds = given.kind[one], given.kind[other]
            both = given.pair_rate[kinds] / given.rate[one] + given.pair_rate[kinds[::-1]] / given.rate[other]  # type: ignore[index]
            assert both.max() >= 1.0

    def test_nobody_is_paired_while_there_is_room(self) -> None:
        found = decide("gandiva", instance(3, 10, per_type=3.0))
        assert not len(found.pairs.first)
        assert found.time.min() == pytest.approx(1.0)
