"""The declaration of this component."""

from shoal.extension import Component

CASCADE = Component(
    commands={"cascade": "shoal.cascade.commands.cascade"}, runtimes={"cascade": "shoal.cascade.runtimes:CASCADE"}
)
