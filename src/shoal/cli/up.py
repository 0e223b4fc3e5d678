"""`shoal up`: starts the server. Components add options to it, each for one of their settings."""

from __future__ import annotations

import functools
import gc
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal import __version__
from shoal.base.console.command import SettingOption, command
from shoal.base.console.panels import START
from shoal.base.discover import find, load_all
from shoal.base.imports import models_built_later, without_pydantic_plugins
from shoal.cli.context import CliContext
from shoal.core import Invalid, ShoalError


def register(app: typer.Typer) -> None:
    more = {name: one.annotation() for name, one in _installed()[0].items()}
    command(app, "up", more=more, rich_help_panel=START, short_help="Start the server")(up)


@functools.cache
def _installed() -> tuple[Mapping[str, SettingOption], Sequence[Invalid]]:
    """Options that components declare, by the name of the parameter, which has `_` for the `-` of the option; and the
    errors of those that cannot be used."""
    own = inspect.signature(up).parameters
    options, broken = load_all("options")
    wrong = list(broken)
    found: dict[str, SettingOption] = {}
    for name, option in options.items():
        parameter = name.replace("-", "_")
        if parameter in own or not isinstance(option, SettingOption):
            why = "`shoal up` has it already" if parameter in own else "it is no SettingOption"
            wrong.append(Invalid(f"the option {name} cannot be added: {why}", where=find("options")[name].target))
        else:
            found[parameter] = option
    return found, wrong


def up(
    context: CliContext,
    db: Annotated[
        str | None, typer.Option(help="sqlite:///PATH or postgresql://...", show_default="HOME/shoal.db")
    ] = None,
    host: Annotated[str | None, typer.Option(help="Listen on this address.", show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(help="Listen on this port; 0: any free one.", show_default="7070")] = None,
    slots: Annotated[int | None, typer.Option(help="CPU slots to offer instead of what the machine has.")] = None,
    placement: Annotated[
        str | None, typer.Option(help="pack (keep nodes free for gangs) or spread.", show_default="pack")
    ] = None,
    preemption: Annotated[
        bool | None,
        typer.Option("--preemption/--no-preemption", help="May best-effort work be displaced?", show_default="yes"),
    ] = None,
    socket: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Where users of this machine reach it without a token; see `shoal users`.",
            show_default="HOME/shoal.sock",
        ),
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.", show_default="info")] = None,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Any setting, such as guard.enabled=on or serve.port=0."),
    ] = None,
    config: Annotated[Path | None, typer.Option(help="Settings file.", show_default="HOME/config.yaml")] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="Where processes run: local, or the name of an installed engine.", show_default="local"),
    ] = None,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Run in the background; return once it answers.")
    ] = False,
    standby: Annotated[
        bool, typer.Option("--standby", help="Wait, and take over once the present server is gone (PostgreSQL only).")
    ] = False,
    accept_data_loss: Annotated[
        bool, typer.Option("--accept-data-loss", help="Start although the database has lost what it acknowledged.")
    ] = False,
    **installed: Any,
) -> None:
    """Start the server. Its jobs outlive it: a stopped or killed server takes them over when it is started again.

    Settings: a flag beats SHOAL_PORT and the like in the environment, which beats the settings file. `shoal settings`
    lists all of them.
    """
    # What is imported and opened from here on stays: collecting garbage among it would only delay the first answer. The
    # server turns it on again.
    gc.disable()
    without_pydantic_plugins()

    from shoal.base.parent import fork_server

    with models_built_later():
        from shoal.control.server import run_server, start_detached, starter
        from shoal.control.settings import load_settings

    flags: dict[str, Any] = {
        "home": context.home, "db": db, "host": host, "port": port, "slots": slots, "engine": engine,
        "placement": placement, "preemption": preemption, "log_level": log_level,
        "socket": socket,
    }  # fmt: skip
    options, broken = _installed()
    for problem in broken:
        context.note(f"warning: {problem}")
    sets = [*(sets or ()), *(one.set_to(installed[name]) for name, one in options.items() if installed[name])]
    settings = load_settings(flags, sets=sets, config=config)
    home = settings.home
    if detach and standby:
        raise Invalid(
            "a standby answers only once it has taken over: it cannot be waited for", where="--detach",
            hint="run it under a service manager, or behind `nohup`",
        )  # fmt: skip
    if detach:
        words = _again({**flags, "home": home.path}, sets, config)
        info = start_detached([*words, "--accept-data-loss"] if accept_data_loss else words, home)
        context.show({**asdict(info), "home": str(home.path)}, lambda: print(_welcome(info, settings)))
        return

    tell = starter()

    def ready(info: Any) -> None:
        tell(info)
        context.line(asdict(info), lambda: print(_welcome(info, settings), flush=True))

    def standing_by(who: str) -> None:
        context.line({"standby": who}, lambda: print(f"standing by: {who}", flush=True))

    try:
        run_server(
            settings,
            ready=ready,
            accept_data_loss=accept_data_loss,
            standing_by=standing_by if standby else None,
            fork=lambda log: fork_server(log, leave=lambda: tell(None)),
        )
    except ShoalError as error:
        tell(error)
        raise


def _again(flags: dict[str, Any], sets: Sequence[str], config: Path | None) -> list[str]:
    """The command line that means the same in another process."""
    words = []
    for name, value in flags.items():
        option = f"--{name.replace('_', '-')}"
        if value is True or value is False:
            words.append(option if value else option.replace("--", "--no-", 1))
        elif value is not None:
            words += [option, str(value)]
    for one in sets:
        words += ["--set", one]
    return [*words, "--config", str(config.absolute())] if config else words


def _welcome(info: Any, settings: Any) -> str:
    from shoal.control.server import whose_rights

    home = settings.home.path
    section = getattr(settings.values, "web", None)
    page = f"  page   {info.url}/ui/ (signed in by `shoal web`)\n" if section is not None and section.enabled else ""
    return (
        f"Shoal {__version__} answers at {info.url} (pid {info.pid})\n"
        f"  home   {home}\n"
        f"  token  {home / 'admin.token'} (the admin's; only you can read it)\n"
        f"{page}"
        f"  api    {info.url}/openapi.json\n"
        f"  jobs   {whose_rights(settings)}"
    )
