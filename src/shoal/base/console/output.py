"""Tables and amounts for people. Rich is loaded only here, when something is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from shoal.base.console.fitting import GAP, ColumnWidth, cut, fit

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult


_LEAST = 12
"""Characters that are left of a column that is cut."""


@cache
def console() -> Console:
    """Stdout with colours on a terminal (unless NO_COLOR is set); a pipe gets plain lines that are never cut."""
    from rich.console import Console

    return Console(highlight=False, markup=False, soft_wrap=False, width=None if sys.stdout.isatty() else 4096)


def put(found: RenderableType) -> None:
    """Print it; into a pipe without the blanks that fill up a table's lines."""
    if console().is_terminal:
        console().print(found)
        return
    with console().capture() as captured:
        console().print(found)
    print("\n".join(line.rstrip() for line in captured.get().splitlines()), flush=True)


class FittedTable:
    """A table without lines, no wider than where it is drawn. See `table`."""

    def __init__(
        self, heads: list[str], rows: list[list[Any]], widths: list[ColumnWidth], middle: frozenset[int]
    ) -> None:
        self._heads = heads
        self._rows = rows
        self._widths = widths
        self._middle = middle

    @property
    def row_count(self) -> int:
        return len(self._rows)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.table import Table

        made = Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="bold")
        shown = fit(self._widths, options.max_width)
        for at, width in shown:
            made.add_column(cut(self._heads[at], width, middle=False), no_wrap=True, overflow="ignore", width=width)
        for row in self._rows:
            made.add_row(*(self._cut(row[at], at, width) for at, width in shown))
        made.width = sum(width + GAP for _, width in shown) - GAP
        yield from console.render(made, options.update(width=made.width))

    def _cut(self, cell: Any, at: int, width: int) -> Any:
        text = styled(cell, None) if isinstance(cell, str) else cell
        if len(text.plain) <= width:
            return text
        return styled(cut(text.plain, width, middle=at in self._middle), str(text.style))


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    last_gives_way: bool = True,
    drop: Sequence[str] | None = None,
    cut_middle: Sequence[str] = (),
    least: Mapping[str, int] = MappingProxyType({}),
) -> FittedTable:
    """A table without lines. On a narrow terminal the columns named in `drop` go, in that order (without it: those
    between the first and the last, from the right), until the rest fits: the last column cut at its end, those of
    `cut_middle` in the middle, to no less than `least` characters. A pipe gets all of it."""
    heads = [column.upper() for column in columns]
    cells = [[cell if hasattr(cell, "plain") else str(cell) for cell in row] for row in rows]
    order = list(columns[-2:0:-1]) if drop is None else list(drop)
    widths = []
    for at, column in enumerate(columns):
        natural = max([len(column), *(len(getattr(row[at], "plain", row[at])) for row in cells)])
        may_cut = column in cut_middle or (at == len(columns) - 1 and last_gives_way)
        small = max(len(column), least.get(column, _LEAST)) if may_cut else natural
        widths.append(ColumnWidth(natural, small, order.index(column) if column in order else None))
    middle = frozenset(at for at, column in enumerate(columns) if column in cut_middle)
    return FittedTable(heads, cells, widths, middle)


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
    return when.strftime("%H:%M:%S") if today else dated(at)


def dated(at: float) -> str:
    """Local time with its date: in a list that may go over midnight."""
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d %H:%M:%S")


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
