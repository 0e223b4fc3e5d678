"""The declaration of this component."""

from shoal.extension import Component

HOST = Component(extension="shoal.host.live.extension:Guard", commands={"guard": "shoal.host.commands.guard"})
