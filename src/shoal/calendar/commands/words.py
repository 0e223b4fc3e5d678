"""Options that commands about plans share, and what these do with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from shoal.base.console.command import CommandContext
from shoal.calendar.schedule import shown_at
from shoal.calendar.windows import Repeat
from shoal.core import ANY, Invalid

if TYPE_CHECKING:
    from shoal.calendar.models import PlanView

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What it is called.")]
FromOption = Annotated[str, typer.Option("--from", metavar="TIME", help="2026-12-03T14:00, on the zone's wall clock.")]
UntilOption = Annotated[str, typer.Option("--until", metavar="TIME", help="2026-12-03T16:00, or a length: +2h.")]
NodesOption = Annotated[str, typer.Option(metavar="NODE,...", help="On these nodes only.")]
RepeatOption = Annotated[Repeat, typer.Option(help="At the same time of the wall clock.")]
LastOption = Annotated[str | None, typer.Option(metavar="TIME", help="It begins no more after that.")]
ZoneOption = Annotated[
    str | None, typer.Option(help="Whose wall clock, such as Europe/Berlin; left out: the setting calendar.zone.")
]  # fmt: skip


def put(
    context: CommandContext, name: str, *, begin: str, end: str, tenant: str | None, accelerators: str | None,
    nodes: str, repeat: Repeat, last: str | None, zone: str | None, because: str,
) -> None:  # fmt: skip
    """Make a plan and show it."""
    count, kind = (None, ANY) if accelerators is None else read_accelerators(accelerators)
    with context.client() as client:
        made = client.calendar.reserve(
            name, begin=begin, end=end, tenant=tenant, accelerators=count, kind=kind, nodes=split(nodes),
            repeat=repeat, last=last, zone=zone, because=because,
        )  # fmt: skip
    context.show(made, lambda: print(f"{made.name}: {what(made)}, {when(made)}"))


def read_accelerators(text: str) -> tuple[int, str]:
    """Raises Invalid."""
    kind, _, count = text.rpartition(":")
    if not count.isdecimal() or not int(count[:9]) > 0:
        raise Invalid(f"{text!r} is no number of accelerators", where="--accelerators", hint="such as 2, or a100:2")
    return int(count), kind or ANY


def split(nodes: str) -> list[str]:
    return [one.strip() for one in nodes.split(",") if one.strip()]


def what(plan: PlanView) -> str:
    """What a plan takes."""
    nodes = ", ".join(plan.nodes) or ("all nodes" if plan.accelerators is None else "any node")
    if plan.accelerators is None:
        return f"{nodes} {'in maintenance' if plan.maintenance else 'whole'}"
    return f"{plan.accelerators}{'' if plan.kind == ANY else ' ' + plan.kind} accelerators of {nodes}"


def when(plan: PlanView) -> str:
    """Its present or next window."""
    if plan.next_begin is None or plan.next_end is None:
        return "over"
    begin, end = shown_at(plan.next_begin, plan.zone), shown_at(plan.next_end, plan.zone)
    end = end.split(" ", 1)[1] if begin[:10] == end[:10] else end
    return f"{begin} to {end}{'' if plan.repeat is Repeat.NEVER else ', ' + plan.repeat.value}"
