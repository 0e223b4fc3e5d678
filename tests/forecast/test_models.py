"""Models find what made the data, keep their word on intervals, and survive JSON."""

from __future__ import annotations

import json
import math
import random

import pytest
from forecast_bottleneck import Efficiency
from hypothesis import given
from hypothesis import strategies as some

from shoal.core import Estimate, Invalid
from shoal.forecast import CheckpointTime, ClusterSpeed, Exposure, Features, HourlyLifetimes, StepTime, best_interval_s
from shoal.forecast.cluster import Measured
from shoal.forecast.devices import DEVICES
from shoal.forecast.fitting import interval_width, non_negative
from shoal.forecast.lifetimes import HOUR_S, hour_factors
from shoal.forecast.speeds import InferredSpeeds
from shoal.forecast.steptime import Transfer


def networks(count: int, seed: int = 1) -> list[Features]:
    draw = random.Random(seed)
    return [
        Features(draw.uniform(5e8, 2e10), draw.uniform(5e5, 3e7), draw.randint(40, 300)) for _ in range(count)
    ]  # fmt: skip


def true_seconds(one: Features, scale: float = 1.0) -> float:
    weights = (0.03, 0.02, 0.05, 0.002, 0.01)
    return scale * sum(weight * term for weight, term in zip(weights, one.terms(), strict=True))


def fitted(count: int = 12) -> StepTime:
    return StepTime.fit({"k80": {str(n): (one, [true_seconds(one)]) for n, one in enumerate(networks(count))}})


class TestStepTime:
    def test_an_interval_widens_far_from_all_that_was_measured(self) -> None:
        draw = random.Random(3)
        by_model = {str(n): (one, [true_seconds(one) * draw.uniform(0.9, 1.1)]) for n, one in enumerate(networks(12))}
        model = StepTime.fit({"k80": by_model})
        read = StepTime.from_json(json.loads(json.dumps(model.as_json())))
        widths = []
        for features in (networks(12)[0], Features(2e11, 3e8, 300), Features(2e15, 7e10, 300)):
            found = model.predict(features, "k80")
            assert found is not None
            assert read.predict(features, "k80") == found
            widths.append(math.log(found.high / found.low))
        assert widths[0] < 0.6 * widths[1] < 0.3 * widths[2]

    def test_it_finds_the_sum_that_made_the_data(self) -> None:
        for one in networks(20, seed=7):
            found = fitted().predict(one, "k80")
            assert found is not None
            assert found.median == pytest.approx(true_seconds(one), rel=0.1)

    def test_a_kind_without_measurements_and_data_sheet_has_no_prediction(self) -> None:
        assert fitted().predict(networks(1)[0], "abacus") is None

    def test_a_kind_never_measured_is_inferred_by_its_data_sheet(self) -> None:
        # Each term scales with the rate of operations or of memory, as the data sheets say.
        def seconds(one: Features, kind: str) -> float:
            base, other = DEVICES["k80"], DEVICES[kind]
            operations, traffic = other.tflops["fp32"] / base.tflops["fp32"], other.bandwidth_gb_s / base.bandwidth_gb_s
            weights = (0.03 / operations, 0.02 / traffic, 0.05 / operations, 0.002 / traffic, 0.01 / operations)
            return sum(weight * term for weight, term in zip(weights, one.terms(), strict=True))

        measured = {
            kind: {str(n): (one, [seconds(one, kind)]) for n, one in enumerate(networks(14))}
            for kind in ("k80", "p100")
        }
        model = StepTime.fit(measured)
        for one in networks(5, seed=8):
            found = model.predict(one, "V100")
            assert found is not None
            assert found.median == pytest.approx(seconds(one, "v100"), rel=0.1)
            assert found.low < found.median < found.high
            assert found.source == "inferred from p100 by the data sheets: none on V100"
        assert model.predict(networks(1)[0], "abacus") is None

    @pytest.mark.slow
    def test_a_kind_with_few_noisy_models_is_inferred_by_way_of_another(self) -> None:
        draw = random.Random(4)
        smooth = {str(n): (one, [true_seconds(one)]) for n, one in enumerate(networks(14))}
        some_of_them = [(m, *smooth[m]) for m in sorted(smooth)[:7]]
        noisy = {m: (one, [s[0] / 2 * draw.lognormvariate(0, 0.1)]) for m, one, s in some_of_them}
        model = StepTime.fit({"k80": smooth, "p100": noisy})
        assert set(model.through) == {"p100"}
        assert StepTime.from_json(json.loads(json.dumps(model.as_json()))) == model
        for one in networks(5, seed=8):
            found, base = model.predict(one, "p100"), model.predict(one, "k80")
            assert found is not None
            assert base is not None
            assert found.source == "inferred from 7 other models measured on p100, by way of k80"
            assert found.median == model.through["p100"][1].predict(one, base.median)
            assert found.low < true_seconds(one) / 2 < found.high

    def test_kinds_that_share_three_models_stand_alone(self) -> None:
        shared = {str(n): (one, [true_seconds(one)]) for n, one in enumerate(networks(6))}
        fitted = StepTime.fit({"k80": shared, "p100": {m: shared[m] for m in ("0", "1", "2")}})
        assert not fitted.through

    def test_one_model_is_refused(self) -> None:
        with pytest.raises(Invalid, match="k80: step times of 1 models; at least 2"):
            fitted(1)

    @pytest.mark.parametrize("count", [8, 12])
    def test_json_keeps_it(self, count: int) -> None:
        before = fitted(count)
        assert StepTime.from_json(json.loads(json.dumps(before.as_json()))) == before

    def test_another_version_is_refused(self) -> None:
        with pytest.raises(Invalid, match="version 1, found 'step-time' of version 2"):
            StepTime.from_json({**fitted().as_json(), "version": 2})

    def test_a_measurement_on_another_kind_carries_over(self) -> None:
        # The faster kind saves nothing of what goes with tensors.
        pairs = {}
        for number, one in enumerate(networks(12)):
            first = true_seconds(one)
            pairs[str(number)] = (one, first, first * math.exp(-1.0 + 0.001 * one.tensors / first))
        one = networks(1, seed=5)[0]
        found = Transfer.fit(pairs).predict(one, 0.5)
        assert found == pytest.approx(0.5 * math.exp(-1.0 + 0.001 * one.tensors / 0.5))


