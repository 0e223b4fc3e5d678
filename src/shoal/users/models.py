"""API models of users: shared by the server's routes, the client and the commands."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from shoal.contract.models import NewTokenView
from shoal.contract.principal import TokenRole
from shoal.contract.view import Given, View
from shoal.users.rules import Kind, Role, RunAs

NAME = r"^[^\x00-\x20/:\x7f][^\x00-\x1f/:\x7f]{0,254}$"
"""What the system's databases hold as the name of a user or a group."""


class RuleGiven(Given):
    """To which tenant a user or a group belongs, and what they may do there."""

    tenant: Annotated[str, Field(max_length=63)] | None = None
    role: Role = Role.MEMBER
    run_as: RunAs = RunAs.SELF


class RuleView(View):
    """A row of the table."""

    kind: Kind
    name: str
    tenant: str | None
    role: Role
    run_as: RunAs
    created_at: float


class RuleList(View):
    rules: tuple[RuleView, ...]


class UserView(View):
    """Who a caller is. `user` is None for a token that belongs to none, and for the server's own user; `by` says what
    makes them so; `run_as` is the name of the user as whom their jobs run, None for the one of their tenant."""

    user: str | None
    uid: int | None
    tenant: str | None
    role: Role
    run_as: str | None
    by: str


class RemovedView(View):
    """`revoked` are the tokens that belonged to the user, `unfinished` their jobs that are not over."""

    kind: Kind
    name: str
    revoked: tuple[str, ...]
    unfinished: int


class UserTokenGiven(Given):
    label: Annotated[str, Field(max_length=100, pattern=r"^[^\x00]*$")] = ""
    role: TokenRole = TokenRole.MEMBER


class UserTokenView(NewTokenView):
    """A token that belongs to a user."""

    user: str
    uid: int
