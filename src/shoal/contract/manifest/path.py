"""Paths to values in a manifest."""

from __future__ import annotations

from shoal.base.validation import place_of

Path = tuple[str | int, ...]


def show_path(path: Path) -> str:
    """`inputs[0].from` for ("inputs", 0, "from")."""
    return place_of(path) or "manifest"
