"""The declaration of this component."""

from shoal.extension import Component

SHELL = Component(extension="shoal.shell.live.extension:Shell", commands={"shell": "shoal.shell.commands.shell"})
