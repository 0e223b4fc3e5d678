"""Pages of components as typed values: `shoal status`, its `--json`, HTML reports and web pages draw the
same page, and a component writes none of them.

A cell is a plain value; its column or figure has the unit, and the code that draws it chooses the words ("1.5 GiB").
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from shoal.contract.view import View

Value = bool | int | float | str | None
"""None is drawn as a dash."""


class Unit(StrEnum):
    """What a number counts. TIME is a moment in Unix seconds, SHARE a part of one."""

    NONE = ""
    BYTES = "bytes"
    DOLLARS = "dollars"
    SECONDS = "seconds"
    SHARE = "share"
    TIME = "time"


class Mood(StrEnum):
    """How a value is meant: BAD asks somebody to act."""

    PLAIN = "plain"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"


class Figure(View):
    """A key figure: one name, one value."""

    name: str
    value: Value = None
    unit: Unit = Unit.NONE
    mood: Mood = Mood.PLAIN


class Column(View):
    name: str
    unit: Unit = Unit.NONE


class Table(View):
    """Each row has a value for each column; the first column names the row. `empty` is said when there are no rows."""

    kind: Literal["table"] = "table"
    title: str
    columns: list[Column]
    rows: list[list[Value]] = Field(default_factory=list)
    empty: str = "none"


class Line(View):
    """`points` are (Unix seconds, value), oldest first."""

    name: str
    points: list[tuple[float, float]]


class Series(View):
    """Values over time, all of one unit."""

    kind: Literal["series"] = "series"
    title: str
    unit: Unit = Unit.NONE
    lines: list[Line]


class Span(View):
    """From `start` to `end` in Unix seconds, in a lane of its own or with others; no end: it goes on."""

    lane: str
    name: str
    start: float
    end: float | None = None
    mood: Mood = Mood.PLAIN


class Timeline(View):
    """What was when, lane by lane."""

    kind: Literal["timeline"] = "timeline"
    title: str
    spans: list[Span]


Part = Annotated[Table | Series | Timeline, Field(discriminator="kind")]


class Action(View):
    """What a reader may do: the command line that does it, and the request that it stands for. `warning` says what will
    happen, and is put to a person before an action that ends or removes something. `note` says it of one that does no
    harm."""

    name: str
    command: list[str]
    method: Literal["POST", "PUT", "PATCH", "DELETE"]
    path: str
    warning: str = ""
    note: str = ""


class Page(View):
    """What one component shows: its key figures first, then parts in the order of their weight."""

    title: str
    figures: list[Figure] = Field(default_factory=list)
    parts: list[Part] = Field(default_factory=list)
    actions: list[Action] = Field(default_factory=list)


class PageList(View):
    """By the component's name."""

    pages: dict[str, Page] = Field(default_factory=dict)
