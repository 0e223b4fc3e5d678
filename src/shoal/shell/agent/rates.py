"""Rates that are measured again and again, and must not make equal pipelines run differently."""

from __future__ import annotations

NOISE = 2.0
"""Between two rates of one link, at most."""


def steady(known: float | None, found: float, noise: float = NOISE) -> float:
    """Only a large difference changes what was measured, so that equal pipelines are planned alike."""
    return found if known is None or not known / noise <= found <= known * noise else known
