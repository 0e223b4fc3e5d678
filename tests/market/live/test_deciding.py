"""From a job and the listed offers to a market."""

from __future__ import annotations

import pytest

from shoal.core import Invalid
from shoal.market.history import Offer
from shoal.market.live.deciding import Fit, Work, market_of
from shoal.market.live.provider import Listing

GIB = 1 << 30
FITS = [
    Fit(Listing(Offer("aws", "us-east-1", "us-east-1a", "p3.2xlarge", "v100", spot=spot), usd, 8, 61 * GIB), 1, 1)
    for spot, usd in ((True, 1.0), (False, 3.0))
]


@pytest.mark.parametrize(("launch_s", "ticks"), [(0.0, 0), (600.0, 1), (601.0, 2), (1800.0, 3), (0.3, 1)])
def test_a_launch_takes_whole_ticks(launch_s: float, ticks: int) -> None:
    assert market_of(FITS, Work(3600.0, 7 * 3600.0, launch_s, 0.0), 600.0, {}).launch == ticks


def test_rounding_does_not_add_a_tick() -> None:
    assert market_of(FITS, Work(3600.0, 7 * 3600.0, 3 * 0.1, 0.0), 0.1, {}).launch == 3


def test_a_deadline_that_no_offer_keeps_is_refused() -> None:
    with pytest.raises(Invalid, match="4 h of work cannot end within 1 h"):
        market_of(FITS, Work(4 * 3600.0, 3600.0, 600.0, 0.0), 600.0, {})
    assert market_of(FITS, Work(4 * 3600.0, 3600.0, 600.0, 0.0), 600.0, {"v100": 5.0}).deadline == 6
