"""The decisions about one line of a program: what was run together, what each way was expected to take, and what would
change the choice."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.base.files import write_whole
from shoal.core import Invalid
from shoal.offload.profile import line_of
from shoal.placement import short_time

if TYPE_CHECKING:
    from shoal.offload.arrays.choose import Way
    from shoal.offload.arrays.program import Program

_PREFIX = "decision-"
_MOST = 20
"""Different decisions that are kept of a line."""


@dataclass(frozen=True, slots=True)
class LineDecision:
    """`operations` are (line, call) in order; `expected_s` has each way's estimate or measurement; `seconds` is what
    the chosen one took, on average over `times`."""

    operations: tuple[tuple[int, str], ...]
    shape: tuple[int, ...]
    inputs: int
    outputs: int
    chosen: str
    expected_s: dict[str, float]
    seconds: float
    times: int
    absent: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        told = [f"{self.chosen}: expected {short_time(self.expected_s[self.chosen])}, took {short_time(self.seconds)}"]
        for name, seconds in sorted(self.expected_s.items(), key=lambda each: each[1]):
            if name != self.chosen:
                told.append(f"{name}: expected {short_time(seconds)}; it would be chosen below "
                            f"{short_time(self.expected_s[self.chosen])}")  # fmt: skip
        return [*told, *self.absent]


class Decisions:
    """Those of one line, as `--explain` asks for it."""

    def __init__(self, where: str) -> None:
        file, _, line = where.rpartition(":")
        if not line.isdigit() or not file:
            raise Invalid(f"{where!r} names no line", hint="as in analysis.py:41")
        self._file, self._line = str(Path(file).resolve()), int(line)
        self._found: dict[tuple[Any, ...], LineDecision] = {}

    def observe(self, program: Program, way: Way, seconds: float, absent: tuple[str, ...]) -> None:
        operations = []
        asked = False
        for one in program.operations:
            code, lasti, _ = one.node.site
            line = line_of(code, lasti)
            operations.append((line, one.ufunc.__name__))
            asked |= line == self._line and str(Path(code.co_filename).resolve()) == self._file
        if not asked:
            return
        key = (tuple(operations), program.shape, way.backend)
        before = self._found.get(key)
        if before is None and len(self._found) >= _MOST:
            return
        times = 1 if before is None else before.times + 1
        average = seconds if before is None else before.seconds + (seconds - before.seconds) / times
        self._found[key] = LineDecision(
            key[0], program.shape, len(program.inputs), len(program.outputs), way.backend, dict(way.alternatives),
            average, times, absent,
        )  # fmt: skip

    def write(self, folder: Path) -> None:
        if self._found:
            data = [asdict(each) for each in self._found.values()]
            write_whole(folder / f"{_PREFIX}{os.getpid()}-{os.urandom(4).hex()}.txt", json.dumps(data), durable=False)


def read_decisions(folder: Path) -> list[LineDecision]:
    found = []
    for each in sorted(folder.glob(f"{_PREFIX}*.txt")):
        for told in json.loads(each.read_text()):
            operations = tuple((line, call) for line, call in told.pop("operations"))
            shape, absent = tuple(told.pop("shape")), tuple(told.pop("absent"))
            found.append(LineDecision(operations=operations, shape=shape, absent=absent, **told))
    return found
