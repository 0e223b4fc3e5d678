"""Gavel's table of measured throughputs (JSON): steps per second by type, job type and partner.

    {"v100": {"('ResNet-18 (batch size 16)', 1)": {"null": 31.2, "('A3C', 1)": [20.1, 3.2]}}}

`null` is the job alone; a list is the rate of the job and that of its partner. Zeros say that they do not fit together.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core import Invalid
from shoal.schedule.types import Array
from shoal.schedule.workloads.files import read_text
from shoal.schedule.workloads.types import NAMED, Throughputs

_KEY = re.compile(r"\('(?P<kind>.*)', (?P<gang>\d+)\)")
_SCALED = re.compile(r"(?P<kind>.*) \(scale factor (?P<gang>\d+)\)")


def read_throughputs(path: Path | str, *, scaled: bool = False) -> Throughputs:
    """Raises `Invalid` with the file and the line of every fault: not JSON, not this format, negative or not a
    number."""
    text = read_text(path)
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise Invalid(f"not JSON: {error.msg}", where=f"{path}:{error.lineno}") from None
    if not isinstance(found, dict) or not found or not all(isinstance(jobs, dict) for jobs in found.values()):
        raise Invalid(
            "not a table of throughputs", where=f"{path}:1", hint='{"TYPE": {"(\'JOB\', GANG)": {"null": RATE, ...}}}'
        )
    return _TableReader(str(path), text, found).read(scaled)


class _TableReader:
    def __init__(self, source: str, text: str, table: dict[str, dict[str, Any]]) -> None:
        self._source, self._text, self._table = source, text, table
        self._problems: list[Invalid] = []

    def read(self, scaled: bool) -> Throughputs:
        keys: dict[tuple[str, int], int] = {}
        for type_name, jobs in self._table.items():
            for name in jobs:
                key = _key(name)
                if key is None:
                    self._fault(f"{name!r} names no job and gang", type_name, name, hint="write ('NAME', GANG)")
                else:
                    keys.setdefault(key, len(keys))
        types = tuple(self._table)
        rate = np.full((len(keys), len(types)), np.nan)
        pair = np.full((len(keys), len(keys), len(types)), np.nan)
        for at, (type_name, jobs) in enumerate(self._table.items()):
            for name, rates in jobs.items():
                row = keys.get(_key(name) or ("", 0))
                if row is not None:
                    self._job(keys, rate[:, at], pair[:, :, at], row, (type_name, name, rates))
        if self._problems:
            first = self._problems[0]
            raise Invalid(
                f"{len(self._problems)} faults in the throughputs, the first: {first.what}", where=first.where,
                hint=first.hint, problems=tuple(self._problems[:NAMED]),
            )  # fmt: skip
        lines = {key: self._line(types[0], name) for name in self._table[types[0]] if (key := _key(name))}
        return Throughputs(self._source, types, keys, rate, pair, scaled, lines)

    def _job(
        self, keys: dict[tuple[str, int], int], rate: Array, pair: Array, row: int, job: tuple[str, str, Any]
    ) -> None:
        type_name, name, rates = job
        if not isinstance(rates, dict) or "null" not in rates:
            self._fault(f"{name} has no throughput alone", type_name, name, hint='add "null": RATE')
            return
        for partner, value in rates.items():
            if partner == "null":
                if self._sound(value, type_name, name, partner):
                    rate[row] = value
                continue
            other = keys.get(_key(partner) or ("", 0))
            if other is None:
                self._fault(f"{name} beside {partner}, which has no throughput alone", type_name, name, partner)
            elif not isinstance(value, list) or len(value) != 2:
                self._fault("a pair needs two throughputs", type_name, name, partner, hint="[FIRST, SECOND]")
            elif all(self._sound(one, type_name, name, partner) for one in value):
                pair[row, other] = value[0]
                if math.isnan(pair[other, row]):
                    pair[other, row] = value[1]

    def _sound(self, value: Any, *path: str) -> bool:
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0:
            return True
        self._fault(f"the throughput {value!r} is not a finite number of at least zero", *path)
        return False

    def _fault(self, what: str, *path: str, hint: str | None = None) -> None:
        if len(self._problems) > 1000:
            return
        named = " > ".join(path)
        self._problems.append(Invalid(f"{what} ({named})", where=f"{self._source}:{self._line(*path)}", hint=hint))

    def _line(self, *path: str) -> int:
        """Where the keys of a path stand, each after the one before. Types and jobs have objects, which tells a job
        from the same one as a partner."""
        position = 0
        for depth, key in enumerate(path):
            quoted = re.escape(json.dumps(key))
            found = re.compile(quoted + r"\s*:\s*\{").search(self._text, position) if depth < 2 else None
            found = found or re.compile(quoted + r"\s*:").search(self._text, position)
            if found is None:
                break
            position = found.start() + 1
        return self._text.count("\n", 0, position) + 1


def _key(name: str) -> tuple[str, int] | None:
    if match := _KEY.fullmatch(name) or _SCALED.fullmatch(name):
        return match["kind"], int(match["gang"])
    return None
