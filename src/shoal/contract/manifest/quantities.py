"""Durations, sizes and deadlines as people write them, turned into seconds and bytes.

Each reader takes what a manifest may hold and either returns the number or raises a `PydanticCustomError` of type
`shoal` that carries a sentence and a hint; see `problem`.
"""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from shoal.base.validation import shown

if TYPE_CHECKING:
    from pydantic_core import PydanticCustomError

MAX_DURATION_S = 10 * 365 * 86_400.0
MIN_MEMORY_BYTES = 1 << 20
MAX_MEMORY_BYTES = 1 << 50

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_DURATION = re.compile(r"(?:\d{1,12}(?:\.\d{1,6})?(?:ms|s|m|h|d))+", re.ASCII)
_DURATION_PART = re.compile(r"([\d.]+)(ms|s|m|h|d)", re.ASCII)
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,6})?) ?(?:([kKMGTP])(i?)B?|B)", re.ASCII)
_POWER = {"k": 1, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}

DURATION_HINT = "write a duration such as 30s, 5m or 1h30m (units ms, s, m, h, d), or a number of seconds"
SIZE_HINT = "write a size with its unit, such as 512MiB, 4GB or 4Gi"
DEADLINE_HINT = "write a time such as 2030-01-31T18:00:00Z, or a duration from submission such as 2h"


def problem(what: str, hint: str) -> PydanticCustomError:
    """An error that the parser shows as it is: a sentence about the value, and what to do instead."""
    from pydantic_core import PydanticCustomError

    return PydanticCustomError("shoal", "{what}", {"what": what, "hint": hint})


def read_duration(value: Any) -> float:
    """Seconds of `90`, `30s`, `5m`, `1h30m`, `1.5h`, `500ms`."""
    if isinstance(value, float | int) and not isinstance(value, bool):
        seconds = float(value) if -1e18 < value < 1e18 else math.inf
    elif isinstance(value, str) and _DURATION.fullmatch(value):
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in _DURATION_PART.findall(value))
    else:
        raise problem(f"{shown(value)} is not a duration", DURATION_HINT)
    if not 0 < seconds <= MAX_DURATION_S:
        raise problem(f"{shown(value)} is out of range", "a duration is more than 0 and at most 3650d")
    return seconds


def read_duration_or_zero(value: Any) -> float:
    """As `read_duration`, and zero is allowed."""
    if value in (0, "0", "0s") and not isinstance(value, bool):
        return 0.0
    return read_duration(value)


def read_memory(value: Any) -> int:
    """As `read_size`, but some."""
    size = read_size(value)
    if not size:
        raise problem("a process cannot run in no memory", "leave it out for the server's default, or give a size")
    return size


def read_size(value: Any) -> int:
    """Bytes of `512MiB`, `4GB` (10^9 each), `4Gi` (2^30 each), or of a plain number of bytes."""
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        number, prefix, binary = match.groups()
        unit = (1024 if binary else 1000) ** _POWER[prefix] if prefix else 1
        size = int(float(number) * unit) if "." in number else int(number) * unit
    else:
        raise problem(f"{shown(value)} is not a size", SIZE_HINT)
    if size and not MIN_MEMORY_BYTES <= size <= MAX_MEMORY_BYTES:
        raise problem(f"{shown(value)} is out of range", "give between 1MiB and 1024TiB, with its unit")
    return size


def write_duration(seconds: float) -> str:
    """What `read_duration` reads as these seconds, in the largest unit that leaves a whole number."""
    unit = next((unit for unit in ("d", "h", "m") if seconds and seconds % _SECONDS[unit] == 0), "s")
    return f"{seconds / _SECONDS[unit]:.12g}{unit}"


def write_size(size: int) -> str:
    """What `read_size` reads as these bytes, in the largest binary unit that leaves a whole number."""
    power = next((power for power in (4, 3, 2, 1) if size and size % 1024**power == 0), 0)
    return f"{size // 1024**power}{('B', 'KiB', 'MiB', 'GiB', 'TiB')[power]}"


def read_deadline(value: Any) -> float | str:
    """Seconds from submission for a duration, or the moment as UTC text (`2030-01-31T18:00:00Z`) for a timestamp."""
    if not isinstance(value, str) or _DURATION.fullmatch(value):
        return read_duration(value)
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        raise problem(f"{shown(value)} is neither a time nor a duration", DEADLINE_HINT) from None
    if moment.tzinfo is None:
        raise problem(f"{shown(value)} names no time zone", f"write {value}Z for UTC, or an offset such as +02:00")
    try:
        return moment.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except OverflowError:
        raise problem(f"{shown(value)} is out of range", DEADLINE_HINT) from None
