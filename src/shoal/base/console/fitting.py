"""Choice of a table's columns for a narrow terminal, and of their widths. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

GAP = 2
"""Blanks between two columns."""
DOTS = "…"


@dataclass(frozen=True, slots=True)
class ColumnWidth:
    """`natural` holds every cell; a column may be cut down to `least`. Of those that may go, the one with the lowest
    `goes` goes first; None: it stays."""

    natural: int
    least: int
    goes: int | None = None


def fit(columns: Sequence[ColumnWidth], width: int) -> list[tuple[int, int]]:
    """The (position, width) of each column that is shown in `width` characters.

    Columns go until the others fit, each at its least width. The columns get what is left in turn. Where no more column
    may go, the result may still be too wide.
    """
    kept = list(range(len(columns)))
    going = sorted((one.goes, at) for at, one in enumerate(columns) if one.goes is not None)
    least = [min(one.least, one.natural) for one in columns]
    while going and sum(least[at] for at in kept) + GAP * (len(kept) - 1) > width:
        kept.remove(going.pop(0)[1])
    given = {at: least[at] for at in kept}
    left = width - sum(given.values()) - GAP * (len(kept) - 1)
    while left > 0 and (short := [at for at in kept if given[at] < columns[at].natural]):
        for at in short[:left]:
            given[at] += 1
        left -= min(left, len(short))
    return list(given.items())


def cut(text: str, width: int, *, middle: bool) -> str:
    """The text in at most `width` characters; what is left out stands in the middle, or at the end."""
    if len(text) <= width:
        return text
    if width <= 1:
        return DOTS[:width]
    tail = (width - 1) // 2 if middle else 0
    return text[: width - 1 - tail] + DOTS + (text[-tail:] if tail else "")
