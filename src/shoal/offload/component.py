"""The declaration of this component."""

from shoal.extension import Component

OFFLOAD = Component(
    extension="shoal.offload.live.extension:Offload", commands={"offload": "shoal.offload.commands.offload"}
)
