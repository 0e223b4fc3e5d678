"""Run: a job or a command line, followed to its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base import extras
from shoal.base.console.command import FAILED, INTERRUPTED, TenantOption, command
from shoal.base.console.panels import START
from shoal.base.console.quick import QuickCommand
from shoal.cli import commandline, joboptions, stdin, views
from shoal.cli.commandline import CommandOptions
from shoal.cli.context import CliContext
from shoal.cli.software import SoftwareOptions
from shoal.cli.submit import FileOption, KeyOption, given_paths, read_manifest, warn
from shoal.cli.terminal import Harmless
from shoal.cli.watch import ServerWatch
from shoal.contract.lifecycle import JobState
from shoal.core import Invalid, ShoalError, Unavailable

if TYPE_CHECKING:
    from shoal.sdk import Client
    from shoal.sdk.models import JobDetail


_WRONG_USE: tuple[type[BaseException], ...] = typer.BadParameter.__bases__


class WithLine(QuickCommand):
    """Keeps a command line apart from the command's own arguments: what follows `--`, or begins with a program."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = self._first_word(ctx, args)
        before = args[at - 1 : at]
        if before == ["--"]:
            own, line = args[: at - 1], args[at:]
        elif at < len(args) and commandline.is_command(args[at]):
            own, line = args[:at], args[at:]
        else:
            end = args.index("--") if "--" in args else len(args)
            own, line = args[:end], args[end + 1 :]
        left: list[str] = super().parse_args(ctx, own)
        ctx.params["line"] = line
        return left

    def _first_word(self, ctx: Any, args: list[str]) -> int:
        """Where the first word stands that is no option, or an option's value. Wrong options are told later."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        try:
            found, _, _ = parser.parse_args(args=list(args))
        except _WRONG_USE:
            return len(args)
        return len(args) - len(found.get("files") or ())

    def make_parser(self, ctx: Any) -> Any:
        parser = super().make_parser(ctx)
        del parser._long_opt["--line"]  # nobody types it
        return parser

    def collect_usage_pieces(self, ctx: Any) -> list[str]:  # noqa: ARG002
        return ["[OPTIONS]", "FILE | [--] COMMAND..."]


def register(app: typer.Typer) -> None:
    command(
        app,
        "run",
        rich_help_panel=START,
        short_help="Run a command line or a manifest, and follow its log",
        cls=WithLine,
        more=joboptions.option_types(),
    )(run)


def run(
    context: CliContext,
    options: CommandOptions,
    software: SoftwareOptions,
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE | COMMAND", help="A manifest (- reads stdin), or a program and its words.", allow_dash=True
        ),
    ] = None,
    file: FileOption = None,
    tenant: TenantOption = None,
    key: KeyOption = None,
    rank: Annotated[int, typer.Option(help="Whose log to follow.")] = 0,
    stdin_too: Annotated[
        bool,
        typer.Option("--stdin/--no-stdin", help="Pass a pipe or file that is standard input to the command line."),
    ] = True,
    local: Annotated[
        bool, typer.Option("--local", help="Run the command line here, at a device's gate, without a server.")
    ] = False,
    device: Annotated[str | None, typer.Option(help="With --local: which (see `shoal device doctor`).")] = None,
    pty: Annotated[
        bool, typer.Option("--pty", help="Run the command line at a terminal, which is this one; ~d detaches from it.")
    ] = False,
    line: Annotated[list[str] | None, typer.Option(hidden=True, help="The command line.")] = None,
    **installed: Any,
) -> None:
    """Submit a job, or a command line, and follow its log to the end. The exit code is 0 only if it succeeded.

    `shoal run python3 train.py` runs in this directory with this PATH; other variables of this shell are named by
    --env. It holds no accelerator unless --accelerators or --device-memory asks for one. What begins with a program is
    a command line, and so is all behind `--`. Where no server runs it is started here, beside others that share the
    device, as with --local. Ctrl-C ends the following, not the job. With --json the log goes to stderr and the job to
    stdout.
    """  # fmt: skip
    added = joboptions.sections(installed)
    if pty:
        _at_terminal(context, line, lambda client, found: joboptions.with_sections(
            _job(context, client, found, options, software, tenant, stdin_too=False), added
        ), tenant, key)  # fmt: skip
        return
    if line and (files or file):
        raise Invalid("there are a manifest and a command line", where="FILE", hint="give one of them")
    if not line:
        paths = given_paths(files, file)
        for path in files or ():
            commandline.check_manifest(path)
        if len(paths) != 1:
            raise Invalid("run takes one job", where="FILE",
                          hint="`shoal submit` takes several; a command line stands behind `--`")  # fmt: skip
        if str(paths[0]) != "-" and stdin.is_waiting():
            context.note("note: the job of a manifest has no standard input: what was piped here is not read")
        manifest = joboptions.with_sections(read_manifest(paths[0]), added)
        folder = paths[0].absolute().parent if added and str(paths[0]) != "-" else None
        _follow_to_end(context, lambda _: manifest, tenant, key, rank, folder)
        return
    only_with_a_server = [*options.only_with_a_server, *software.given, *(f"--{one}" for one in added)]
    if not local and not device:
        try:
            _follow_to_end(
                context,
                lambda client: joboptions.with_sections(
                    _job(context, client, line, options, software, tenant, stdin_too), added
                ),
                tenant, key, rank,
            )  # fmt: skip
            return
        except ShoalError as error:
            if error.code != "no-server" or context.url or os.environ.get("SHOAL_URL") or only_with_a_server:
                raise
            context.note(f"{error.what}: `{line[0]}` runs here")
    if only_with_a_server:
        raise Invalid(
            f"{' and '.join(only_with_a_server)} cannot be kept without a server", where=only_with_a_server[0],
            hint="a limit for a device's memory is --device-memory"
            if "--memory" in only_with_a_server else "leave it out",
        )  # fmt: skip
    os.environ.update(options.environment(os.environ))
    _launcher()(
        line, cls=options.priority_class, memory_bytes=options.device_memory_bytes, device=device, note=context.note
    )


def _job(
    context: CliContext, client: Client, line: list[str], options: CommandOptions, software: SoftwareOptions,
    tenant: str | None, stdin_too: bool,
) -> dict[str, Any]:  # fmt: skip
    """The job of a command line, with its standard input, or what its software is made from, as files of a bundle."""

    def manifest(*, reads: bool) -> dict[str, Any]:
        found = options.manifest(line, Path.cwd(), os.environ, reads=reads)
        own = "PATH" in options.environment(os.environ)
        software.add_to(found, line, Path.cwd(), reads=reads, path=own)
        return found

    made = manifest(reads=False)
    if (files := software.files()) is not None:
        if stdin_too and stdin.is_waiting():
            raise Invalid("standard input cannot be sent beside a lock file", where="--uv", hint="--no-stdin")
        made["bundle"] = client.upload(files, tenant=tenant).bundle
        return made
    source = stdin.source() if stdin_too else None
    if source is stdin.Source.TERMINAL:
        commandline.check_terminal(line)
    if source is not stdin.Source.STREAM:
        return made
    client.status()  # so that nothing is read where no server is
    if data := stdin.read(context.note):
        made = manifest(reads=True)
        made["bundle"] = client.upload(stdin.archive(data), tenant=tenant).bundle
    return made


def _at_terminal(
    context: CliContext, line: list[str] | None, manifest: Callable[[Any, list[str]], Any], tenant: str | None,
    key: str | None,
) -> None:  # fmt: skip
    """Submit the command line as a job with a terminal, and end with its exit code."""
    from shoal.base.discover import find

    if not line:
        raise Invalid("a terminal is for a command line", where="--pty", hint="`shoal run --pty -- bash`")
    run_at = next(iter(find("terminal").values()), None)
    if run_at is None:
        raise Unavailable("nothing here gives jobs a terminal", hint=extras.install("control"))
    with context.later_client(patience_s=30.0) as client:
        code = run_at.load()(context, client, manifest(client, line), tenant=tenant, idempotency_key=key)
    if code:
        raise typer.Exit(code)


def _launcher() -> Any:
    from shoal.base.discover import find

    for found in find("launcher").values():
        return found.load()
    raise Unavailable("nothing here can run a command line beside others", hint=extras.install("device"))


def _follow_to_end(
    context: CliContext, manifest: Callable[[Client], Path | str | dict[str, Any]], tenant: str | None,
    key: str | None, rank: int, folder: Path | None = None,
) -> None:  # fmt: skip
    with context.client(patience_s=30.0) as client:
        given = manifest(client)
        job = client.submit(given, tenant=tenant, idempotency_key=key, base=folder)
        warn(context, job, None if isinstance(given, dict) else given)
        context.note(f"{job.id}  {job.name} ({job.tenant}){views.by_default(job)}")
        try:
            with ServerWatch(context):
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
