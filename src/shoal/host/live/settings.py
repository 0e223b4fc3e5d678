"""The guard's section of the server's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from shoal.extension import Section

MOST_SLOWDOWN = 10.0


def _policy(name: str) -> str:
    from shoal.host.policy import POLICIES

    if name not in POLICIES:
        raise ValueError(f"must be {' or '.join(POLICIES)}, not {name!r}")
    return name


class GuardSettings(Section):
    """The server's own guard."""

    policy: Annotated[str, AfterValidator(_policy)] = Field(
        "model", description="which policy of `shoal guard` decides"
    )
    max_slowdown: float = Field(
        1.05, gt=1, le=MOST_SLOWDOWN,
        description="how much longer a unit of guaranteed work may take than alone; 1.05: by a twentieth",
    )  # fmt: skip