class TestFitting:
    @given(some.lists(some.floats(0.01, 10), min_size=3, max_size=3), some.integers(0, 99))
    def test_coefficients_are_never_negative(self, weights: list[float], seed: int) -> None:
        draw = random.Random(seed)
        terms = [[draw.uniform(0.1, 9) for _ in weights] for _ in range(5)]
        assert all(each >= 0 for each in non_negative(terms, [draw.uniform(0.1, 9) for _ in terms]))

    def test_the_width_is_student_s(self) -> None:
        assert interval_width([[0.1]]) == pytest.approx(6.3138 * 0.1, rel=1e-4)
        assert interval_width([[0.1], [-0.3]]) == pytest.approx(2.9200 * math.sqrt(0.05), rel=1e-4)

    def test_each_model_weighs_the_same(self) -> None:
        assert interval_width([[0.1] * 1000, [0.5]]) == pytest.approx(interval_width([[0.1], [0.5]]))

    def test_intervals_hold_as_often_as_they_say(self) -> None:
        draw = random.Random(3)
        held = 0
        for _ in range(2000):
            errors = [[draw.gauss(0, 1)] for _ in range(8)]
            held += abs(draw.gauss(0, 1)) <= interval_width(errors)
        assert 0.88 <= held / 2000 <= 0.92


class TestCheckpoints:
    def test_it_finds_the_sum_that_made_the_data(self) -> None:
        draw = random.Random(2)
        sizes = [(draw.uniform(5, 200), draw.uniform(2, 10)) for _ in range(12)]
        model = CheckpointTime.fit(
            {str(n): (one, [0.002 * one[0] + 0.1 * one[1] + 0.05]) for n, one in enumerate(sizes)}
        )
        found = model.predict((100, 5))
        assert found.median == pytest.approx(0.75, rel=0.1)
        assert found.low < 0.75 < found.high
        assert CheckpointTime.from_json(json.loads(json.dumps(model.as_json()))) == model

    def test_sizes_without_a_graph_are_no_trouble(self) -> None:
        found = CheckpointTime.fit({f"m{mb}": ((float(mb), 0.0), [1.0 + 0.1 * mb] * 3) for mb in (10, 20, 40, 80)})
        assert found.predict((30.0, 0.0)).median == pytest.approx(4.0, rel=0.03)
        assert found.predict((30.0, 50.0)).median == found.predict((30.0, 0.0)).median

    def test_two_models_are_too_few(self) -> None:
        with pytest.raises(Invalid, match="checkpoint times of 2 models"):
            CheckpointTime.fit({str(n): ((n + 1.0, 1.0), [1.0]) for n in range(2)})

    @pytest.mark.parametrize(("checkpoint_s", "life_s"), [(1, 3600), (10, 7200), (60, 3600)])
    def test_the_interval_loses_the_least(self, checkpoint_s: float, life_s: float) -> None:
        def lost(every: float) -> float:
            """Time for each second of work where servers end at a constant rate, restarts being free (Daly, eq. 20)."""
            return life_s * math.expm1((every + checkpoint_s) / life_s) / every

        best = best_interval_s(checkpoint_s, life_s)
        least = min(lost(best * factor / 100) for factor in range(20, 500))
        assert lost(best) <= least * 1.0005

    def test_a_checkpoint_that_outlasts_servers_is_made_once_a_life(self) -> None:
        assert best_interval_s(100, 50) == 50


