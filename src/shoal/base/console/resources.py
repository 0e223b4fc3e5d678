"""Options for what a process takes of a machine, the same words for every command that starts one.

`--memory` is always the host's, `--device-memory` always a device's.
"""

from __future__ import annotations

from typing import Annotated

import typer

CpusOption = Annotated[float | None, typer.Option(min=0, help="Cores, fractions allowed.", show_default="the server's")]
MemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="The host's memory, as 4GiB: what needs more is ended.", show_default="the server's"
    ),
]
DeviceMemoryOption = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Share an accelerator, with this part of its memory, as 20GiB."),
]
