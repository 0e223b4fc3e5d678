"""Tenants, quotas, tokens and secrets."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import TenantOption, command
from shoal.base.console.panels import TENANTS
from shoal.cli.context import CliContext
from shoal.contract.principal import TokenRole
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.sdk.models import TenantView

_NONE = ("none", "unlimited", "-")

Weight = Annotated[float | None, typer.Option(help="Its share when tenants compete.", show_default="1")]
NewWeight = Annotated[float | None, typer.Option("--weight", help="Its share when tenants compete.")]
MaxClass = Annotated[
    str | None, typer.Option("--max-class", help="Highest class it may submit: guaranteed or best-effort.")
]
SandboxLevel = Annotated[
    str | None, typer.Option("--sandbox", help="How its jobs are kept from others: none, user or bubblewrap.")
]


@dataclass(frozen=True)
class Limits:
    """Options for what a tenant may have; `none` lifts one."""

    accelerators: Annotated[str | None, typer.Option(help="Accelerators at once, over all types.")] = None
    types: Annotated[
        list[str] | None, typer.Option("--type", metavar="TYPE=COUNT", help="Of one type; may be repeated.")
    ] = None
    cpus: Annotated[str | None, typer.Option(help="Cores at once.")] = None
    memory: Annotated[str | None, typer.Option(help="Memory at once, such as 64GiB.")] = None
    running: Annotated[str | None, typer.Option(help="Running jobs.")] = None
    queued: Annotated[str | None, typer.Option(help="Waiting jobs.")] = None
    disk: Annotated[str | None, typer.Option(help="Files that Shoal keeps for it, such as 200GiB.")] = None
    default_cpus: Annotated[str | None, typer.Option(help="Cores of each rank of a job that does not say.")] = None
    default_memory: Annotated[str | None, typer.Option(help="Memory of each rank of a job that does not say.")] = None

    def given(self) -> dict[str, Any]:
        """Those that were given, as the API takes them."""
        found: dict[str, Any] = {}
        for option, (name, read) in _FIELDS.items():
            word = getattr(self, option)
            if word is not None:
                found[name] = None if word in _NONE else read(word, f"--{option.replace('_', '-')}")
        if self.types:
            found["by_type"] = dict(_typed(word) for word in self.types if word not in _NONE)
        return found


def register(app: typer.Typer) -> None:
    tenant = typer.Typer(help="Create, list and change tenants, and make their tokens.", no_args_is_help=True)
    command(tenant, "create")(create)
    command(tenant, "list")(listing)
    command(tenant, "set")(change)
    command(tenant, "token")(token)
    app.add_typer(tenant, name="tenant", rich_help_panel=TENANTS)
    command(app, "quota", rich_help_panel=TENANTS, short_help="Show or change a tenant's limits")(quota)
    secret = typer.Typer(help="Values that jobs find in their environment, stored encrypted.", no_args_is_help=True)
    command(secret, "set")(set_secret)
    command(secret, "list")(list_secrets)
    command(secret, "delete")(delete_secret)
    app.add_typer(secret, name="secret", rich_help_panel=TENANTS)


def _count(word: str, option: str) -> int:
    if not word.isdecimal():
        raise Invalid(f"{word!r} is no count", where=option, hint="a whole number, or none for no limit")
    return int(word)


def _milli(word: str, option: str) -> int:
    try:
        number = float(word)
    except ValueError:
        number = -1.0
    if not 0 <= number < float("inf"):
        what = f"{word!r} is not a number of at least 0"
        raise Invalid(what, where=option, hint="such as 4 or 0.5, or none for no limit")
    return round(number * 1000)


def _size(word: str, option: str) -> int:
    from shoal.contract.manifest.quantities import read_size

    try:
        return int(read_size(word))
    except ValueError:
        raise Invalid(f"{word!r} is no size", where=option, hint="such as 64GiB, or none for no limit") from None


def _typed(word: str) -> tuple[str, int]:
    kind, _, count = word.partition("=")
    if not kind or not count:
        raise Invalid(f"{word!r} is not TYPE=COUNT", where="--type", hint="such as a100=4")
    return kind, _count(count, "--type")


_FIELDS: Mapping[str, tuple[str, Callable[[str, str], int]]] = {
    "accelerators": ("accelerators", _count), "running": ("running_jobs", _count), "queued": ("queued_jobs", _count),
    "cpus": ("cpu_milli", _milli), "default_cpus": ("default_cpu_milli", _milli), "memory": ("memory_bytes", _size),
    "disk": ("disk_bytes", _size), "default_memory": ("default_memory_bytes", _size),
}  # fmt: skip
"""The API's name of the limit that an option sets, and how its value is read."""


def create(
    context: CliContext,
    name: Annotated[str, typer.Argument(help="Lower case letters, digits and dashes.", metavar="TENANT")],
    weight: Weight = None,
    max_class: MaxClass = None,
    sandbox: SandboxLevel = None,
    *,
    limits: Limits,
) -> None:
    """Create a tenant. `shoal tenant token NAME` then makes its first token."""
    quota = limits.given()
    with context.client() as client:
        made = client.create_tenant(
            name,
            weight=1.0 if weight is None else weight,
            quota=quota,
            max_priority_class=max_class or "guaranteed",
            sandbox=sandbox,
        )
    context.show(made, lambda: _table([made]))


def listing(context: CliContext) -> None:
    """Tenants with their limits and what they hold now."""
    with context.client() as client:
        found = client.tenants()
    context.show({"tenants": found}, lambda: _table(found))


