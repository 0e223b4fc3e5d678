"""Many rows in few statements, and what one write comes to as plain rows.

The drivers give up the interpreter's lock around every statement, and a busy event loop may keep it for milliseconds
each time. So hundreds of rows go in a few statements, of few sizes (powers of two, and three times these): their
texts are made once, and SQLite keeps them prepared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import count, islice, repeat
from typing import Any, NamedTuple

Row = tuple[Any, ...]

_SIZES = tuple(sorted((factor << power for power in range(9) for factor in (1, 3)), reverse=True))
"""Rows per statement, at most 768: a job has 30 columns, and both databases take 32,766 parameters."""


class Bulk(NamedTuple):
    """A statement around one list of rows (VALUES), each `width` values wide."""

    head: str
    width: int
    tail: str = ""

    def statements(self, rows: Sequence[Row], *, numbered: bool = False) -> Iterator[tuple[str, Row]]:
        """The texts that take all rows, with the values of each. Places are `?`, or `numbered` `$1`, `$2`, ..."""
        if not rows:
            return
        done = 0
        for size in _SIZES:
            while len(rows) - done >= size:
                values = [value for row in rows[done : done + size] for value in row]
                yield _text(self, size, numbered), tuple(values)
                done += size

    def one(self, rows: Sequence[Row], *, numbered: bool = False) -> tuple[str, Row]:
        """A single statement for at least one row and at most `MOST` of them; the last row fills it up."""
        size = next(size for size in reversed(_SIZES) if size >= len(rows))
        filled = [*rows, *repeat(rows[-1], size - len(rows))]
        return _text(self, size, numbered), tuple([value for row in filled for value in row])


MOST = _SIZES[0]


@cache
def _text(bulk: Bulk, size: int, numbered: bool) -> str:
    places = (f"${number}" for number in count(1)) if numbered else repeat("?")
    rows = ", ".join(f"({', '.join(islice(places, bulk.width))})" for _ in range(size))
    return f"{bulk.head}{rows}{bulk.tail}"


class Work(NamedTuple):
    """The rows of one write. A step starts with the job's id and expected version, and so does an end, which is a job's
    last step. An attempt starts with its key; an event lacks its number, which is known only at commit."""

    arrays: tuple[Row, ...] = ()
    jobs: tuple[Row, ...] = ()
    steps: tuple[Row, ...] = ()
    ends: tuple[Row, ...] = ()
    attempts: tuple[Row, ...] = ()
    metrics: tuple[Row, ...] = ()
    progress: tuple[Row, ...] = ()
    events: tuple[Row, ...] = ()


def write(works: Iterable[Work], seq: int, run: Callable[[str, Sequence[Row]], int]) -> bool:
    """Write all in the transaction at hand, events numbered after `seq`. `run` writes rows of a kind (the name of one
    of `Work`'s fields) and says how many it found. False when the row of a step has changed meanwhile."""
    all_of = [tuple([row for rows in column for row in rows]) for column in zip(*works, strict=True)]
    arrays, jobs, steps, ends, attempts, metrics, progress, events = all_of or Work()
    run("arrays", arrays)
    run("jobs", jobs)
    for kind, rows in (("steps", steps), ("ends", ends)):
        for wave in _waves(rows):
            if run(kind, wave) != len(wave):
                return False
    run("attempts", tuple({row[:2]: row for row in attempts}.values()))
    run("metrics", metrics)
    run("progress", tuple({row[0]: row for row in progress}.values()))
    run("events", tuple([(number, *row) for number, row in enumerate(events, seq + 1)]))
    return True


def _waves(steps: Iterable[Row]) -> list[list[Row]]:
    """A statement sees no change of its own, so a job's second step goes in the next wave."""
    waves: list[list[Row]] = []
    seen: dict[str, int] = {}
    for row in steps:
        wave = seen.get(row[0], 0)
        seen[row[0]] = wave + 1
        if wave == len(waves):
            waves.append([])
        waves[wave].append(row)
    return waves
