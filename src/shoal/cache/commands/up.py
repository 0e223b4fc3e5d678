"""`shoal up --cache DIR`."""

from __future__ import annotations

from pathlib import Path

from shoal.base.console.command import SettingOption

CACHE = SettingOption("cache.root", "Keep data sets on this fast disk, shared fairly between tenants.", Path, "DIR")
