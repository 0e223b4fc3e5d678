"""The settings of the web page."""

from __future__ import annotations

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from shoal.contract.manifest.quantities import read_duration, write_duration
from shoal.extension import Section

Period = Annotated[
    float, BeforeValidator(read_duration), PlainSerializer(write_duration, return_type=str, when_used="json")
]


class WebSection(Section):
    """The web page, which is on unless it is turned off."""

    enabled: bool = True
    hosts: str = Field(
        "", description="names by which browsers reach this server beside its own, such as that of a proxy; with commas"
    )
    lifetime: Period = Field(7 * 86400.0, description="how long a sign-in to the page lasts at most")
    idle: Period = Field(86400.0, description="how long a sign-in lasts that is not used")
    streams: int = Field(256, ge=1, le=1 << 16, description="pages of one token that are kept live at once")

    @property
    def names(self) -> frozenset[str]:
        """Of hosts, in lower case."""
        return frozenset(name.strip().lower() for name in self.hosts.split(",") if name.strip())