def change(
    context: CliContext,
    name: Annotated[str, typer.Argument(metavar="TENANT")],
    weight: NewWeight = None,
    max_class: MaxClass = None,
    sandbox: SandboxLevel = None,
) -> None:
    """Change a tenant's weight, highest class or sandbox. Its limits: `shoal quota`."""
    if weight is None and max_class is None and sandbox is None:
        raise Invalid(
            "there is nothing to change", hint="give --weight, --max-class or --sandbox; limits: `shoal quota`"
        )
    with context.client() as client:
        changed = client.change_tenant(name, weight=weight, max_priority_class=max_class, sandbox=sandbox)
    context.show(changed, lambda: _table([changed]))


def _table(tenants: Iterable[TenantView]) -> None:
    from shoal.base.console import output
    from shoal.cli import views

    rows = [
        [one.name, f"{one.weight:g}", one.max_priority_class.value, one.sandbox.value, one.running_jobs,
         one.jobs.get("QUEUED", 0), output.needs(one.used), views.quota(one.quota)]
        for one in tenants
    ]  # fmt: skip
    columns = ["tenant", "weight", "max class", "sandbox", "running", "queued", "holds", "quota"]
    output.put(output.table(columns, rows))


def token(
    context: CliContext,
    name: Annotated[str, typer.Argument(metavar="TENANT")],
    label: Annotated[str, typer.Option(help="What it is for.")] = "",
    role: Annotated[TokenRole, typer.Option(help="A viewer looks and changes nothing.")] = TokenRole.MEMBER,
    listed: Annotated[bool, typer.Option("--list", help="List the tenant's tokens instead.")] = False,
    revoke: Annotated[str | None, typer.Option(metavar="ID", help="Revoke this token instead, at once.")] = None,
) -> None:
    """Make a token for a tenant. It is shown this once; its holder sets SHOAL_TOKEN."""
    with context.client() as client:
        if revoke is not None:
            client.revoke_token(revoke)
            context.show({"revoked": revoke}, lambda: print(f"{revoke} is revoked"))
        elif listed:
            found = client.tokens(name)
            context.show({"tokens": found}, lambda: _tokens(found))
        else:
            made = client.create_token(name, label=label, role=role)
            # The token alone on stdout, so that it can go into a file or variable.
            context.show(made, lambda: print(made.token))


def _tokens(found: Iterable[Any]) -> None:
    from shoal.base.console import output

    rows = [
        [one.id, "viewer" if one.read_only else "member", output.moment(one.created_at),
         output.moment(one.revoked_at), one.label or "-"]
        for one in found
    ]  # fmt: skip
    output.put(output.table(["token", "role", "made", "revoked", "label"], rows))


def quota(
    context: CliContext,
    tenant: Annotated[str, typer.Argument(metavar="TENANT")],
    *,
    limits: Limits,
) -> None:
    """Show a tenant's limits, or change those that are given; `none` lifts one."""
    given = limits.given()
    with context.client() as client:
        found = client.change_tenant(tenant, quota=given) if given else client.tenant(tenant)
    context.show(found, lambda: _quota(found))


def _quota(tenant: TenantView) -> None:
    from shoal.base.console import output

    limits, used = tenant.quota, tenant.used
    held = sum(used.accelerators.values())
    rows: list[list[Any]] = [["accelerators", held, limits.accelerators]]
    rows += [[kind, used.accelerators.get(kind, 0), count] for kind, count in limits.by_type.items()]
    rows += [
        ["cpus", f"{used.cpu_milli / 1000:g}", None if limits.cpu_milli is None else f"{limits.cpu_milli / 1000:g}"],
        ["memory", output.size(used.memory_bytes), limits.memory_bytes and output.size(limits.memory_bytes)],
        ["running jobs", tenant.running_jobs, limits.running_jobs],
        ["queued jobs", tenant.jobs.get("QUEUED", 0), limits.queued_jobs],
        ["disk", output.size(tenant.disk_bytes), limits.disk_bytes and output.size(limits.disk_bytes)],
    ]
    shown = [[name, has, "unlimited" if most is None else most] for name, has, most in rows]
    output.put(output.table(["limit", "holds", "at most"], shown))
    if limits.default_cpu_milli is not None or limits.default_memory_bytes is not None:
        cores = "the server's" if limits.default_cpu_milli is None else f"{limits.default_cpu_milli / 1000:g}"
        memory = "the server's" if limits.default_memory_bytes is None else output.size(limits.default_memory_bytes)
        output.console().print(f"a rank of a job that does not say: cpus {cores}, memory {memory}")


def set_secret(
    context: CliContext, name: Annotated[str, typer.Argument(metavar="SECRET")], tenant: TenantOption = None
) -> None:
    """Store a secret. Its value is asked for, or read from stdin: never an argument, where others could see it."""
    value = typer.prompt("value", hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.read()
    value = value.removesuffix("\n")
    if not value:
        raise Invalid("the value is empty", where="stdin", hint=f"`shoal secret set {name} < FILE`")
    with context.client() as client:
        client.set_secret(name, value, tenant=tenant)
    context.show({"name": name, "set": True}, lambda: print(f"secret {name} is set"))


def list_secrets(context: CliContext, tenant: TenantOption = None) -> None:
    """Names of secrets, and when they were set."""
    with context.client() as client:
        found = client.secrets(tenant=tenant)

    def human() -> None:
        from shoal.base.console import output

        output.console().print(
            output.table(["secret", "set"], [[one.name, output.moment(one.set_at)] for one in found])
        )

    context.show({"secrets": found}, human)


def delete_secret(
    context: CliContext, name: Annotated[str, typer.Argument(metavar="SECRET")], tenant: TenantOption = None
) -> None:
    """Delete a secret; jobs that run keep what they have."""
    with context.client() as client:
        client.delete_secret(name, tenant=tenant)
    context.show({"name": name, "deleted": True}, lambda: print(f"secret {name} is deleted"))
