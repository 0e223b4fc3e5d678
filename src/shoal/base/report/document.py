"""Parts of a report, before it is a page."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from shoal.core import Clock, Invalid, SystemClock


@dataclass(frozen=True, slots=True)
class Cell:
    """`heat` from 0 (nothing) to 1 colours the cell's ground."""

    text: str
    heat: float = 0.0


@dataclass(frozen=True, slots=True)
class Table:
    """The first column names its rows."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str | Cell]]


@dataclass(frozen=True, slots=True)
class Figure:
    """`draw(number)` gives an <svg> element whose ids are made of the number; `table` says the same in words."""

    title: str
    draw: Any
    table: Table


@dataclass(frozen=True, slots=True)
class Section:
    """`simulated` results never came from a server, and the page says so."""

    title: str
    text: Sequence[str]
    figures: Sequence[Figure] = ()
    tables: Sequence[Table] = ()
    warnings: Sequence[str] = ()
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """`made_at` is in Unix seconds; `facts` are shown under the title (command, machine, ...)."""

    title: str
    sections: Sequence[Section]
    made_at: float
    facts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        title: str,
        sections: Sequence[Section],
        *,
        facts: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> Report:
        """Made now, on this machine."""
        machine = {"machine": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"}
        return cls(title, tuple(sections), (clock or SystemClock()).now(), {**machine, **(facts or {})})

    @property
    def moment(self) -> str:
        return datetime.fromtimestamp(self.made_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Invalid(f"cannot be written: {error.strerror}", where=str(path)) from error
