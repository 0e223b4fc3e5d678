"""Batches: the news that share a message. Pure."""

from __future__ import annotations

from collections.abc import Sequence

MOST_OPEN = 4
"""Deliveries of one channel that are made and not over. The news of a receiver that is away pile up as rows, which cost
little, and go to it in few messages once it is back."""
FLOOD = 20
"""From this number of news at once on, they come together."""
LARGEST = 100
"""News in one message."""


def batches(waiting: Sequence[str], open_now: int, *, digest: bool) -> list[list[str]]:
    """What to send next of the news that are due, by their ids in their order, where `open_now` deliveries are not
    over."""
    free = max(0, MOST_OPEN - open_now)
    size = LARGEST if digest or len(waiting) > FLOOD else 1
    return [list(waiting[start : start + size]) for start in range(0, min(len(waiting), free * size), size)]
