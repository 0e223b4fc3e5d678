"""The declaration of this component."""

from shoal.extension import Component

RESULTS = Component(commands={"compare": "shoal.results.commands.compare"})
