"""The declaration of this component."""

from shoal.extension import Component

DEVICE = Component(
    extension="shoal.device.live.extension:Devices",
    commands={"device": "shoal.device.commands.device"},
    launcher="shoal.device.launch:run",
)
