"""`shoal up --market FILE`."""

from __future__ import annotations

from pathlib import Path

from shoal.base.console.command import SettingOption

MARKET = SettingOption("market.file", "Rent instances as this file says.", Path, "FILE")
