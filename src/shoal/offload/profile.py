"""The calls of a process by line: where each ran, for how long, and why there."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType
from typing import Any

from shoal.base.files import write_whole

REASONS: Mapping[str, str] = {
    "chunks": "blocks in the cache of each core save memory traffic, and all cores work",
    "torch": "as chunks, with PyTorch's vectorised functions in place of scalar ones",
    "compiled": "one compiled kernel reads the inputs once and writes the outputs once",
    "device": "the device saves more work than the copies there and back take",
    "polars": "Polars gives the same result and was faster at this size",
    "slower": "the other engine took as long or longer when it was tried",
    "shifted": "elementwise operations read the array itself, from a shifted place",
    "distinct": "few strings are distinct: the function was applied to each of them, and the results taken by row",
    "sklearnex": "scikit-learn-intelex gives the same result and was faster at this shape",
    "gram": "the Gram matrix is small: an exact eigendecomposition of it is cheaper than iterations over the data",
    "plain-faster": "the plain library is estimated to be as fast at this size",
    "small": "an operand is small: capture would cost more than the operation",
    "types": "the types of the operands are not captured",
    "shared-memory": "an operand's memory can be written past the capture, so it is read at once",
    "plain-array": "a large operand was made outside the captured functions",
    "foreign-operand": "an operand is of another library or a sequence",
    "error-state": "the program changed how floating point errors are handled",
    "large-integer": "whether the integer fits depends on its value",
    "in-place": "the result is written into an array of the program",
    "not-elementwise": "the function is not elementwise: NumPy's own is used",
    "options": "an argument asks for what no other backend gives equally",
    "untrusted": "a backend gave another result at first use, so the plain library's was taken",
    "unavailable": "the backend that could do it is not installed",
    "strict": "offload.strict keeps the plain library's own functions",
    "unlike": "the data could not give an equal result elsewhere",
    "error": "a backend failed, and the plain library did the work",
}
"""What each reason's code says in a sentence."""

Site = tuple[CodeType, int]


@dataclass(frozen=True, slots=True)
class CallRecord:
    """All calls of one function at one line that ended at one backend for one reason."""

    file: str
    line: int
    call: str
    backend: str
    reason: str
    calls: int
    seconds: float
    bytes: float
    detail: str = ""
    saved: float = 0.0
    """Seconds less than the plain library is estimated to take; below 0 where it took longer."""


class Profile:
    """Counts calls. Cheap while the program runs; lines are looked up when it is read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: dict[tuple[int, int, str, str, str, str], list[float]] = {}
        self._tag = os.urandom(4).hex()
        self._code: dict[int, CodeType] = {}
        """By identity: to hash a code object takes longer than most operations."""
        os.register_at_fork(after_in_child=self.clear)

    def clear(self) -> None:
        self._lock = threading.Lock()
        self._calls, self._code = {}, {}

    def add(
        self,
        site: Site,
        call: str,
        backend: str,
        reason: str,
        seconds: float,
        size: float = 0.0,
        detail: str = "",
        saved: float = 0.0,
    ) -> None:
        code, lasti = site
        key = (id(code), lasti, call, backend, reason, detail)
        with self._lock:
            entry = self._calls.get(key)
            if entry is None:
                self._code[id(code)] = code
                self._calls[key] = [1, seconds, size, saved]
            else:
                entry[0] += 1
                entry[1] += seconds
                entry[2] += size
                entry[3] += saved

    def records(self) -> list[CallRecord]:
        with self._lock:
            taken = [((self._code[key[0]], *key[1:]), tuple(values)) for key, values in self._calls.items()]
        merged: dict[tuple[str, int, str, str, str, str], list[float]] = {}
        for (code, lasti, *rest), values in taken:
            where = (code.co_filename, line_of(code, lasti), *rest)
            entry = merged.setdefault(where, [0, 0.0, 0.0, 0.0])  # type: ignore[arg-type]
            for position, value in enumerate(values):
                entry[position] += value
        found = [CallRecord(*key[:5], int(n), s, b, key[5], w) for key, (n, s, b, w) in merged.items()]
        return sorted(found, key=lambda each: (each.file, each.line, each.call, each.backend, each.reason))

    def write(self, folder: Path) -> None:
        """For a parent that reports about all processes of a program; a later one takes its place. Raises OSError."""
        found = self.records()
        if found:
            data = {"pid": os.getpid(), "records": [asdict(each) for each in found]}
            write_whole(folder / f"{os.getpid()}-{self._tag}.json", json.dumps(data), durable=False)


def line_of(code: CodeType, lasti: int) -> int:
    for start, end, line in code.co_lines():
        if start <= lasti < end and line is not None:
            return line
    return code.co_firstlineno


def read_profiles(folder: Path) -> tuple[list[CallRecord], int]:
    """The calls of all processes that wrote into the folder, and their number. Raises ValueError."""
    found: list[CallRecord] = []
    files = sorted(folder.glob("*.json"))
    for each in files:
        try:
            found += [CallRecord(**one) for one in json.loads(each.read_text())["records"]]
        except (KeyError, TypeError) as error:
            raise ValueError(f"{each} is not a profile") from error
    return merge(found), len(files)


def merge(records: Iterable[CallRecord]) -> list[CallRecord]:
    merged: dict[tuple[Any, ...], CallRecord] = {}
    for each in records:
        key = (each.file, each.line, each.call, each.backend, each.reason, each.detail)
        old = merged.get(key)
        merged[key] = each if old is None else CallRecord(
            *key[:5], old.calls + each.calls, old.seconds + each.seconds, old.bytes + each.bytes, each.detail,
            old.saved + each.saved,
        )  # fmt: skip
    return [merged[key] for key in sorted(merged)]


PROFILE = Profile()
