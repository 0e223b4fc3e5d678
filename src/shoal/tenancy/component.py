"""The declaration of this component."""

from shoal.extension import Component

TENANCY = Component(
    extension="shoal.tenancy.live.extension:Tenancy",
    commands={"plane": "shoal.tenancy.commands.plane"},
    client={"planes": "shoal.tenancy.methods:PlaneMethods"},
)
