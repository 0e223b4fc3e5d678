"""The settings of sessions, and what a job's manifest says of its terminal."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from shoal.contract.manifest.values import Duration, Period, PeriodOrZero
from shoal.extension import Section


class SessionSection(Section):
    """Terminals and commands in running jobs."""

    enabled: bool = True
    idle: PeriodOrZero = Field(
        8 * 3600.0,
        description="a session ends when nothing was typed or written in it, and no device of its job worked, for so "
        "long; 0: never",
    )
    time: PeriodOrZero = Field(0.0, description="a session ends after so long; 0: with its job")
    linger: Period = Field(
        300.0, description="a command of `shoal exec` goes on for so long when its client has gone without a word"
    )
    open: int = Field(256, gt=0, le=100_000, description="connections of one tenant to its jobs at once")


class SessionJob(BaseModel):
    """The job's command runs at a terminal, to which people attach."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rows: int = Field(24, gt=0, le=9999, description="of the terminal, until somebody attaches")
    columns: int = Field(80, gt=0, le=9999)
    term: str = Field("xterm-256color", pattern=r"^[A-Za-z0-9][A-Za-z0-9+._-]{0,63}$", description="its kind (TERM)")
    idle: Duration | None = Field(None, description="less than the server's setting")
    time: Duration | None = Field(None, description="less than the server's setting")
