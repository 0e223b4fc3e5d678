"""The declaration of this component."""

from shoal.extension import Component

RECURRENT = Component(
    commands={"recurrent": "shoal.recurrent.commands.recurrent"},
    runtimes={"recurrent": "shoal.recurrent.declared:RUNTIME"},
)
