"""`shoal demo`: the main job, in a directory of its own."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.base.console.command import command
from shoal.base.console.panels import TOOLS
from shoal.cli.context import CliContext


def register(app: typer.Typer) -> None:
    command(app, "demo", rich_help_panel=TOOLS, short_help="Watch real jobs of several tenants share this machine")(
        demo
    )


def demo(
    context: CliContext,
    fast: Annotated[bool, typer.Option("--fast", help="Shorter jobs.")] = False,
    engine: Annotated[str, typer.Option("--engine", help="local, or slurm: on a private Slurm.")] = "local",
    keep: Annotated[bool, typer.Option("--keep", help="Keep its directory afterwards.")] = False,
) -> None:
    """Watch Shoal run real jobs of several tenants, lose its server half-way, and lose nothing else.

    It brings its own server; --home names an empty directory for it instead of a temporary one.
    """
    from shoal.demo import run_demo

    raise typer.Exit(run_demo(json_output=context.json, fast=fast, keep=keep, home=context.home, engine=engine))
