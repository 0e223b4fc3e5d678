"""The declaration of this component."""

from shoal.extension import Component

ENVIRONMENT = Component(
    extension="shoal.environment.live.extension:Environments",
    commands={"environments": "shoal.environment.commands.environments"},
    client={"environments": "shoal.environment.methods:EnvironmentMethods"},
)
