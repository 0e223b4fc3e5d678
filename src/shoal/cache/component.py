"""The declaration of this component."""

from shoal.extension import Component

CACHE = Component(
    extension="shoal.cache.live.extension:Cache",
    commands={"cache": "shoal.cache.commands.cache"},
    options={"cache": "shoal.cache.commands.up:CACHE"},
)
