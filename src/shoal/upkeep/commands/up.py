"""`shoal up --backup-every 1d --backup-keep 7 --backup-to DIR`."""

from __future__ import annotations

from pathlib import Path

from shoal.base.console.command import SettingOption

EVERY = SettingOption("upkeep.backup_every", "Make a backup so often, and check it.", metavar="DURATION")
KEEP = SettingOption("upkeep.backup_keep", "The number of them that stay.", metavar="COUNT")
TO = SettingOption("upkeep.backup_to", "Where they are written: best on another disk.", Path, "DIR")
