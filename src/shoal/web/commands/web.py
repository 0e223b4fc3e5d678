"""`shoal web`: opens the page, signed in."""

from __future__ import annotations

from typing import Annotated

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.panels import START


def register(app: typer.Typer) -> None:
    command(app, "web", rich_help_panel=START, short_help="Open the web page")(web)


def web(
    context: CommandContext,
    no_open: Annotated[bool, typer.Option("--no-open", help="Print the link instead of opening a browser.")] = False,
) -> None:
    """Open the server's web page in a browser, signed in with the token of this command.

    The link works once, for one minute. Who has it until then has the token's rights: do not pass it on.
    """
    with context.client() as client:
        link = client.web.link()
    opened = not no_open and not context.json and _open(link.url)
    context.show(link, lambda: print("the page is open in the browser" if opened else link.url))


def _open(url: str) -> bool:
    import webbrowser

    try:
        return webbrowser.open(url)
    except webbrowser.Error:
        return False
