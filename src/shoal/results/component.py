"""The declaration of this component."""

from shoal.extension import Component

RESULTS = Component(
    extension="shoal.results.live.extension:Results", commands={"compare": "shoal.results.commands.compare"}
)
