"""Escapes that a person types to the session itself, as in ssh: `~` at the beginning of a line. Pure."""

from __future__ import annotations

from enum import Enum, auto

HELP = """
~d   detach: the session goes on
~.   the same
~?   this text
~~   a tilde
"""


class Wish(Enum):
    DETACH = auto()
    HELP = auto()


class Escapes:
    """Takes what is typed in pieces, cut anywhere."""

    def __init__(self) -> None:
        self._fresh = True
        """At the beginning of a line."""
        self._tilde = False

    def feed(self, data: bytes) -> tuple[bytes, list[Wish]]:
        """What is to be passed on, and what is wished. What follows a wish to detach is dropped."""
        if data and not self._tilde and b"~" not in data:
            self._fresh = data[-1] in b"\r\n"
            return data, []
        out, wishes = bytearray(), list[Wish]()
        for byte in data:
            if self._tilde:
                self._tilde = False
                if byte in b"d.":
                    return bytes(out), [*wishes, Wish.DETACH]
                if byte == 0x3F:
                    wishes.append(Wish.HELP)
                    continue
                if byte != 0x7E:
                    out.append(0x7E)
            elif self._fresh and byte == 0x7E:
                self._tilde = True
                continue
            out.append(byte)
            self._fresh = byte in b"\r\n"
        return bytes(out), wishes
