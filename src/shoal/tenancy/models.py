"""API models of planes: shared by the server's routes, the client and the commands."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from shoal.contract.view import View
from shoal.tenancy.records import PlaneState

NAME = r"^[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?$"


class PlaneRequest(BaseModel):
    """A plane to make."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=NAME, description="lower-case letters, digits and dashes, at most 40")
    tenant: str = Field(min_length=1, max_length=63, description="whose quota and share its work counts against here")


class PlaneView(View):
    """A plane. Its files are in the folder `planes/ID` of the shared server's home. `running` and `waiting` count what
    it has handed over to the shared pool; `path` is where it answers, below the shared server's URL."""

    id: str
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


class UsageView(View):
    """What a plane's jobs used of the shared pool, of those submitted since then (Unix time) that are kept. `jobs` are
    those that ran. What runs now counts from its end on."""

    plane: str
    tenant: str
    since: float
    jobs: int
    core_hours: float
    memory_gib_hours: float
    accelerator_hours: dict[str, float]


class AuditEntry(View):
    """Somebody did something in a plane: `actor` is its admin or a tenant of it. `state` is what that made of a job."""

    seq: int
    at: float
    actor: str
    kind: str
    tenant: str | None = None
    job_id: str | None = None
    state: str | None = None


class AuditList(View):
    """In order. `next` continues: give it as `after`; None when there is no more."""

    plane: str
    entries: tuple[AuditEntry, ...]
    next: int | None = None


class PlaneList(View):
    """All planes, by name."""

    planes: tuple[PlaneView, ...]
