"""Prices over time: a CSV with the columns `seconds`, `type` and `usd_per_hour`."""

from __future__ import annotations

import csv
from pathlib import Path

from shoal.schedule.workloads.files import Lines
from shoal.schedule.workloads.types import PriceChange

_HEADER = ["seconds", "type", "usd_per_hour"]


def read_prices(path: Path | str) -> tuple[PriceChange, ...]:
    """From each line's second on, an accelerator of its type costs as much. Raises `Invalid` naming the line of each
    fault."""
    lines = Lines(path)
    rows = list(csv.reader(lines.lines))
    if not rows or [name.strip() for name in rows[0]] != _HEADER:
        lines.fault(1, "the header must name the columns", ",".join(_HEADER))
        lines.raise_faults()
    found = []
    for number, row in enumerate(rows[1:], 2):
        if not row:
            continue
        if len(row) != len(_HEADER):
            lines.fault(number, f"{len(row)} fields, expected {len(_HEADER)}")
            continue
        at, price = lines.number(number, "seconds", row[0]), lines.number(number, "price", row[2])
        found.append(PriceChange(at, row[1].strip(), price))
    lines.raise_faults()
    return tuple(sorted(found, key=lambda change: change.at_s))
