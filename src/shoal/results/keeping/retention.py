"""Retention: the artifacts that may go by now. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """An artifact. `job` is empty for one that was uploaded alone, `job_name` then as well."""

    id: str
    tenant: str
    job: str
    job_name: str
    attempt: int
    name: str
    digest: str
    bytes: int
    taken_at: float
    pinned: bool = False
    by: str = ""


def to_remove(kept: Iterable[Kept], *, now: float, keep_s: float, versions: int) -> list[Kept]:
    """Those that are older than `keep_s`, and those that are not among the newest `versions` of their name in jobs of
    one name (0: all stay). Pinned ones stay, and take no place among these. An older attempt's goes first."""
    removed, by_name = [], defaultdict[tuple[str, str, str], list[Kept]](list)
    for one in kept:
        if one.pinned:
            continue
        if now - one.taken_at > keep_s:
            removed.append(one)
        elif versions and one.job:
            by_name[one.tenant, one.job_name, one.name].append(one)
    for same in by_name.values():
        same.sort(key=lambda one: (one.taken_at, one.job, one.attempt), reverse=True)
        removed += same[versions:]
    return removed
