"""Predicted speeds, and tables of prices, in the terms of a market."""

from __future__ import annotations

import pytest

from shoal.core import Estimate
from shoal.market.history import Offer
from shoal.market.live.deciding import speeds_by_kind
from shoal.market.tables import TARIFFS, egress_usd_per_gb, storage_usd, tariff


def test_speeds_are_relative_and_careful() -> None:
    class Known:
        def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
            found = {"v100": (10.0, 9.0), "k80": (2.0, 1.5)}.get(kind)
            return None if found is None else Estimate(found[0], found[1], 20.0, 0.9, "known")

    assert speeds_by_kind(Known(), "cnn", ["k80", "tpu"], "v100") == {"k80": 0.15}
    assert speeds_by_kind(Known(), "cnn", ["k80"], "tpu") == {}


def test_each_tariff_has_a_date_and_a_source_and_is_there_once() -> None:
    assert len({(one.provider, one.what) for one in TARIFFS}) == len(TARIFFS) == 9
    assert all(one.date and one.source and one.usd > 0 for one in TARIFFS)
    to = Offer("azure", "eastus", "", "nc6", "v100")
    assert egress_usd_per_gb("azure", "eastus", to) == 0.0
    assert egress_usd_per_gb("azure", "westus", to) == tariff("azure", "region").usd
    assert egress_usd_per_gb("gcp", "us-central1", to) == tariff("gcp", "internet").usd
    assert tariff("elsewhere", "storage") == tariff("aws", "storage")
    assert storage_usd("aws", 100.0, 365 * 86400 / 12) == pytest.approx(2.3)
