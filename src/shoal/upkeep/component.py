"""The declaration of this component."""

from shoal.extension import Component

UPKEEP = Component(
    extension="shoal.upkeep.live.extension:Upkeep",
    commands={"upgrade": "shoal.upkeep.commands.upgrade"},
    options={
        "backup-every": "shoal.upkeep.commands.up:EVERY",
        "backup-keep": "shoal.upkeep.commands.up:KEEP",
        "backup-to": "shoal.upkeep.commands.up:TO",
    },
)
