"""The provider that a market's file names."""

from __future__ import annotations

from pathlib import Path

from shoal.core import Clock, Invalid
from shoal.market.live.provider import Provider
from shoal.market.live.settings import MarketFile


def make_provider(file: MarketFile, home: Path, clock: Clock, fleet: str) -> Provider:
    """Reads histories, which takes a while."""
    if file.provider == "simulated":
        from shoal.market.feeds import read_all
        from shoal.market.history import History
        from shoal.market.live.simulated import SimulatedProvider

        asked = file.simulated
        history = read_all(asked.history) if asked.history else History({})
        for one in file.listings() if asked.history else ():
            if one.offer.spot and one.offer not in history.tracks:
                known = ", ".join(sorted(offer.name for offer in history.tracks)[:8])
                raise Invalid(f"there is no history of {one.offer.name}", where="offers", hint=f"known: {known}")
        return SimulatedProvider(asked.path or home / "market-simulated.db", file.listings(), history, asked, clock)
    if file.aws is not None and file.provider == "aws":
        from shoal.market.live.aws import AwsProvider

        return AwsProvider(file.aws, file.listings(), fleet, clock)
    assert file.command is not None
    from shoal.market.live.command import CommandProvider

    return CommandProvider(file.command, file.listings(), fleet, clock)