SHAPE = Features(1e9, 3e6, 216)


class TestCluster:
    truth = ClusterSpeed(1e-4, 5e-9, 0.3, 4.0, 0.1, 3)

    def test_more_workers_are_faster_up_to_what_servers_give(self) -> None:
        speeds = [self.truth.predict(SHAPE, (7.0,) * workers, 1).median for workers in range(1, 65)]
        assert speeds == sorted(speeds)
        assert speeds[0] == pytest.approx(7.0, rel=0.01)
        assert speeds[-1] == pytest.approx(self.truth.capacity_per_s(SHAPE, 1), rel=0.01)

    def test_a_second_server_raises_the_bound_and_less_than_doubles_it(self) -> None:
        one, two = self.truth.capacity_per_s(SHAPE, 1), self.truth.capacity_per_s(SHAPE, 2)
        assert one < two < 2 * one

    def test_it_finds_a_saturation(self) -> None:
        measured = [
            Measured(one, alone, workers, servers, self.truth.predict(one, (alone,) * workers, servers).median)
            for one, alone in ((Features(1e9, 7e5, 50), 22.0), (SHAPE, 7.0), (Features(1e9, 26e6, 216), 2.1))
            for workers in range(1, 9) for servers in (1, 2)
        ]  # fmt: skip
        model = ClusterSpeed.fit(measured)
        for one in measured:
            found = model.predict(one.features, (one.alone_per_s,) * one.workers, one.servers)
            assert found.median == pytest.approx(one.steps_per_s, rel=0.05)
            assert found.low < one.steps_per_s < found.high
        alone = ClusterSpeed.fit([one for one in measured if one.features == SHAPE])
        assert alone.width == math.inf
        assert ClusterSpeed.from_json(json.loads(json.dumps(alone.as_json()))) == alone
        assert ClusterSpeed.from_json(model.as_json()) == model

    def test_no_workers_is_refused(self) -> None:
        with pytest.raises(Invalid, match="one worker"):
            self.truth.predict(SHAPE, (), 1)

    def test_workers_of_two_kinds_ask_for_the_sum_of_their_speeds(self) -> None:
        found = self.truth.predict(SHAPE, (7.0, 7.0, 2.0), 1)
        assert found.median == pytest.approx(self.truth.predict(SHAPE, (16.0,), 1).median)
        assert found.high / found.median == pytest.approx(math.exp(0.1))
        assert found.source == "inferred from clusters of 3 other networks, and from each worker's speed alone"


class TestEfficiency:
    usual = Efficiency.fit([0.96, 0.98, 1.0, 0.98, 0.97, 0.99])

    def test_what_few_clusters_show_is_held_back(self) -> None:
        # Student's quantile of 5 degrees at 0.995 is 4.032; the deviation is 0.01414, over six clusters.
        least = 0.98 - 4.032 * 0.0141421 * math.sqrt(7 / 6)
        assert self.usual.held_back(10.0, 4, 40 * (least - 0.0005))
        assert not self.usual.held_back(10.0, 4, 40 * (least + 0.0005))

    def test_more_false_alarms_find_more(self) -> None:
        assert not self.usual.held_back(10.0, 4, 37.0)
        assert self.usual.held_back(10.0, 4, 37.0, false_alarms=0.02)

    def test_two_clusters_are_too_few(self) -> None:
        with pytest.raises(Invalid, match="from 2 clusters"):
            Efficiency.fit([1.0, 0.9])


EARLY = Exposure((30, 20, 20), (10, 0, 0))
NEVER = Exposure((30, 30, 30), (0, 0, 0))


