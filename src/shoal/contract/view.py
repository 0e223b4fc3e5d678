"""Declaration of the API's values."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class View(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", defer_build=True)


class Given(View):
    """What a request brings: checked to the last field, and built at once, for FastAPI asks."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=False)
