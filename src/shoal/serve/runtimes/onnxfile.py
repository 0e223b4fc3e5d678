"""Other files that an ONNX file wants opened, found without the `onnx` package and without building the model.

A walk over the protocol buffer's wire format (https://protobuf.dev/programming-guides/encoding) that follows only the
fields which can lead to a tensor with external data (field numbers of onnx.proto3).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from shoal.inference.checks import ModelFile, place, read_model
from shoal.inference.errors import BadModel
from shoal.inference.protocol.wire import varint
from shoal.inference.types import ModelSpec


@dataclass(eq=False)
class _Message:
    fields: dict[int, _Message] = field(default_factory=dict)


_ENTRY = _Message()
_TENSOR = _Message({13: _ENTRY})
_SPARSE = _Message({1: _TENSOR, 2: _TENSOR})
_GRAPH = _Message()
_ATTRIBUTE = _Message({5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH, 22: _SPARSE, 23: _SPARSE})
_NODE = _Message({5: _ATTRIBUTE})
_GRAPH.fields.update({1: _NODE, 5: _TENSOR, 15: _SPARSE})
_FUNCTION = _Message({7: _NODE, 11: _ATTRIBUTE})
_TRAINING = _Message({1: _GRAPH, 2: _GRAPH})
_MODEL = _Message({7: _GRAPH, 20: _TRAINING, 25: _FUNCTION})

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Malformed(ValueError):
    """The bytes are no protocol buffer."""


def check(spec: ModelSpec) -> None:
    """Raises BadModel for a file that is no ONNX model, or that wants files opened which it must not have."""
    refuse_foreign_files(read_model(spec, spec.source, ".onnx"), spec)


def refuse_foreign_files(file: ModelFile, spec: ModelSpec) -> None:
    """Raises BadModel if the model keeps data outside of its directory."""
    try:
        locations = external_locations(file.data)
    except Malformed as error:
        raise BadModel(
            f"{file.path.name} is no ONNX file: {error}", where=place(spec), hint="export it again"
        ) from None
    for location in sorted(locations):
        why = escape(file.path.resolve().parent, location)
        if why is not None:
            raise BadModel(
                f"{file.path.name} keeps data in {location!r}, which {why}",
                where=place(spec),
                hint="keep external data beside the model: onnx.save(..., save_as_external_data=True, location=NAME)",
            )


def external_locations(data: bytes) -> set[str]:
    """The paths, as they are written, of all files that the model's tensors lie in. Raises Malformed."""
    if b"location" not in data:  # the key must stand somewhere; most models have none, and need no walk
        return set()
    found: set[str] = set()
    left = [(_MODEL, 0, len(data))]
    while left:
        message, start, end = left.pop()
        if message is _ENTRY:
            entry = [(number, data[a:b]) for number, a, b in _fields(data, start, end)]
            if (1, b"location") in entry:
                found.update(value.decode(errors="replace") for number, value in entry if number == 2)
            continue
        for number, a, b in _fields(data, start, end):
            child = message.fields.get(number)
            if child is not None:
                left.append((child, a, b))
    return found


def escape(directory: Path, location: str) -> str | None:
    """Why the file at `location` must not be opened for a model in `directory`; None if it may."""
    if not location or Path(location).is_absolute() or "\0" in location:
        return "is not a relative path"
    target = (directory / location).resolve()
    if not target.is_relative_to(directory.resolve()):
        return "lies outside the model's directory"
    return None if target.is_file() else "is no file"


def _fields(data: bytes, at: int, end: int) -> Iterator[tuple[int, int, int]]:
    """(number, start, end) of each length-delimited field of the message between `at` and `end`."""
    try:
        while at < end:
            key, at = varint(data, at)
            kind = key & 7
            if kind == _BYTES:
                length, at = varint(data, at)
                if length > end - at:
                    raise Malformed(f"the field at byte {at} claims {length} bytes, {end - at} are left")
                yield key >> 3, at, at + length
                at += length
            elif kind == _VARINT:
                _, at = varint(data, at)
            elif kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            else:
                raise Malformed(f"wire type {kind} at byte {at}")
    except IndexError:
        raise Malformed(f"a number without an end, in the message at byte {at}") from None
    if at != end:
        raise Malformed(f"a field ends at byte {at}, its message at {end}")
