"""`client.users`: which users of the server's machine belong to which tenant, and who the caller is."""

from __future__ import annotations

from shoal.contract.calls import Call, json_body, path_piece, reads
from shoal.contract.methods import Namespace, single
from shoal.contract.principal import TokenRole
from shoal.users.models import RemovedView, RuleList, RuleView, UserTokenView, UserView
from shoal.users.rules import Kind, Role, RunAs


def list_rules() -> Call[RuleList]:
    """The table, by kind and name; of the caller's own tenant unless they are the admin."""
    return Call("GET", "/v1/users", reads(RuleList))


def whoami() -> Call[UserView]:
    """Who the caller is to the server."""
    return Call("GET", "/v1/whoami", reads(UserView))


def get(name: str) -> Call[UserView]:
    """Who a user of the machine is to the server (admin)."""
    return Call("GET", f"/v1/users/{path_piece('user', name)}", reads(UserView))


def add(
    name: str, *, tenant: str | None = None, kind: Kind = Kind.USER, role: Role = Role.MEMBER,
    run_as: RunAs = RunAs.SELF,
) -> Call[RuleView]:  # fmt: skip
    """A user, or all of a group, belong to a tenant from now on (admin). It replaces what was said of them before."""
    body, headers = json_body({"tenant": tenant, "role": role, "run_as": run_as})
    return Call("PUT", f"/v1/users/{path_piece(kind, name)}/{kind}", reads(RuleView), {}, body, headers)


def remove(name: str, *, kind: Kind = Kind.USER) -> Call[RemovedView]:
    """They do not any more, and their tokens are revoked (admin). What runs goes on; what waits does not start."""
    return Call("DELETE", f"/v1/users/{path_piece(kind, name)}/{kind}", reads(RemovedView))


def token(name: str, *, label: str = "", role: TokenRole = TokenRole.MEMBER) -> Call[UserTokenView]:
    """A token that is a user's: for them from another machine. By the admin, or by that user through the socket."""
    body, headers = json_body({"label": label, "role": role})
    return Call("POST", f"/v1/users/{path_piece('user', name)}/tokens", reads(UserTokenView), {}, body, headers)


class UserMethods(Namespace):
    """The methods of `client.users`."""

    list = single(list_rules)
    whoami = single(whoami)
    get = single(get)
    add = single(add)
    remove = single(remove)
    token = single(token)
