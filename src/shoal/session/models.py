"""API models of sessions."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from shoal.base.validation import problems
from shoal.contract.manifest.values import ENV_NAME, NO_NUL
from shoal.contract.view import View
from shoal.core import Invalid

_Word = Annotated[str, StringConstraints(pattern=NO_NUL, max_length=65_536)]


class ExecRequest(BaseModel):
    """A command to run beside a rank of a running job."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    command: list[_Word] = Field(default_factory=list, max_length=4096)
    ssh_key: str | None = Field(
        None,
        pattern=r"^ssh-ed25519 [A-Za-z0-9+/=]{60,100}$",
        description="instead of a command: an OpenSSH server for one connection, which lets this key in",
    )
    rank: int = Field(0, ge=0, le=100_000)
    terminal: bool = False
    env: dict[Annotated[str, StringConstraints(pattern=ENV_NAME)], _Word] = Field(default_factory=dict, max_length=256)


def parse_exec(text: bytes, *, source: str) -> ExecRequest:
    """Raises Invalid with every problem."""
    try:
        asked = ExecRequest.model_validate_json(text)
    except ValidationError as error:
        found = tuple(problems(error))
        raise Invalid(found[0].what, where=found[0].where or source, problems=found) from None
    if bool(asked.command) == (asked.ssh_key is not None):
        raise Invalid("there is no command", where="command", hint="a command, or an ssh_key: one of them")
    return asked


class OpenSession(View):
    """A session that is open. What only its agent knows is null where that does not answer."""

    id: str
    job_id: str
    job: str = Field(description="the job's name")
    tenant: str
    rank: int
    who: str = Field(description="who started it; of a job's own terminal, who attached to it last")
    since: float
    kind: str = Field(description="`command`, `ssh`, or `job`: the job's own terminal")
    program: str = Field(description="its program, without its words")
    clients: int | None = Field(description="connections that are attached now")
    idle_s: float | None = Field(
        description="since something was typed or written in it, or the job's devices worked, as far as that is known"
    )
    sent_bytes: int | None = Field(description="that it wrote")
    received_bytes: int | None = Field(description="that were typed into it")


class OpenSessions(View):
    """The oldest first."""

    sessions: tuple[OpenSession, ...]


class SessionView(View):
    """A session that was made; `id` names it among those of its job's rank."""

    id: str
    job_id: str
    rank: int
