"""What the API of sessions takes and shows."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from shoal.contract.manifest.values import ENV_NAME, NO_NUL
from shoal.contract.view import View

_Word = Annotated[str, StringConstraints(pattern=NO_NUL, max_length=65_536)]


class ExecRequest(BaseModel):
    """A command to run beside a rank of a running job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: list[_Word] = Field(min_length=1, max_length=4096)
    rank: int = Field(0, ge=0, le=100_000)
    terminal: bool = False
    env: dict[Annotated[str, StringConstraints(pattern=ENV_NAME)], _Word] = Field(default_factory=dict, max_length=256)


class SessionView(View):
    """A session that was made; `id` names it among those of its job's rank."""

    id: str
    job_id: str
    rank: int
