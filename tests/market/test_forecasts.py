"""Predictions of other components, and tables of prices, in the terms of a market."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.core import Estimate, Invalid
from shoal.forecast import Exposure, HourlyLifetimes
from shoal.market.forecasts import from_lifetimes, speeds_by_kind
from shoal.market.history import Offer
from shoal.market.policy.beliefs import COUNT
from shoal.market.policy.plan import lives
from shoal.market.tables import TARIFFS, egress_usd_per_gb, storage_usd, tariff


def test_lifetimes_become_rates() -> None:
    class Short:
        def survival(self, kind: str, region: str, age_s: float, ahead_s: float) -> float:
            return math.exp(-ahead_s / 3600.0)

    rates = from_lifetimes(Short(), "v100", "us-east-1", 600.0, worth=1e6)
    assert rates.hazards[1] == pytest.approx(np.full(COUNT, 1 - math.exp(-1 / 6)), rel=0.01)
    assert lives(rates, 600.0) == pytest.approx(np.full(COUNT, 1 / (1 - math.exp(-1 / 6))), rel=0.01)


def test_the_lifetimes_of_forecast_are_of_this_form() -> None:
    fitted = HourlyLifetimes.fit({("v100", "here"): Exposure((40, 20, 18, 17), (20, 2, 1, 1))})
    hazards = from_lifetimes(fitted, "v100", "here", 600.0, worth=1e6).hazards[1]
    assert hazards[0] > 2 * hazards[2]


def test_speeds_are_relative_and_careful() -> None:
    class Known:
        def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
            found = {"v100": (10.0, 9.0), "k80": (2.0, 1.5)}.get(kind)
            return None if found is None else Estimate(found[0], found[1], 20.0, 0.9, "known")

    assert speeds_by_kind(Known(), "cnn", ["k80", "v100", "tpu"], "v100") == {"v100": 1.0, "k80": 0.15}
    with pytest.raises(Invalid, match="not known"):
        speeds_by_kind(Known(), "cnn", ["k80"], "tpu")


def test_each_tariff_has_a_date_and_a_source_and_is_there_once() -> None:
    assert len({(one.provider, one.what) for one in TARIFFS}) == len(TARIFFS) == 9
    assert all(one.date and one.source and one.usd > 0 for one in TARIFFS)
    to = Offer("azure", "eastus", "", "nc6", "v100")
    assert egress_usd_per_gb("azure", "eastus", to) == 0.0
    assert egress_usd_per_gb("azure", "westus", to) == tariff("azure", "region").usd
    assert egress_usd_per_gb("gcp", "us-central1", to) == tariff("gcp", "internet").usd
    assert tariff("elsewhere", "storage") == tariff("aws", "storage")
    assert storage_usd("aws", 100.0, 365 * 86400 / 12) == pytest.approx(2.3)
