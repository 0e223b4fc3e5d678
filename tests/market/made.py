"""Made-up markets for the tests of policies."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import strategies as st

from shoal.core import Reason
from shoal.market.history import Offer
from shoal.market.policy.view import Decision, View
from shoal.market.ticks import Ticks


def market_of(
    up: list[list[bool]], *, work: float, launch: int = 1, lost: float = 0.0, speeds: list[float] | None = None,
    spot_usd: float = 1.0, launch_usd: float = 0.0, deadline: int | None = None,
) -> Ticks:  # fmt: skip
    """Zones by tick, and one offer on demand at three times the price."""
    rows = np.array(up, dtype=bool)
    zones = rows.shape[1]
    offers = [Offer("aws", "us-east-1", f"us-east-1{'abcdef'[j]}", "v100-x1", "v100") for j in range(zones)]
    return Ticks(
        (*offers, Offer("aws", "us-east-1", "", "v100-x1", "v100", spot=False)),
        usd=np.concatenate([np.full(rows.shape, spot_usd), np.full((len(rows), 1), 3.0)], axis=1),
        up=np.concatenate([rows, np.ones((len(rows), 1), bool)], axis=1),
        speed=np.array(speeds or [1.0] * (zones + 1)), launch_usd=np.array([launch_usd] * zones + [0.0]),
        tick_s=600.0, work=work, deadline=deadline or len(rows), launch=launch, lost=lost,
    )  # fmt: skip


@st.composite
def markets(draw: st.DrawFn, ticks: int = 14, zones: int = 2, launches: int = 3) -> Ticks:
    count = draw(st.integers(1, zones))
    length = draw(st.integers(3, ticks))
    up = draw(st.lists(st.lists(st.booleans(), min_size=count, max_size=count), min_size=length, max_size=length))
    speeds = draw(st.lists(st.sampled_from([0.5, 1.0, 1.5]), min_size=count + 1, max_size=count + 1))
    work = draw(st.integers(1, 2 * length)) / 2
    return market_of(
        up, work=work, launch=draw(st.integers(0, launches)), lost=draw(st.sampled_from([0.0, 0.5, 2.0])),
        speeds=speeds, launch_usd=draw(st.sampled_from([0.0, 0.7])),
    )  # fmt: skip


@st.composite
def refusing(draw: st.DrawFn, ticks: int = 14, zones: int = 2) -> Ticks:
    """Markets in which launches fail, on demand too."""
    market = draw(markets(ticks, zones))
    retries = draw(st.integers(0, 3))
    on_demand = draw(st.sampled_from([0.3, 0.9, 1.0])) if retries else 0.0
    return market.refusing(draw(st.sampled_from([0.0, 0.4, 1.0])), on_demand, retries, draw(st.integers(0, 99)))


class Anything:
    """An adversary: rents what the list says, whatever happens."""

    def __init__(self, choices: list[int | None]) -> None:
        self._choices = itertools.cycle(choices)

    def decide(self, view: View) -> Decision:
        chosen = next(self._choices)
        return Decision(None if chosen is None else chosen % len(view.up), Reason("any", "any"))


CHOICES = st.lists(st.none() | st.integers(0, 2), min_size=1, max_size=14)
