"""The provider that a market's file names."""

from __future__ import annotations

from pathlib import Path

from shoal.core import Invalid
from shoal.market.live.provider import Provider
from shoal.market.live.settings import MarketFile


def make_provider(file: MarketFile, home: Path) -> Provider:
    """Reads histories, which takes a while."""
    if file.provider == "simulated":
        from shoal.market.feeds import read_all
        from shoal.market.history import History
        from shoal.market.live.simulated import SimulatedOptions, SimulatedProvider

        asked = file.simulated
        options = SimulatedOptions(asked.speed, asked.start, asked.launch, asked.notice, asked.answer_s)
        history = read_all(asked.history) if asked.history else History({})
        return SimulatedProvider(asked.path or home / "market-simulated.db", file.listings(), history, options)
    raise Invalid(f"there is no provider {file.provider}")
