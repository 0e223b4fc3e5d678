"""Subjects of components: names beside jobs that `shoal explain` and `shoal events` take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from shoal.base.console.command import CommandContext
from shoal.base.discover import load_all


class Subject(Protocol):
    def explain(self, context: CommandContext) -> None:
        """Show why it is as it is."""
        ...

    def events(self, *, after: int | None, follow: bool) -> Iterator[Any]:
        """As `Client.events` gives them."""
        ...


FindSubject = Callable[[Any, str, str | None], Subject | None]
"""Of a client, a reference and a tenant; None if the reference can only mean a job."""


def meant(client: Any, ref: str, tenant: str | None) -> Subject | None:
    """What a reference means that is no job; None for a job."""
    found, _ = load_all("subjects")
    each: Iterable[FindSubject] = found.values()
    for find_subject in each:
        if (subject := find_subject(client, ref, tenant)) is not None:
            return subject
    return None
