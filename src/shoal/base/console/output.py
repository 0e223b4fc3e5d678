"""Tables and amounts for people. Rich is loaded only here, when something is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


_GAP = 2
"""Blanks between two columns."""

_LEAST = 12
"""Characters that are left of a column that gives way."""


@cache
def console() -> Console:
    """Stdout with colours on a terminal (unless NO_COLOR is set); a pipe gets plain lines that are never cut."""
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=False, width=None if sys.stdout.isatty() else 4096)


def put(found: RenderableType) -> None:
    """Print it; into a pipe without the blanks that fill up a table's lines."""
    from rich.table import Table

    if console().is_terminal:
        if isinstance(found, Table):
            _fit(found, console().width)
        console().print(found, crop=False)
        return
    with console().capture() as captured:
        console().print(found)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


def _fit(table: Table, width: int) -> None:
    """Cut the column that gives way, and no other: left to itself Rich would leave whole columns out. Where even that
    is not enough, the lines are longer than the terminal, which breaks them."""
    least = [column.min_width or max(_LEAST, len(str(column.header))) for column in table.columns]
    for column, needed in zip(table.columns, least, strict=True):
        if column.min_width is None:
            column.max_width = max(needed, width - sum(least) - _GAP * len(least) + needed)
    if sum(least) + _GAP * len(least) > width:
        table.width = sum(least) + _GAP * len(least)


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], *, last_gives_way: bool = True) -> Table:
    """A table without lines. On a narrow terminal the last column is cut, the others are whole."""
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="bold")
    cells = [[cell if hasattr(cell, "plain") else str(cell) for cell in row] for row in rows]
    for position, column in enumerate(columns):
        if position == len(columns) - 1 and last_gives_way:
            made.add_column(column.upper(), no_wrap=True, overflow="ellipsis")
        else:
            widest = max((len(getattr(row[position], "plain", row[position])) for row in cells), default=0)
            made.add_column(column.upper(), no_wrap=True, overflow="fold", min_width=max(widest, len(column)))
    for row in cells:
        made.add_row(*row)
    return made


def styled(text: str, style: str | None) -> Any:
    from rich.text import Text

    return Text(text, style or "")


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 60:
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d{hours:02d}h"
    return f"{hours}h{minutes:02d}m" if hours else f"{minutes}m{rest:02d}s"


def moment(at: float | None) -> str:
    """Local time; with the date unless it is today's."""
    if at is None:
        return "-"
    when = datetime.fromtimestamp(at).astimezone()
    today = when.date() == datetime.now().astimezone().date()
    return when.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M:%S")


def size(count: int | None) -> str:
    if count is None:
        return "-"
    number = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if number >= 10 or unit == "B" else f"{number:.1f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"


class Needs(Protocol):
    """What a process takes of a machine."""

    @property
    def accelerators(self) -> Mapping[str, int]: ...
    @property
    def cpu_milli(self) -> int: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def share(self) -> str: ...
    @property
    def device_memory_bytes(self) -> int: ...


def needs(resources: Needs) -> str:
    """`a100:1 1cpu 4GiB`, as short as it can be; `a100:1(guaranteed 20GiB)` of one that is shared."""
    parts = [f"{kind}:{count}" for kind, count in resources.accelerators.items()]
    if resources.device_memory_bytes and parts:
        parts[-1] += f"({resources.share} {size(resources.device_memory_bytes).replace(' ', '')})"
    if resources.cpu_milli:
        parts.append(f"{resources.cpu_milli / 1000:g}cpu")
    if resources.memory_bytes:
        parts.append(size(resources.memory_bytes).replace(" ", ""))
    return " ".join(parts) or "-"


def facts(values: Mapping[str, Any]) -> None:
    """`name  value` lines; absent values are left out."""
    kept = {name: value for name, value in values.items() if value not in (None, "", "-")}
    width = max((len(name) for name in kept), default=0)
    for name, value in kept.items():
        text = styled(f"{name:<{width}}  ", "dim")
        text.append(value if hasattr(value, "plain") else str(value))
        console().print(text, soft_wrap=True)
