"""Commands for the users of the server's machine and their tenants, and for who one is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.panels import TENANTS
from shoal.contract.principal import TokenRole
from shoal.users.rules import Kind, Role, RunAs

if TYPE_CHECKING:
    from shoal.users.models import RemovedView, RuleView, UserView

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="As `getent` knows it.")]
GroupOption = Annotated[bool, typer.Option("--group", help="NAME is a group: all who are in it.")]


def register(app: typer.Typer) -> None:
    users = typer.Typer(help="Users of the server's machine: no tokens, jobs as oneself.", no_args_is_help=True)
    command(users, "list")(list_rules)
    command(users, "add")(add)
    command(users, "remove")(remove)
    command(users, "show")(show)
    command(users, "token")(token)
    app.add_typer(users, name="users", rich_help_panel=TENANTS)


def list_rules(context: CommandContext) -> None:
    """Which users and groups belong to which tenant."""
    with context.client() as client:
        found = client.users.list()
    context.show(found, lambda: _table(list(found.rules)) if found.rules else print("no users"))


def _table(rules: list[RuleView]) -> None:
    from shoal.base.console import output

    rows = [[one.name, one.kind.value, one.tenant or "-", one.role.value, one.run_as.value] for one in rules]
    output.put(output.table(["name", "kind", "tenant", "role", "jobs run as"], rows))


def add(
    context: CommandContext,
    name: NameArgument,
    tenant: Annotated[str | None, typer.Option(help="Where they belong; an admin belongs nowhere.")] = None,
    group: GroupOption = False,
    role: Annotated[
        Role, typer.Option(help="A viewer looks; a member has their own jobs, a lead all of the tenant's.")
    ] = Role.MEMBER,
    run_as: Annotated[RunAs, typer.Option("--run-as", help="As whom their jobs run.")] = RunAs.SELF,
) -> None:
    """Let a user or a group of this machine in. They need no token here, and their jobs run as them.

    A user's own entry beats that of a group. What was said of NAME before is replaced.
    """
    with context.client() as client:
        made = client.users.add(name, tenant=tenant, kind=_kind(group), role=role, run_as=run_as)
    context.show(made, lambda: _table([made]))


def remove(context: CommandContext, name: NameArgument, group: GroupOption = False) -> None:
    """Take a user or a group out, at once. A user's tokens are revoked.

    Jobs of theirs that run go on: `shoal cancel` ends them. Those that wait end when they would start.
    """
    with context.client() as client:
        removed = client.users.remove(name, kind=_kind(group))
    context.show(removed, lambda: _removed(removed))


def _removed(removed: RemovedView) -> None:
    print(f"the {removed.kind.value} {removed.name} is out; tokens revoked: {len(removed.revoked)}")
    if removed.unfinished:
        print(f"  jobs that are not over: {removed.unfinished}; what runs goes on, what waits will not start")


def show(
    context: CommandContext,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Who; the caller, if left out.")] = None,
) -> None:
    """Who you are to the server, or (admin) who another user is."""
    with context.client() as client:
        found = client.users.whoami() if name is None else client.users.get(name)
    context.show(found, lambda: _told(found))


def _told(found: UserView) -> None:
    print(f"user     {found.user or '-'}" + (f" ({found.uid})" if found.uid is not None else ""))
    print(f"tenant   {found.tenant or '-'}")
    print(f"role     {found.role.value}")
    print(f"jobs as  {found.run_as or 'the user of the tenant'}")
    print(f"by       {found.by}")


def token(
    context: CommandContext,
    name: NameArgument,
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    role: Annotated[TokenRole, typer.Option(help="A viewer looks and changes nothing.")] = TokenRole.MEMBER,
) -> None:
    """Make a token that is a user's, to call from another machine. It is shown this once.

    An admin makes it for anyone, a user for themselves on the server's machine.
    """
    with context.client() as client:
        made = client.users.token(name, label=label, role=role)
    # The token alone on stdout, so that it can go into a file or variable.
    context.show(made, lambda: print(made.token))


def _kind(group: bool) -> Kind:
    return Kind.GROUP if group else Kind.USER
