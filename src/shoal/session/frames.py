"""Messages between a session's agent and its clients, and what an agent keeps of what was written.

Frames are a byte of kind, four of length, and a payload. The offset of a client is in bytes of output frames. Neither
side sends more than WINDOW ahead of what the other has acknowledged, so nothing between them fills up. The agent loads
this file by its path, so it needs nothing of Shoal and only light parts of the standard library.
"""

from __future__ import annotations

import struct

HELLO, INPUT, END, SIZE, ACK, SIGNAL, DETACH = b"H", b"I", b"E", b"S", b"A", b"K", b"D"
WELCOME, OUTPUT, ERRORS, TAKEN, NOTE, EXIT = b"W", b"1", b"2", b"T", b"N", b"X"
ASK, STATE = b"Q", b"Y"
"""Of the server, which is no client: how it is with the session."""

MOST = 64 << 10
"""Bytes of one frame."""
SHORT = 4 << 10
"""Bytes to ask a descriptor for until it had as many: room for more costs a key press more than to read it."""
WINDOW = 256 << 10
INPUT_WINDOW = 128 << 10
"""Of what is typed: less than the sockets on the way hold, so that sending never keeps a client from reading."""
KEPT = 1 << 20
"""Bytes of output that a client which comes back can still get."""
_HEAD = struct.Struct(">cI")
HEAD_BYTES = _HEAD.size


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return _HEAD.pack(kind, len(payload)) + payload


def take_frames(data: bytearray) -> list[tuple[bytes, bytes]]:
    """The whole frames at the beginning, which are removed. Raises ValueError for one that is too long."""
    found, begin, size = [], HEAD_BYTES, len(data)
    at = 0
    while begin <= size:
        kind, length = _HEAD.unpack_from(data, at)
        if length > MOST:
            raise ValueError("a frame is too long")
        end = begin + length
        if size < end:
            break
        found.append((kind, bytes(data[begin:end])))
        at, begin = end, end + HEAD_BYTES
    del data[:at]
    return found


def write_fields(**fields: object) -> bytes:
    return "\n".join(f"{name}={value}" for name, value in fields.items()).encode()


def read_fields(data: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in data.decode("utf-8", "replace").split("\n") if line)
    return {name: value for name, _, value in pairs}


def number(fields: dict[str, str], name: str, most: int = 1 << 62) -> int:
    """A count that somebody else wrote; 0 for what is none."""
    text = fields.get(name, "")
    return min(int(text), most) if text.isascii() and text.isdigit() and len(text) < 20 else 0


def plain(data: bytes) -> str:
    """A remark as one line that no terminal obeys."""
    return "".join(one if one.isprintable() else "?" for one in data.decode("utf-8", "replace"))[:1000]


class Kept:
    """The frames of output that were written last, by their place in all that was written."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.offsets: list[int] = []
        self.first = 0
        """The number of the first frame that is kept."""
        self.end = 0

    @property
    def begin(self) -> int:
        return self.offsets[0] if self.offsets else self.end

    def add(self, kind: bytes, payload: bytes) -> None:
        made = frame(kind, payload)
        self.frames.append(made)
        self.offsets.append(self.end)
        self.end += len(made)

    def drop(self, until: int) -> None:
        """Forget the oldest frames which end before `until`, as far as more than KEPT bytes are kept."""
        count, begin = 0, self.begin
        while count < len(self.frames) and self.end - begin > KEPT and begin + len(self.frames[count]) <= until:
            begin += len(self.frames[count])
            count += 1
        del self.frames[:count], self.offsets[:count]
        self.first += count

    def number_at(self, offset: int) -> int:
        """Of the first frame that begins there or later."""
        for place, begin in enumerate(self.offsets):
            if begin >= offset:
                return self.first + place
        return self.first + len(self.frames)