class TestLifetimes:
    model = HourlyLifetimes.fit({("k80", "east"): EARLY, ("k80", "west"): NEVER})

    def test_what_was_seen_in_a_region_counts_there(self) -> None:
        east, west = (self.model.survival("k80", region, 0, HOUR_S) for region in ("east", "west"))
        unseen = self.model.survival("k80", "north", 0, HOUR_S)
        assert east < unseen < west
        assert east == pytest.approx(20 / 30, abs=0.05)

    def test_a_server_that_outlived_the_first_hour_is_safer(self) -> None:
        young, old = (self.model.survival("k80", "east", age * HOUR_S, HOUR_S) for age in (0, 1))
        assert old > young

    def test_none_outlives_the_last_hour(self) -> None:
        assert self.model.survival("k80", "west", 2 * HOUR_S, HOUR_S) == 0.0
        assert self.model.survival("k80", "west", 2 * HOUR_S, HOUR_S - 1) > 0.5

    @given(age=some.floats(0, 9000), first=some.floats(0, 5000), second=some.floats(0, 5000))
    def test_survival_multiplies_over_time(self, age: float, first: float, second: float) -> None:
        def stays(at: float, ahead: float) -> float:
            return self.model.survival("k80", "east", at, ahead)

        assert stays(age, first + second) == pytest.approx(stays(age, first) * stays(age + first, second))

    def test_the_mean_life_is_the_area_below_the_survival(self) -> None:
        area = sum(self.model.survival("k80", "east", 0, second) for second in range(0, 3 * 3600, 10)) * 10
        assert self.model.mean_life_s("k80", "east") == pytest.approx(area, rel=0.02)

    def test_regions_that_differ_make_a_wide_prior(self) -> None:
        alike = HourlyLifetimes.fit({("k80", "east"): EARLY, ("k80", "west"): EARLY})
        assert self.model.alpha["k80"][0] + self.model.beta["k80"][0] < alike.alpha["k80"][0] + alike.beta["k80"][0]
        assert self.model.log_likelihood("k80", NEVER) > alike.log_likelihood("k80", NEVER)

    def test_a_kind_is_believed_more_than_other_kinds(self) -> None:
        regions = ("east", "west", "north")
        model = HourlyLifetimes.fit(
            {(kind, region): EARLY if kind == "k80" else NEVER for kind in ("k80", "p100") for region in regions}
        )
        first = {kind: model.survival(kind, "south", 0, HOUR_S) for kind in ("k80", "p100", "v100")}
        assert first["k80"] < first["v100"] < first["p100"]
        assert model.log_likelihood("k80", EARLY) > model.log_likelihood("v100", EARLY)

    def test_hours_of_the_day_count(self) -> None:
        day = [0] * 8 + [50] * 8 + [0] * 8
        model = HourlyLifetimes.fit({("k80", "east"): EARLY, ("k80", "west"): NEVER}, day)
        assert sum(model.by_hour) == pytest.approx(24)
        night, noon, even = (model.survival("k80", "east", 0, HOUR_S, clock) for clock in (2.0, 12.0, None))
        assert noon < even < night
        assert model.survival("k80", "east", 0, HOUR_S, 26.0) == night
        # Half past eleven until half past twelve, in two pieces.
        halves = [model.survival("k80", "east", at, HOUR_S / 2, clock) for at, clock in ((0, 11.5), (HOUR_S / 2, 12.0))]
        assert model.survival("k80", "east", 0, HOUR_S, 11.5) == pytest.approx(halves[0] * halves[1])
        assert HourlyLifetimes.from_json(json.loads(json.dumps(model.as_json()))) == model

    def test_a_day_has_24_hours(self) -> None:
        with pytest.raises(Invalid, match="24 counts"):
            hour_factors([1] * 25)

    def test_lives_cut_short_by_something_else_are_no_revocations(self) -> None:
        lives = [(1800.0, True), (1800.0, False), (5400.0, False), (9000.0, True), (3 * HOUR_S, False)]
        assert Exposure.of(lives, 3) == Exposure((4, 2, 2), (1, 0, 1))

    def test_json_keeps_it(self) -> None:
        assert HourlyLifetimes.from_json(json.loads(json.dumps(self.model.as_json()))) == self.model

    def test_more_revoked_than_there_were_is_refused(self) -> None:
        with pytest.raises(Invalid, match="more servers were revoked"):
            Exposure((1,), (2,))


def test_a_measurement_outweighs_what_is_inferred() -> None:
    one, told = networks(1)[0], Estimate(3.0, 2.0, 4.0, 0.9, "measured")
    speeds = InferredSpeeds(fitted(), {"net": one}, {("net", "k80", 4): told})
    assert speeds.steps_per_s("net", "k80", 4) == told
    assert speeds.steps_per_s("net", "k80", 2) is None
    assert speeds.steps_per_s("other", "k80") is None
    inferred = speeds.steps_per_s("net", "k80")
    assert inferred is not None
    assert inferred.median == pytest.approx(1 / true_seconds(one), rel=0.1)


@pytest.mark.parametrize("flops", [0, -1, math.nan, math.inf])
def test_features_are_positive(flops: float) -> None:
    with pytest.raises(ValueError, match="flops must be a positive number"):
        Features(flops, 1, 1)
