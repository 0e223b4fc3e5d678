"""Costs of a mix, and Perseus' own figures."""

from __future__ import annotations

import pytest

from shoal.core import Invalid, Money
from shoal.measure.cost import mix_cost
from shoal.measure.statistics import Estimate


@pytest.mark.parametrize(
    ("together", "total"),
    [((98, 233), 1.01), ((194, 194), 1.12), ((252, 172), 1.20), ((368, 25), 1.01)],
)
def test_perseus_sums_are_reproduced(together: tuple[float, float], total: float) -> None:
    """Two P4: requests per second of ResNet50 and Inception-V3, alone and together on one server."""
    rates = dict(zip(("resnet50", "inception"), together, strict=True))
    found = mix_cost(rates, {"resnet50": 398.0, "inception": 305.0}, Estimate(total, total, total), Money.usd(1))
    assert found.dedicated.value == pytest.approx(total, abs=0.006)
    assert found.shared.value == pytest.approx(1.0, abs=0.006)
    assert found.saving.value == pytest.approx(1 - 1 / total)


def test_a_mix_costs_what_its_servers_cost() -> None:
    found = mix_cost({"a": 150.0, "b": 60.0}, {"a": 100.0, "b": 100.0}, Estimate(1.2, 1.1, 1.3), Money.usd("0.75"))
    assert found.dedicated.value == pytest.approx(2.1)
    assert (found.whole_dedicated, found.whole_shared) == (3, 2)
    assert found.dedicated_per_hour == Money.usd("2.25")
    assert found.shared_per_hour == Money.usd("1.50")
    assert found.saving.value == pytest.approx(1 - 1 / 1.2)
    assert found.saving.low == pytest.approx(1 - 1 / 1.1)
    assert found.saving.high == pytest.approx(1 - 1 / 1.3)
    with pytest.raises(Invalid, match="at least one rate"):
        mix_cost({"a": 0.0}, {"a": 1.0}, Estimate(1.0, 1.0, 1.0), Money())
