"""Reading text that others wrote: what is wrong is named with its file and line, and nothing is half read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from shoal.core import Invalid, NotFound
from shoal.schedule.workloads.types import NAMED


def read_text(path: Path | str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound("there is no such file", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot be read: {error}", where=str(path)) from None


class Lines:
    """Numbered lines of a file, and the faults found in them."""

    def __init__(self, path: Path | str) -> None:
        self.source = str(path)
        self.lines = read_text(path).splitlines()
        self.problems: list[Invalid] = []

    def fault(self, number: int, what: str, hint: str | None = None) -> None:
        self.problems.append(Invalid(what, where=f"{self.source}:{number}", hint=hint))

    def number(self, line: int, name: str, text: str, *, least: float = 0.0, above: bool = False) -> float:
        """The number in a field, or NaN and a fault."""
        try:
            value = float(text)
        except ValueError:
            self.fault(line, f"{name} {text.strip()!r} is no number")
            return math.nan
        if not math.isfinite(value) or value < least or (above and value == least):
            self.fault(line, f"{name} {text.strip()} must be finite and {'above' if above else 'at least'} {least:g}")
            return math.nan
        return value

    def whole(self, line: int, name: str, text: str, *, least: int = 1) -> int:
        value = self.number(line, name, text, least=least)
        if math.isnan(value):
            return least
        if value != int(value):
            self.fault(line, f"{name} {text.strip()} must be a whole number")
        return int(value)

    def raise_faults(self) -> None:
        if self.problems:
            raise_faults(self.problems)

    def nothing(self) -> None:
        raise Invalid("there is no job in it", where=self.source)


def raise_faults(problems: Sequence[Invalid]) -> None:
    first = problems[0]
    raise Invalid(
        first.what if len(problems) == 1 else f"{len(problems)} faults, the first: {first.what}", where=first.where,
        hint=first.hint, problems=tuple(problems[:NAMED]) if len(problems) > 1 else (),
    )  # fmt: skip
