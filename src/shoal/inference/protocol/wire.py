"""The fields of a serialized protobuf message, counted before it is parsed.

A message of 64 MiB may hold thirty million empty submessages. Parsing them takes seconds and gigabytes, on the event
loop.
Wire format: https://protobuf.dev/programming-guides/encoding/.
"""

from __future__ import annotations

from collections.abc import Mapping

Nested = Mapping[int, "Nested"]
"""Which fields, by number, are messages to look into."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_LONGEST = 63
"""Bits before the last byte of the longest number."""
_FIXED = {_FIXED64: 8, _FIXED32: 4}

INFER_REQUEST: Nested = {4: {}, 5: {4: {}, 5: {}}, 6: {2: {}}}
"""Of a ModelInferRequest: parameters; inputs with parameters and contents; outputs with parameters."""


def has_at_most(data: bytes, fields: int, nested: Nested) -> bool:
    """Whether a message has at most `fields` fields, those of nested messages included.

    A packed list is one field. Takes time by `fields`, not by the length of `data`. What is no message counts as far as
    it can be read: the parser refuses it.
    """
    inside: list[tuple[int, Nested]] = [(len(data), nested)]
    at = 0
    try:
        while inside:
            end, known = inside[-1]
            if at >= end:
                inside.pop()
                continue
            fields -= 1
            if fields < 0:
                return False
            tag, at = varint(data, at)
            kind = tag & 7
            if kind == _LENGTH:
                size, at = varint(data, at)
                below = known.get(tag >> 3)
                if below is None:
                    at += size
                else:
                    inside.append((min(at + size, end), below))
            elif kind == _VARINT:
                _, at = varint(data, at)
            else:  # the marks of a group, which is a field of no meaning to us, have no contents of their own
                at += _FIXED.get(kind, 0)
    except IndexError:  # cut off
        pass
    return True


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at a position, and the position behind it. Raises IndexError where the data end, or it does not."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
        if shift > _LONGEST:
            raise IndexError
