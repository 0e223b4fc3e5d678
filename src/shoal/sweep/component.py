"""The declaration of this component."""

from shoal.extension import Component

SWEEP = Component(
    extension="shoal.sweep.live.extension:Sweeps",
    commands={"sweep": "shoal.sweep.commands.sweep"},
    client={"sweeps": "shoal.sweep.methods:SweepMethods"},
)
"""Sweeps over parameters of a job."""
