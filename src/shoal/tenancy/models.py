"""What the API says of planes, as typed values: shared by the server's routes, the client and the commands."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from shoal.contract.models import View
from shoal.tenancy.records import PlaneState

NAME = r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"


class PlaneRequest(BaseModel):
    """A plane to make."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=NAME, description="lower-case letters, digits and dashes, at most 40")
    tenant: str = Field(min_length=1, max_length=63, description="whose quota and share its work counts against here")


class PlaneView(View):
    """A plane. `running` and `waiting` count what it has handed over to the shared pool; `path` is where it answers,
    below the shared server's URL."""

    name: str
    tenant: str
    state: PlaneState
    awake: bool
    path: str
    running: int
    waiting: int
    created_at: float
    updated_at: float


class NewPlaneView(PlaneView):
    """`url` is where it answers, as seen by who asked; `token` is its first admin's, and is shown once."""

    url: str
    token: str


class PlaneList(View):
    """All planes, by name."""

    planes: tuple[PlaneView, ...]
