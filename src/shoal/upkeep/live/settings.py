"""The settings of upkeep."""

from __future__ import annotations

from pydantic import Field, field_validator

from shoal.contract.manifest.values import PeriodOrZero
from shoal.extension import Section


class UpkeepSection(Section):
    """Backups by the clock."""

    enabled: bool = True
    backup_every: PeriodOrZero = Field(0.0, description="make a backup so often, such as 1d; 0: none by the clock")
    backup_keep: int = Field(7, ge=1, le=10_000, description="the number of these backups that stay; the oldest go")
    backup_to: str = Field("", description="an absolute path: the folder that they are in; empty: HOME/backups")

    @field_validator("backup_to")
    @classmethod
    def _absolute(cls, value: str) -> str:
        if value and (not value.startswith("/") or ".." in value.split("/")):
            raise ValueError(f"{value!r} is no absolute path")
        return value
