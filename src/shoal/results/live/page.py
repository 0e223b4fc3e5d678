"""The page of kept artifacts."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.contract.pages import Column, Figure, Mood, Page, Table, Unit, Value
from shoal.results.keeping.retention import Kept

_TIGHT = 0.9


def page_of(
    kept: Sequence[Kept], *, used: int, allowed: int, files: int, taking: int | None, where: str | None, trouble: str
) -> Page:
    """`kept` is the newest first. `taking` and `where` are for an admin only."""
    figures = [
        Figure(name="artifacts", value=files),
        Figure(name="contents", value=used, unit=Unit.BYTES,
               mood=Mood.WARNING if used > _TIGHT * allowed else Mood.PLAIN),
        Figure(name="allowed to a tenant", value=allowed, unit=Unit.BYTES),
    ]  # fmt: skip
    if taking is not None:
        figures.append(Figure(name="attempts to be taken", value=taking))
    if where is not None:
        figures.append(Figure(name="kept in", value=where))
    if trouble:
        figures.append(Figure(name="trouble", value=trouble, mood=Mood.BAD))
    columns = [Column(name="artifact"), Column(name="job"), Column(name="attempt"),
               Column(name="size", unit=Unit.BYTES),
               Column(name="taken", unit=Unit.TIME), Column(name="pinned"), Column(name="digest")]  # fmt: skip
    rows: list[list[Value]] = [
        [one.name, one.job_name or None, one.attempt or None, one.bytes, one.taken_at, "yes" if one.pinned else None,
         f"sha256:{one.digest[:12]}"]
        for one in kept
    ]  # fmt: skip
    table = Table(
        title="Newest artifacts", columns=columns, rows=rows, empty="none; `artifacts:` in a manifest names them"
    )
    return Page(title="Artifacts", figures=figures, parts=[table])
