"""Every tick of the guard as one JSON line: what was seen, what was decided and why, what was done. What is at its
default (`shoal.host.types`) is left out: half of the bytes, and a third of the time.

The first line of each file names the policy and holds its state, so that every file can be replayed by itself. Files
are renamed when they are full (`journal.jsonl.1` is the newest of the old ones) and the oldest is deleted. A disk that
is full, or a file that cannot be written, costs lines, never the guard: `lost` counts them.

Ticks may be gathered for a while and written together: a guard that sleeps between ticks finds its caches cold, and ten
lines at once cost a third of ten lines one by one.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from shoal.core import Invalid
from shoal.host.guard.loop import Record, Tick

VERSION = 1
_MODE = 0o600
_TAIL_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Head:
    """`state` is the policy's before the first tick of the file, `settings` are the policy's own; `started` is when
    the process `pid` began, in clock ticks since boot; `started_at` is Unix time where the ticks' clock shows
    `monotonic_at`."""

    policy: str
    state: Any
    settings: Mapping[str, Any] = field(default_factory=dict)
    pid: int = 0
    started: int = 0
    started_at: float = 0.0
    monotonic_at: float = 0.0
    version: int = VERSION


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def adapter(kind: Any) -> TypeAdapter[Any]:
    """Turns values of `kind` into JSON, and back."""
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def state_json(state: Any) -> Any:
    return adapter(type(state)).dump_python(state, mode="json")


def state_from_json(kind: type[Any], value: Any) -> Any:
    """Raises `Invalid` for what is no state of this kind."""
    try:
        return adapter(kind).validate_python(value)
    except ValidationError as error:
        raise Invalid(f"this is no state of the policy: {error.error_count()} fields are wrong") from None


class Journal:
    """Appends; opened by the guard alone. Nothing here raises once it is open."""

    def __init__(
        self, path: Path, head: Head, *, max_bytes: int = 32 << 20, files: int = 4, gather_s: float = 0.0
    ) -> None:
        """Lines are written when the oldest of them is `gather_s` old, the first at once. Raises `Invalid` if the file
        cannot be opened at all."""
        self.path, self.lost = path, 0
        self._gather_s = gather_s
        self._gathered: list[Tick] = []
        self.problem: str | None = None
        self._head, self._max_bytes, self._files = head, max_bytes, files
        self._fd, self._size = -1, 0
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if path.exists() and path.stat().st_size:
                self._rotate()
            self._open()
        except OSError as error:
            raise Invalid(f"the journal cannot be written: {error.strerror}", where=str(path)) from None

    def write(self, tick: Tick) -> None:
        self._gathered.append(tick)
        if self._size == 0 or tick.at - self._gathered[0].at >= self._gather_s:
            self.flush()

    def close(self) -> None:
        self.flush()
        self._close()

    def flush(self) -> None:
        """Write what was gathered."""
        gathered, self._gathered = self._gathered, []
        if not gathered:
            return
        try:
            if self._fd < 0 or self._size >= self._max_bytes:
                if self._fd >= 0:
                    self._rotate()
                self._open()
            head = [_head_line(self._head, gathered[0])] if self._size == 0 else []
            self._append(b"".join([*head, *map(_line, gathered)]))
            self.problem = None
        except (OSError, ValueError) as error:
            self.lost += len(gathered)
            self.problem = f"the journal loses lines: {error}"
            if self._size == 0:
                self._close()

    def _append(self, lines: bytes) -> None:
        """Whole lines only: what a full disk cuts off is taken back."""
        written = os.write(self._fd, lines)
        if written < len(lines):
            os.ftruncate(self._fd, self._size)
            raise OSError("the disk is full")
        self._size += written

    def _open(self) -> None:
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, _MODE)
        self._size = os.fstat(self._fd).st_size

    def _close(self) -> None:
        if self._fd >= 0:
            with contextlib.suppress(OSError):
                os.close(self._fd)
        self._fd = -1

    def _rotate(self) -> None:
        self._close()
        for number in range(self._files - 1, 0, -1):
            newer = self.path if number == 1 else _numbered(self.path, number - 1)
            with contextlib.suppress(FileNotFoundError):
                newer.replace(_numbered(self.path, number))
        if self._files == 1:
            self.path.unlink(missing_ok=True)


def read_journal(path: Path) -> tuple[Head, Iterator[Record]]:
    """One file's head and its ticks. A last line that was cut short is left out. Raises `Invalid` for what is no
    journal, when it is opened or when the bad line is reached."""
    lines = _lines(path)
    first = next(lines, None)
    if first is None or "head" not in first[1]:
        raise Invalid("this is no journal of a guard", where=str(path), hint="it begins with a line that has a head")
    try:
        head = adapter(Head).validate_python(first[1]["head"])
    except ValidationError:
        raise Invalid("the journal's head is damaged", where=f"{path}:1") from None
    if head.version != VERSION:
        raise Invalid(f"this journal is of version {head.version}, not {VERSION}", where=str(path))
    return head, _records(path, lines)


def files_of(path: Path) -> list[Path]:
    """A journal's files, the oldest first."""
    numbered = []
    for one in path.parent.glob(f"{path.name}.*"):
        number = one.name.removeprefix(f"{path.name}.")
        if number.isdecimal():
            numbered.append((-int(number), one))
    return [one for _, one in sorted(numbered)] + ([path] if path.exists() else [])


def last_records(path: Path, count: int, *, having: bytes = b"") -> list[Record]:
    """The newest ticks of a file without reading all of it, the newest last; fewer if they are large or cut. Only those
    whose line has these bytes."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            chunk = file.read(_TAIL_BYTES)
    except OSError as error:
        raise Invalid(f"it cannot be read: {error.strerror}", where=str(path)) from None
    found: list[Record] = []
    for line in reversed(chunk.split(b"\n")):
        if line.startswith(b'{"tick":') and having in line:
            with contextlib.suppress(ValueError, ValidationError, KeyError):
                found.append(adapter(Record).validate_json(_inner(line)))
        if len(found) >= count:
            break
    return found[::-1]


def _inner(line: bytes) -> bytes:
    if not line.endswith(b"}"):
        raise ValueError("cut short")
    return line[len(b'{"tick":') : -1]


def _line(tick: Tick) -> bytes:
    return b'{"tick":' + bytes(adapter(Record).dump_json(tick, exclude_defaults=True)) + b"}\n"


def _head_line(head: Head, tick: Tick) -> bytes:
    value = adapter(Head).dump_python(head, mode="json") | {"state": state_json(tick.state)}
    return json.dumps({"head": value}, separators=(",", ":")).encode() + b"\n"


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    value = json.loads(line)
                except ValueError:
                    value = None
                if not isinstance(value, dict):
                    raise Invalid("this line is no JSON object", where=f"{path}:{number}")
                yield number, value
    except OSError as error:
        raise Invalid(f"it cannot be read: {error.strerror}", where=str(path)) from None


def _records(path: Path, lines: Iterator[tuple[int, dict[str, Any]]]) -> Iterator[Record]:
    for number, value in lines:
        try:
            yield adapter(Record).validate_python(value["tick"])
        except (KeyError, ValidationError):
            raise Invalid("this line is no tick", where=f"{path}:{number}") from None


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")
