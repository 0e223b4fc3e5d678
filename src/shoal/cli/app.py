"""The tree of commands. The modules register their own; what a command needs it imports when it runs."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal import __version__

app = typer.Typer(
    name="shoal",
    help="Many tenants share a few accelerators. Start with `shoal up --detach`, then `shoal run -f job.yaml`.",
    epilog="Exit codes: 0 done, 1 failed, 2 usage or input, 3 not found, 4 no server, 5 not allowed, 6 conflict.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

from shoal.cli import (  # noqa: E402
    demo,
    guard,
    jobs,
    manifests,
    measure,
    schedule,
    schedule_live,
    serve,
    server,
    services,
    streams,
    tenants,
    top,
)  # fmt: skip


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"shoal {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


for module in (
    server, jobs, streams, services, serve, measure, schedule, schedule_live, guard, top, tenants, manifests, demo
):  # fmt: skip
    module.register(app)
