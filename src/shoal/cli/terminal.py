"""Output of jobs, made harmless for a terminal: colours stay, other control sequences are shown and not obeyed."""

from __future__ import annotations

import codecs
import re

_COLOUR = r"\x1b\[[0-9;:]{0,40}m"
_BEGUN = re.compile(r"\x1b(\[[0-9;:]{0,40})?\Z")
"""The beginning of what may become a colour with the next piece."""
_CONTROL = re.compile(rf"{_COLOUR}|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_RESET = "\x1b[0m"


def harmless(text: str) -> str:
    """One line that a terminal obeys nothing of."""
    return _CONTROL.sub(lambda found: repr(found[0])[1:-1], text.replace("\n", "\\n").replace("\r", "\\r"))


class Harmless:
    """Takes a stream in pieces, cut anywhere. New lines, tabs and carriage returns (progress bars) pass."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""
        self._coloured = False

    def feed(self, data: bytes, *, last: bool = False) -> bytes:
        text = self._kept + self._decoder.decode(data, last)
        begun = None if last else _BEGUN.search(text)
        self._kept = text[begun.start() :] if begun else ""
        shown = _CONTROL.sub(self._show, text[: begun.start()] if begun else text)
        if last and self._coloured:
            shown += _RESET
        return shown.encode()

    def _show(self, found: re.Match[str]) -> str:
        text = found[0]
        if len(text) > 1:
            self._coloured = True
            return text
        code = ord(text)
        return f"^{chr(code ^ 0x40)}" if code < 0x80 else f"\\x{code:02x}"
