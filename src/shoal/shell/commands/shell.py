"""`shoal shell`: run scripts whose commands run where their data is."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.base.console.command import FAILED, CommandContext, command
from shoal.base.console.panels import TOOLS
from shoal.core import Invalid, NotFound

shell_app = typer.Typer(
    help="Run scripts whose commands run where their data is: next to a mounted folder's disk, or here.",
    invoke_without_command=True, no_args_is_help=False,
)  # fmt: skip
site_app = typer.Typer(help="Machines that hold mounted folders.", no_args_is_help=True)
annotate_app = typer.Typer(help="What commands read and write, by their arguments.", no_args_is_help=True)

_LEAST_MEMORY = 64 << 20

_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


def register(app: typer.Typer) -> None:
    shell_app.add_typer(site_app, name="site")
    shell_app.add_typer(annotate_app, name="annotate")
    app.add_typer(shell_app, name="shell", rich_help_panel=TOOLS, short_help="Run scripts where their data is")


@shell_app.callback()
def interactive(context: typer.Context) -> None:
    """Run scripts whose commands run where their data is: next to a mounted folder's disk, or here.

    Without a command an interactive shell starts.
    """
    if context.invoked_subcommand is None:
        _become_shell(CommandContext(False, None, None), "bash", [])


@command(shell_app, "run", ("home",), context_settings=_PASS_ON)
def run(
    context: CommandContext,
    script: Annotated[Path, typer.Argument(metavar="SCRIPT", help="A script of the shell; its arguments follow.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[ARGUMENT]...", help="Of the script.")] = None,
    shell: Annotated[str, typer.Option("--with", help="The shell: bash, dash or zsh.")] = "bash",
) -> None:
    """Run a script. Its output and its status are those of the shell, wherever its commands run."""
    if str(script).startswith("-"):
        raise Invalid(f"no such option: {script}", hint="options come before the script; its own come behind it")
    if not script.exists():
        raise NotFound("there is no such script", where=str(script))
    _become_shell(context, shell, [str(script), *(arguments or ())])


def _become_shell(context: CommandContext, shell: str, arguments: list[str]) -> None:
    from shoal.core import ShoalError
    from shoal.shell.agent.client import ensure_running
    from shoal.shell.table import LAUNCHER

    home = context.folder()
    try:
        ensure_running(home)
        program = [str(LAUNCHER), "--with", shell, *arguments]
    except ShoalError as error:
        context.note(f"shoal: {error.what}: every command runs here")
        program = [shell, *arguments]
    sys.stdout.flush()
    for one in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and a shell would hand that on
        signal.signal(one, signal.SIG_DFL)
    os.environ["SHOAL_HOME"] = str(home)
    try:
        os.execvp(program[0], program)  # noqa: S606 - it becomes the shell
    except FileNotFoundError:
        raise NotFound(f"there is no shell {shell!r}", where="--with", hint="bash, dash or zsh") from None


@command(shell_app, "agent", ("home",), hidden=True)
def agent(context: CommandContext) -> None:
    """See that the agent runs."""
    from shoal.shell.agent.client import ensure_running

    ensure_running(context.folder())


@command(shell_app, "stop", ("json", "home"))
def stop(context: CommandContext) -> None:
    """End the agent and its connections. Commands that run on sites end; the next session starts an agent again."""
    from shoal.shell.agent import client

    found = client.stop(context.folder())
    context.show({"stopped": found}, lambda: print("the agent has ended" if found else "no agent runs"))


@command(shell_app, "explain", ("json", "home"))
def explain(
    context: CommandContext,
    name: Annotated[str | None, typer.Argument(metavar="[RUN]", help="A run; else the last one.")] = None,
) -> None:
    """Of the last run: each command, where it ran, why, its seconds, and the bytes that moved and that did not."""
    from shoal.shell.agent.log import read_run
    from shoal.shell.commands import view
    from shoal.shell.sites import shell_folder

    found, entries = read_run(shell_folder(context.folder()), name)
    context.show({"run": found, "commands": entries}, lambda: view.explained(found, entries))


@command(shell_app, "plan", ("json", "home"))
def plan(
    context: CommandContext,
    text: Annotated[str, typer.Argument(metavar="PIPELINE", help="One pipeline, in quotes.")],
) -> None:
    """Where the commands of a pipeline would run. The shell itself takes it apart; its commands are not run."""
    from shoal.shell.commands import dry, view

    found = dry.plan(context.folder(), text)
    context.show({"stages": found}, lambda: view.planned(found))


@command(shell_app, "env", ("json", "home"))
def env(
    context: CommandContext,
    programs: Annotated[
        bool, typer.Option("--programs", help="By programs first on PATH, for static and set-uid programs.")
    ] = False,
) -> None:
    """The variables with which a program that is started by other means joins: `env $(shoal shell env) make`.

    By a library that is loaded (LD_PRELOAD), or, where a program loads none, by programs first on PATH.
    """
    from shoal.shell.agent.client import ensure_running
    from shoal.shell.sites import shell_folder
    from shoal.shell.table import HOOK, programs_folder

    ensure_running(context.folder())
    folder = shell_folder(context.folder())
    way = {"PATH": f"{programs_folder(folder)}:{os.environ['PATH']}"} if programs else {"LD_PRELOAD": str(HOOK)}
    found = {**way, "SHOAL_SHELL_TABLE": str(folder / "table"), "SHOAL_SHELL_RUN": f"env-{os.getppid()}:0:0:0"}
    context.show(found, lambda: print("\n".join(f"{name}={value}" for name, value in found.items())))


@command(shell_app, "status", ("json", "home"))
def status(context: CommandContext) -> None:
    """The agent and its connections. Exit code 1 if it does not run."""
    from shoal.shell.agent.client import ask
    from shoal.shell.commands import view

    found = ask(context.folder(), do="status")
    context.show({"running": found is not None, **(found or {})}, lambda: view.status(found))
    if found is None:
        raise typer.Exit(FAILED)


@command(shell_app, "doctor", ("json", "home"))
def doctor(context: CommandContext) -> None:
    """What works on this machine and on the sites, what does not, and what that costs. Exit code 1 if nothing can run
    elsewhere."""
    from shoal.shell import doctor as doctoring
    from shoal.shell.commands import view

    found = doctoring.examine(context.folder())
    context.show([doctoring.as_json(one) for one in found], lambda: view.doctor(found))
    if any(one.stops_everything or not one.available for one in found if one.name in doctoring.NEEDED):
        raise typer.Exit(FAILED)


# --- sites ---


@command(site_app, "add", ("json", "home"))
def site_add(
    context: CommandContext,
    name: Annotated[str, typer.Argument(metavar="NAME", help="How the site is called in plans.")],
    host: Annotated[str, typer.Argument(metavar="HOST", help="As `ssh` takes it.")],
    at: Annotated[
        list[str], typer.Option("--at", metavar="HERE=THERE", help="A mounted folder, and the folder that it shows.")
    ],
    ssh: Annotated[str, typer.Option("--ssh", help="The program that logs in, with its options.")] = "ssh",
    memory: Annotated[
        str | None, typer.Option(metavar="SIZE", help="Most memory of each command there, as 512MiB.")
    ] = None,
    cpu_s: Annotated[int | None, typer.Option("--cpu-seconds", min=1, help="Of each command there.")] = None,
    port: Annotated[int | None, typer.Option("--port", min=1, max=65535, help="Of a permanent proxy, by TLS.")] = None,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="Of that proxy: a PEM file.")] = None,
    token_file: Annotated[Path | None, typer.Option("--token-file", help="Holds your token for that proxy.")] = None,
    unchecked: Annotated[bool, typer.Option("--unchecked", help="Keep it without logging in.")] = False,
) -> None:
    """Add a site: log in, and check that the mount here shows the folder there."""
    import shlex

    from shoal.shell.commands import checks
    from shoal.shell.sites import Site, Sites

    mounts = dict(_mount(one) for one in at)
    site = Site(
        name, host, mounts, tuple(shlex.split(ssh)), None if memory is None else _memory(memory), cpu_s, port,
        *(str(one.absolute()) if one else None for one in (certificate, token_file)),
    )  # fmt: skip
    before = Sites.of(context.folder())
    context.folder().mkdir(parents=True, exist_ok=True, mode=0o700)
    before.add(site)
    found: dict[str, Any] = {"name": name, "host": host, "mounts": mounts}
    if not unchecked:
        try:
            found |= checks.check_site(context.folder(), site)
        except BaseException:
            checks.restore(context.folder(), before, name)
            raise
    checks.reload(context.folder())
    context.show(found, lambda: checks.added(found))


def _memory(text: str) -> int:
    from shoal.contract.manifest.quantities import read_memory

    try:
        found = read_memory(text)
    except ValueError as error:
        raise Invalid(str(error), where="--memory", hint="such as 512MiB") from None
    if found < _LEAST_MEMORY:
        raise Invalid(f"no command runs in {text}", where="--memory", hint="64MiB or more")
    return found


def _mount(text: str) -> tuple[str, str]:
    here, equals, there = text.partition("=")
    if not equals:
        raise Invalid(f"{text!r} names one folder", where="--at", hint="--at /mnt/data=/srv/data: here, and there")
    return str(Path(here).absolute()), there.rstrip("/") or "/"


@command(site_app, "list", ("json", "home"))
def site_list(context: CommandContext) -> None:
    """The sites, and which of them are connected."""
    from shoal.shell.agent.client import ask
    from shoal.shell.commands import view
    from shoal.shell.sites import Sites

    told = ask(context.folder(), do="status")
    live = {one["name"]: one for one in told["sites"]} if told else {}
    sites = [
        {
            "name": one.name,
            "host": one.host,
            "mounts": dict(one.mounts),
            "ready": live.get(one.name, {}).get("ready", False),
        }
        for one in Sites.of(context.folder()).sites.values()
    ]
    context.show(sites, lambda: view.sites(sites))


@command(site_app, "remove", ("json", "home"))
def site_remove(context: CommandContext, name: Annotated[str, typer.Argument(metavar="NAME")]) -> None:
    """Forget a site. Its mount stays, and its data is read through it."""
    from shoal.shell.commands import checks
    from shoal.shell.sites import Sites

    Sites.of(context.folder()).remove(name)
    checks.reload(context.folder())
    context.show({"removed": name}, lambda: print(f"site {name} is forgotten"))


@command(shell_app, "proxy", ())
def proxy(
    context: CommandContext,
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A JSON file.", dir_okay=False)],
) -> None:
    """On a site: be the permanent proxy that several users reach by TLS, each with a token and limits of its own."""
    from shoal.shell.shared import SharedProxy, read_config

    made = SharedProxy(read_config(config))
    context.note(f"the proxy listens on port {made.port}")
    try:
        made.serve()
    except KeyboardInterrupt:
        context.note("the proxy has ended")


# --- annotations ---


@command(annotate_app, "list", ("json", "home"))
def annotate_list(context: CommandContext) -> None:
    """The commands that are understood."""
    from shoal.shell.annotations import load
    from shoal.shell.commands import checks

    found = sorted({one.title for all_of in load(checks.own_annotations(context.folder())).values() for one in all_of})
    context.show(found, lambda: print("\n".join(found)))


@command(annotate_app, "show", ("json", "home"))
def annotate_show(
    context: CommandContext,
    words: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="A call, with its arguments, after `--`.")],
) -> None:
    """What a call of a command reads and writes, as its annotation understands it."""
    from shoal.shell.annotations import NotUnderstood, load, match
    from shoal.shell.commands import checks

    try:
        found = match(load(checks.own_annotations(context.folder())).get(words[0], ()), words, os.environ)
    except NotUnderstood as error:
        raise Invalid(f"this call would run here: {error}", where=" ".join(words)[:200]) from error
    told = {
        "reads": list(found.reads), "writes": list(found.writes), "stdin": found.stdin, "ratio": found.ratio,
        "split": found.split.value, "across": found.across, "changes": found.changes,
    }  # fmt: skip
    context.show(told, lambda: print("\n".join(f"{name}: {value}" for name, value in told.items())))


@command(annotate_app, "import", ("json", "home"))
def annotate_import(
    context: CommandContext,
    source: Annotated[Path, typer.Argument(metavar="FILE", help="Annotations in POSH's language.", dir_okay=False)],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A TOML file; else stdout.")] = None,
) -> None:
    """Translate a file of POSH's annotations."""
    from shoal.base.files import write_whole
    from shoal.shell.annotations import parse
    from shoal.shell.annotations.posh import translate

    text = translate(source.read_text(), str(source))
    names = list(parse(text, str(source)))
    if output is not None:
        write_whole(output, text, mode=0o644)
    context.show({"commands": names}, lambda: print(text if output is None else f"{output}: {', '.join(names)}"))


@command(annotate_app, "check", ("json",))
def annotate_check(
    context: CommandContext,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A TOML file of annotations.", dir_okay=False)],
) -> None:
    """Try an annotation against the real command: each option, and whether what it claims of splitting holds. Exit code
    1 if a claim does not."""
    from dataclasses import asdict

    from shoal.shell.annotations import parse
    from shoal.shell.annotations.check import try_all
    from shoal.shell.commands import view

    found = try_all(parse(file.read_text(), str(file)))
    context.show([asdict(one) for one in found], lambda: view.checked(found))
    if any(not one.holds for one in found):
        raise typer.Exit(FAILED)
