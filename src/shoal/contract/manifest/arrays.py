"""Job arrays as text: `0-99`, `0-99%10`, `1,3,5-9:2`, as Slurm writes them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from shoal.base.validation import shown
from shoal.contract.manifest.quantities import problem

MOST_TASKS = 10_000
MOST_INDEX = 999_999
ARRAY_HINT = "indices and ranges, with a limit if wanted: 0-99, 1,3,5-9:2 or 0-99%10"

_ITEM = re.compile(r"(\d{1,7})(?:-(\d{1,7})(?::(\d{1,7}))?)?")


@dataclass(frozen=True, slots=True)
class Array:
    """The tasks of a job array: their indices, rising, and how many may run at once (None: any number)."""

    indices: tuple[int, ...]
    limit: int | None = None

    def __str__(self) -> str:
        limit = f"%{self.limit}" if self.limit is not None else ""
        return ",".join(_ranges(self.indices)) + limit


@lru_cache(maxsize=64)
def parse_array(text: str) -> Array:
    """Raises a `problem` for text that means no array."""
    items, percent, limit = text.replace(" ", "").partition("%")
    if percent and not (re.fullmatch(r"\d{1,7}", limit) and int(limit) > 0):
        raise problem(f"{shown(limit)} is no limit", "after % comes how many tasks may run at once: 0-99%10")
    found: set[int] = set()
    for item in items.split(","):
        matched = _ITEM.fullmatch(item)
        if matched is None:
            raise problem(f"{shown(item)} is no index and no range", ARRAY_HINT)
        first, last, step = (int(part) if part else None for part in matched.groups())
        assert first is not None
        last = first if last is None else last
        if step == 0:
            raise problem("a step of 0 does not get further", ARRAY_HINT)
        if first > last:
            raise problem(f"the range {item} ends before it begins", "write the lower index first")
        if last > MOST_INDEX:
            raise problem(f"index {last} is too high", f"the highest is {MOST_INDEX}")
        span = range(first, last + 1, step or 1)
        if len(span) > MOST_TASKS or len(found) + len(span) > 2 * MOST_TASKS:
            raise problem("the array has too many tasks", f"at most {MOST_TASKS}: submit several arrays")
        found.update(span)
    if len(found) > MOST_TASKS:
        raise problem("the array has too many tasks", f"at most {MOST_TASKS}: submit several arrays")
    return Array(tuple(sorted(found)), int(limit) if limit else None)


def read_array(value: Any) -> Any:
    """The canonical text of an array. Values that are no text are left to the schema."""
    if not isinstance(value, str):
        raise problem(f"{shown(value)} is no array", ARRAY_HINT)
    return str(parse_array(value))


def _ranges(indices: tuple[int, ...]) -> list[str]:
    """Runs of neighbours as ranges, and runs of three and more with one step as stepped ranges."""
    found: list[str] = []
    at = 0
    while at < len(indices):
        step = indices[at + 1] - indices[at] if at + 1 < len(indices) else 1
        end = at
        while end + 1 < len(indices) and indices[end + 1] - indices[end] == step:
            end += 1
        if end - at < 2 and step > 1:
            found.append(str(indices[at]))
            at += 1
            continue
        first, last = indices[at], indices[end]
        found.append(str(first) if end == at else f"{first}-{last}" + (f":{step}" if step > 1 else ""))
        at = end + 1
    return found
