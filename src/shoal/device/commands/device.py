"""`shoal device`: what shares the devices of this machine, and how it fares."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import FAILED, CommandContext, JsonFlag, guarded
from shoal.base.console.panels import TOOLS
from shoal.core import NotFound

if TYPE_CHECKING:
    from shoal.base.console.output import FittedTable
    from shoal.device.page import Occupant, Page
    from shoal.device.policy import Tenant

device_app = typer.Typer(
    help="Several programs on one accelerator: guaranteed work runs as if alone, best-effort work fills the gaps. "
    "`shoal run --device-memory 8GiB python train.py` starts one.",
    no_args_is_help=True,
)


def register(app: typer.Typer) -> None:
    app.add_typer(device_app, name="device", rich_help_panel=TOOLS, short_help="Several programs on one accelerator")


@device_app.command("status")
def status(json: JsonFlag = False) -> None:
    """Which programs use which device now, and what each has waited for."""
    context = CommandContext(json, None, None)
    guarded(context, lambda: context.show(_document(), _print_table))


@device_app.command("top")
def top(every: Annotated[float, typer.Option("--every", min=0.1, help="Seconds between looks.")] = 1.0) -> None:
    """The same, live, until Ctrl-C."""

    def act() -> None:
        from rich.live import Live

        from shoal.base.console.output import console

        with Live(_table(), console=console(), refresh_per_second=10, transient=False) as live:
            while True:
                time.sleep(every)
                live.update(_table())

    guarded(CommandContext(False, None, None), act)


@device_app.command("explain")
def explain(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A program's name or pid; else all.")] = None,
    json: JsonFlag = False,
) -> None:
    """Why best-effort work waits or goes now, as its gate decides."""
    context = CommandContext(json, None, None)

    def act() -> None:
        told = list(_told(name))
        if name is not None and not told:
            raise NotFound(f"no program {name!r} shares a device here", where=name, hint="see `shoal device status`")

        def human() -> None:
            for one in told:
                print(f"{one['device']}  {one['process']} ({one['pid']}): {one['reason']}")
            if not told:
                print("no program shares a device here")

        context.show(told, human)

    guarded(context, act)


@device_app.command("rules")
def rules(
    device: Annotated[str | None, typer.Argument(metavar="DEVICE", help="One device; else all.")] = None,
    bound_us: Annotated[float | None, typer.Option(min=1, help="Best-effort work on a device at once.")] = None,
    grace_us: Annotated[float | None, typer.Option(min=0, help="Silence before best-effort work goes on.")] = None,
    min_share: Annotated[float | None, typer.Option(min=0, max=0.5, help="Of the time, for best-effort work.")] = None,
    max_wait_ms: Annotated[float | None, typer.Option(min=0, help="Longest wait of a launch; 0: no limit.")] = None,
    json: JsonFlag = False,
) -> None:
    """Show what is asked of devices, or change it for all programs that use them; at once."""
    context = CommandContext(json, None, None)

    def act() -> None:
        asked: dict[str, int] = {}
        for field, value, factor in (
            ("bound_ns", bound_us, 1e3), ("grace_ns", grace_us, 1e3), ("max_wait_ns", max_wait_ms, 1e6),
            ("min_share_pm", min_share, 1e3),
        ):  # fmt: skip
            if value is not None:
                asked[field] = round(value * factor)
        found = {}
        for page in _pages(device):
            with page:
                if asked:
                    page.set_rules(replace(page.rules(), **asked))
                found[page.device] = asdict(page.rules())

        def human() -> None:
            for name, values in found.items():
                print(f"{name}: " + ", ".join(f"{field} {value}" for field, value in values.items()))

        context.show(found, human)

    guarded(context, act)


@device_app.command("doctor")
def doctor(json: JsonFlag = False) -> None:
    """What could isolate programs on the devices of this machine, and what is missing. Exit code 1 if nothing could."""
    context = CommandContext(json, None, None)

    def act() -> None:
        from shoal.device import launch, seats

        found, there = seats.capabilities(), launch.devices()

        def human() -> None:
            for one in found:
                mark = "yes" if one.available else "no "
                print(f"{mark} {one.name}: {one.detail}" + (f" ({one.consequence})" if one.consequence else ""))
            for device in there:
                print(f"    {device.name}: {device.model} by {device.by}, {device.memory_bytes >> 20} MiB")

        document = {"capabilities": [asdict(one) for one in found], "devices": [asdict(one) for one in there]}
        context.show(document, human)
        if not found[0].available or not any(one.available for one in found[1:]):
            raise typer.Exit(FAILED)

    guarded(context, act)


def _pages(device: str | None = None) -> list[Page]:
    from shoal.device import seats

    found = [page for page in seats.pages() if device in (None, page.device)]
    if device is not None and not found:
        raise NotFound(f"no program has shared {device!r} here", where=device, hint="see `shoal device status`")
    return found


def _living(page: Page) -> list[tuple[Occupant, Tenant]]:
    from shoal.device.policy import Class

    tenants = page.snapshot()
    return [(one, tenants[one.slot]) for one in page.occupants() if tenants[one.slot].cls is not Class.FREE]


def _document(proc: Path = Path("/proc")) -> list[dict[str, Any]]:
    """Of each device: its programs, and the processes that use it without a seat."""
    from shoal.device.unseated import unseated

    found: dict[str, dict[str, Any]] = {}
    for page in _pages():
        with page:
            programs = [_program(one) for one, _ in _living(page)]
            found[page.device] = {"device": page.device, "memory_bytes": page.memory_total, "programs": programs}
    for each in found.values():
        each["unseated"] = []
    seated = [one["pid"] for each in found.values() for one in each["programs"]]
    for other in unseated(seated, proc):
        empty = {"device": other.device, "memory_bytes": 0, "programs": [], "unseated": []}
        found.setdefault(other.device, empty)["unseated"].append({"name": other.name, "pid": other.pid})
    return list(found.values())


def _program(one: Occupant) -> dict[str, Any]:
    waited = {verdict.name.removeprefix("WAIT_").lower(): ns / 1e9 for verdict, ns in one.waited_ns.items()}
    return {
        "name": one.name, "pid": one.pid, "class": one.cls.name.lower().replace("_", "-"), "weight": one.weight,
        "launches": one.launches, "pieces": one.pieces, "violations": one.violations, "passed": one.shares,
        "collectives": one.collectives, "kernels": one.kernels, "variants": one.variants, "parts": one.parts,
        "memory_bytes": one.memory_used, "memory_quota": one.memory_quota, "pending": one.pending,
        "waiting": one.waiting, "waited_s": waited,
    }  # fmt: skip


def _told(name: str | None) -> list[dict[str, Any]]:
    from shoal.device import policy

    told = []
    for page in _pages():
        with page:
            rules, tenants, now = page.rules(), page.snapshot(), time.monotonic_ns()
            for one, tenant in _living(page):
                if name not in (None, one.name, str(one.pid)):
                    continue
                cost = policy.bound_ns(rules, tenants, now)
                found = policy.decide(rules, tenants, one.slot, cost_ns=cost, since_ns=now, now_ns=now)
                idle = tenant.cls is policy.Class.BEST_EFFORT and not (one.waiting or one.pending)
                reason = "it launches nothing now; if it did: " + found.reason if idle else found.reason
                told.append({"device": page.device, "process": one.name, "pid": one.pid, "reason": reason})
    return told


def _table(proc: Path = Path("/proc")) -> FittedTable:
    from shoal.base.console import output

    rows: list[list[Any]] = []
    for each in _document(proc):
        if not each["programs"] and not each["unseated"]:
            rows.append([each["device"], "-", "", "", "", "", "", "", ""])
        for one in each["programs"]:
            waited = " ".join(f"{name} {seconds:.1f}" for name, seconds in one["waited_s"].items() if seconds >= 0.05)
            state = "waits" if one["waiting"] else "on it" if one["pending"] else "quiet"
            rows.append([
                each["device"], f"{one['name']} ({one['pid']})", one["class"], state, one["launches"],
                one["pieces"] or "-", f"{one['variants']} of {one['kernels']}" if one["kernels"] else "-",
                one["violations"] or "-", waited or "-",
            ])  # fmt: skip
        for one in each["unseated"]:
            rows.append([each["device"], f"{one['name']} ({one['pid']})", "no seat", "not gated", "", "", "", "", ""])
    columns = ["device", "program", "class", "now", "launches", "pieces", "variants", "over the bound", "waited s"]
    return output.table(columns, rows)


def _print_table() -> None:
    from shoal.base.console.output import console

    table = _table()
    if table.row_count:
        console().print(table)
    else:
        print("no program has shared a device here; `shoal run --device-memory SIZE COMMAND` starts one that does")
