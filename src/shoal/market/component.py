"""The declaration of this component."""

from shoal.extension import Component

MARKET = Component(
    extension="shoal.market.live.extension:Market",
    commands={"market": "shoal.market.commands.market"},
    client={"market": "shoal.market.methods:MarketMethods"},
    options={"market": "shoal.market.commands.up:MARKET"},
)
