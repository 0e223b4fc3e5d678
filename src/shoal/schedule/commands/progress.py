"""How far a simulation has come, on stderr."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from shoal.schedule.simulate.result import OnProgress


@contextmanager
def bar(title: str) -> Iterator[OnProgress]:
    """A line that is drawn over and over; nothing where stderr is not a terminal."""
    console = Console(stderr=True)
    hours = TextColumn("jobs, {task.fields[hours]:,.0f} simulated hours")
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), hours
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as drawn:
        task = drawn.add_task(title, total=None, hours=0.0)
        yield lambda done, of, now_s: drawn.update(task, completed=done, total=of, hours=now_s / 3600)
