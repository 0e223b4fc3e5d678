"""`--notify` of `shoal submit` and `shoal run`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.base.console.command import JobOption
from shoal.core import Invalid


def section(given: Sequence[str]) -> Mapping[str, Any]:
    """`alice@example.org`, `team:failed,started`: to whom, and of what. Raises Invalid."""
    to, topics = [], set[tuple[str, ...]]()
    for word in given:
        name, _, on = word.partition(":")
        if not name:
            raise Invalid(f"{word!r} names nobody", where="--notify", hint="such as alice@example.org, or team:failed")
        to.append(name)
        topics.add(tuple(on.split(",")) if on else ("ended",))
    if len(topics) > 1:
        raise Invalid("all are told of the same", where="--notify", hint="name the same topics for each")
    return {"to": to, "on": list(topics.pop())}


NOTIFY = JobOption(
    "notify", "Tell this mail address or subscription how it ends, or of other topics; may be repeated.", section,
    "TO[:TOPIC,...]",
)  # fmt: skip
