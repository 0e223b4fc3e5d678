"""The declaration of this component."""

from shoal.extension import Component

FORECAST = Component(
    extension="shoal.forecast.live.extension:Forecast", commands={"forecast": "shoal.forecast.commands.forecast"}
)
