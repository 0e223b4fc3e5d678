"""Files that a command reads, and those that it writes when its work is done."""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from shoal.core import Invalid


def read_input(path: Path) -> tuple[str, str]:
    """The text of a file, of stdin for `-`, and what messages call it. Raises Invalid."""
    if str(path) == "-":
        return sys.stdin.read(), "stdin"
    try:
        return path.read_text(), str(path)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
    except UnicodeDecodeError as error:
        why = f"it is not UTF-8 at byte {error.start}"
    raise Invalid(f"the file cannot be read: {why}", where=str(path))


@dataclass(frozen=True, slots=True)
class OutFile:
    """Where the option `option` wants its output. Hours of work are not lost to a wrong path, for `check` finds it out
    before; and what stands there is whole or untouched, for `write` renames what it wrote beside it."""

    path: Path
    option: str

    def check(self) -> None:
        """Raises Invalid where nothing can be written."""
        try:
            if self._is_stream():
                return
            if self.path.is_dir():
                raise IsADirectoryError(0, "it is a folder")
            if self.path.exists() and not os.access(self.path, os.W_OK):
                raise PermissionError(0, "it is write-protected")
            with tempfile.NamedTemporaryFile(dir=self._target().parent):
                pass
        except OSError as error:
            raise self._refusal(error) from None

    def write(self, text: str) -> None:
        """Raises Invalid where it cannot be written."""
        try:
            if self._is_stream():
                self.path.write_text(text, encoding="utf-8")
                return
            target = self._target()
            beside = target.with_name(f".{target.name[:200]}.{os.getpid()}")
            try:
                beside.write_text(text, encoding="utf-8")
                beside.replace(target)
            finally:
                beside.unlink(missing_ok=True)
        except OSError as error:
            raise self._refusal(error) from None

    def _is_stream(self) -> bool:
        """Whether it is a device or a pipe, such as /dev/null: what stands beside it could not take its place."""
        return self.path.exists() and not self.path.is_file() and not self.path.is_dir()

    def _target(self) -> Path:
        """The file itself where the path is a link to it."""
        return self.path.resolve()

    def _refusal(self, error: OSError) -> Invalid:
        why = (error.strerror or str(error)).lower()
        hint = "name a file in a folder that is there and that you can write to"
        return Invalid(f"{self.path} cannot be written: {why}", where=self.option, hint=hint)
