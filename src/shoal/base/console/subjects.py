"""What `shoal explain` and `shoal events` can be told of beside jobs: entry points of the group `shoal.subjects`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

from shoal.base.console.command import CommandContext
from shoal.base.discover import find

GROUP = "shoal.subjects"


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
    for one in find(GROUP).values():
        find_subject: FindSubject = one.load()
        if (subject := find_subject(client, ref, tenant)) is not None:
            return subject
    return None
