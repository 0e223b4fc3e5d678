"""Run: a job or a command line, followed to its end."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from shoal.base.console.command import FAILED, INTERRUPTED, TenantOption, command
from shoal.cli.context import CliContext
from shoal.cli.jobs import PANEL, FileOption, Files, KeyOption, given_paths, read_manifest, warn
from shoal.cli.terminal import Harmless
from shoal.contract.lifecycle import JobState
from shoal.core import ANY, Invalid, PriorityClass, ShoalError, Unavailable

if TYPE_CHECKING:
    from shoal.sdk import Client
    from shoal.sdk.models import JobDetail

GROUP = "shoal.launchers"
"""Entry points: how a command line is run on this machine beside others, without a server."""

_LONGEST_NAME = 48
_CHANGE_DIRECTORY = 'cd "$1" && shift && exec "$@"'


class WithLine(TyperCommand):
    """Keeps what follows `--` apart from the command's own arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = args.index("--") if "--" in args else len(args)
        left: list[str] = super().parse_args(ctx, args[:at])
        ctx.params["line"] = args[at + 1 :]
        return left

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def register(app: typer.Typer) -> None:
    command(app, "run", rich_help_panel=PANEL, cls=WithLine)(run)


def run(
    context: CliContext,
    files: Files = None,
    file: FileOption = None,
    tenant: TenantOption = None,
    key: KeyOption = None,
    rank: Annotated[int, typer.Option(help="Whose log to follow.")] = 0,
    priority_class: Annotated[
        PriorityClass, typer.Option("--class", help="Of a command line: guaranteed work goes before best-effort work.")
    ] = PriorityClass.BEST_EFFORT,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Of a command line: share an accelerator, with so much of its memory."),
    ] = None,
    accelerators: Annotated[
        str, typer.Option(metavar="[TYPE:]COUNT", help="Of a command line, from the server.")
    ] = "1",
    cpus: Annotated[float | None, typer.Option(min=0, help="Of a command line, from the server.")] = None,
    local: Annotated[
        bool, typer.Option("--local", help="Run the command line here, at a device's gate, without a server.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="With --local: which (see `shoal device doctor`).")] = None,
    line: Annotated[list[str] | None, typer.Option(hidden=True, help="What follows `--`.")] = None,
) -> None:
    """Submit a job, or a command line after `--`, and follow its log to the end. The exit code is 0 only if it
    succeeded.

    A command line runs in this directory with this PATH. Where no server runs it is started here, beside others that
    share the device, as with --local. Ctrl-C ends the following, not the job. With --json the log goes to stderr and
    the job to stdout.
    """
    if line and (files or file):
        raise Invalid("there are a manifest and a command line", where="FILE", hint="give one of them")
    if not line:
        paths = given_paths(files, file)
        if len(paths) != 1:
            raise Invalid("run takes one job", where="FILE", hint="`shoal submit` takes several")
        _follow_to_end(context, read_manifest(paths[0]), tenant, key, rank)
        return
    size = 0 if memory is None else _size(memory)
    if not local and not device:
        try:
            _follow_to_end(context, _job(line, priority_class, size, accelerators, cpus), tenant, key, rank)
            return
        except ShoalError as error:
            if error.code != "no-server" or context.url or os.environ.get("SHOAL_URL"):
                raise
            context.note(f"{error.what}: `{line[0]}` runs here")
    _launcher()(line, cls=priority_class, memory_bytes=size, device=device, note=context.note)


def _size(text: str) -> int:
    from shoal.contract.manifest.quantities import read_memory

    try:
        return read_memory(text)
    except ValueError as error:
        raise Invalid(str(error), where="--memory", hint="such as 20GiB") from None


def _job(
    line: list[str], priority_class: PriorityClass, memory_bytes: int, accelerators: str, cpus: float | None
) -> dict[str, Any]:
    """The job of a command line."""
    kind, colon, count = accelerators.rpartition(":")
    if not count.isdecimal():
        raise Invalid(f"{accelerators!r} is no number of accelerators", where="--accelerators", hint="2, or a100:2")
    asked: dict[str, Any] = {"type": kind if colon else ANY, "count": int(count)}
    if memory_bytes:
        asked |= {"share": priority_class.value, "memory": memory_bytes}
    name = Path(line[1] if len(line) > 1 and not line[1].startswith("-") else line[0]).stem.lower()
    resources: dict[str, Any] = {"accelerators": asked}
    if cpus is not None:
        resources["cpus"] = cpus
    return {
        "name": re.sub(r"[^a-z0-9]+", "-", name).strip("-")[:_LONGEST_NAME] or "command",
        "command": ["/bin/sh", "-c", _CHANGE_DIRECTORY, "sh", str(Path.cwd()), *line],
        "env": {"PATH": os.environ.get("PATH", os.defpath)},
        "priority_class": priority_class.value,
        "resources": resources,
    }


def _launcher() -> Any:
    from shoal.base.discover import find

    for found in find(GROUP).values():
        return found.load()
    raise Unavailable("nothing here can run a command line beside others", hint="pip install 'shoal[device]'")


def _follow_to_end(
    context: CliContext, manifest: Path | str | dict[str, Any], tenant: str | None, key: str | None, rank: int
) -> None:
    with context.client(patience_s=30.0) as client:
        job = client.submit(manifest, tenant=tenant, idempotency_key=key)
        warn(context, job)
        context.note(f"{job.id}  {job.name} ({job.tenant})")
        try:
            ended = _follow(context, client, job.id, rank)
        except KeyboardInterrupt:
            context.note(f"\nthe job goes on: `shoal logs -f {job.id}` follows it, `shoal cancel {job.id}` ends it")
            raise typer.Exit(INTERRUPTED) from None
    context.show(ended, lambda: None)
    from shoal.base.console.output import duration

    how = f"{ended.id} {ended.state} after {duration(ended.ran_s)}, attempt {ended.attempt}"
    context.note(f"{how}: {ended.message}" if ended.message and ended.state is not JobState.SUCCEEDED else how)
    if ended.state is not JobState.SUCCEEDED:
        raise typer.Exit(FAILED)


def _follow(context: CliContext, client: Client, job_id: str, rank: int) -> JobDetail:
    out = sys.stderr.buffer if context.json else sys.stdout.buffer
    if client.log_piece(job_id, rank=rank, wait_s=1.0, limit=1).attempt == 0:
        waiting = client.explain(job_id)
        if waiting.causes:
            context.note(waiting.summary)
    harmless = Harmless() if out.isatty() else None
    for piece in client.logs(job_id, rank=rank, attempt=None, follow=True):
        out.write(harmless.feed(piece.data) if harmless else piece.data)
        out.flush()
    if harmless:
        out.write(harmless.feed(b"", last=True))
        out.flush()
    return client.wait(job_id)
