"""The declaration of this component."""

from shoal.extension import Component

ENVIRONMENT = Component(extension="shoal.environment.live.extension:Environments")
