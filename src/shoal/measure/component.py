"""The declaration of this component."""

from shoal.extension import Component

MEASURE = Component(commands={"measure": "shoal.measure.commands.measure"})
