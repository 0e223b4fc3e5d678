"""`shoal cache`: the commands, as the command line finds them."""

from __future__ import annotations

import typer

from shoal.base.console.panels import TOOLS
from shoal.cache.commands import decide, node

cache_app = typer.Typer(help="Share fast storage between tenants, fairly.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    node.register(cache_app)
    decide.register(cache_app)
    app.add_typer(cache_app, name="cache", rich_help_panel=TOOLS, short_help="Share fast storage between tenants")
