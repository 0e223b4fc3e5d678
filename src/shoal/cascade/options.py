"""Options in a manifest of a model for the runtime `cascade`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field


class CascadeOptions(BaseModel, extra="forbid"):
    """`watch`: the share of rows that also run through the full pipeline, in idle time, to see whether the cascade
    still agrees with it. `without_store`: what happens while a look-up store is away or too slow: the request fails,
    or the stage that has all it needs answers, and says so in the output `approximate`."""

    watch: float = Field(0.01, ge=0, le=1)
    without_store: Literal["fail", "approximate"] = "fail"
