"""API models of artifacts."""

from __future__ import annotations

from pydantic import Field

from shoal.contract.view import View
from shoal.results.keeping.names import LONGEST_NAME

DIGEST = "^(sha256:)?[0-9a-f]{64}$"


class ArtifactView(View):
    """A file that is kept. `job`, `job_name` and `attempt` are null for one that was uploaded alone. `by`: `attempt`
    (taken at its end), `job` (it asked), or who uploaded it. `digest` is `sha256:HEX`."""

    id: str
    tenant: str
    job: str | None
    job_name: str | None
    attempt: int | None
    name: str
    digest: str
    bytes: int
    taken_at: float
    pinned: bool
    by: str


class ArtifactList(View):
    """Artifacts, the newest first. `next` continues the listing. `taking`: of the job, files are still being taken.
    `used_bytes` is what the contents of the tenant take, of `allowed_bytes`; null where the listing is of several."""

    artifacts: tuple[ArtifactView, ...]
    next: int | None = None
    taking: bool = False
    used_bytes: int | None = None
    allowed_bytes: int | None = None


class UploadRequest(View):
    """A file that is to be kept. `job` is the id of the job to which it is added, at its last attempt."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$")
    bytes: int = Field(ge=0, le=2**50)
    name: str = Field(min_length=1, max_length=LONGEST_NAME)
    job: str | None = Field(default=None, max_length=128)


class UploadView(View):
    """How far an upload is: `have` bytes are with the server. `artifact` is there once it is kept."""

    have: int
    artifact: ArtifactView | None = None


class PinRequest(View):
    pinned: bool
