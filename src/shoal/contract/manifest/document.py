"""YAML text as plain values together with the line of each, read with YAML 1.2's few rules for unquoted words.

`no`, `on` and `12:30` are text here, as users mean them; only `true`, `false`, `null` and numbers are special.
Aliases and tags are refused: a manifest needs neither, and aliases can make a small text huge.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml

from shoal.contract.manifest.path import Path, show_path
from shoal.core import Invalid

MAX_BYTES = 256 << 10
MAX_DEPTH = 32
MAX_VALUES = 20_000
"""The most values and names in a text. Each takes some microseconds, during which the process does nothing else."""
_TAG = "tag:yaml.org,2002:"
_NOT_FINITE = re.compile(r"^([-+]?)\.(inf|nan)$")


class _Loader(yaml.CSafeLoader):
    """Composes nodes with the core schema of YAML 1.2 in place of 1.1's surprises."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - the parent's name, replaced as a whole


_Loader.add_implicit_resolver(f"{_TAG}null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Loader.add_implicit_resolver(f"{_TAG}bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Loader.add_implicit_resolver(f"{_TAG}int", re.compile(r"^[-+]?\d+$", re.ASCII), list("-+0123456789"))
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"^(?:[-+]?(?:\.\d+|\d+(?:\.\d*)?)(?:[eE][-+]?\d+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$", re.ASCII
    ),
    list("-+.0123456789"),
)


@dataclass(frozen=True)
class Document:
    """The values of a text, the line (from 1) of each value and key, and unquoted words as they were written."""

    value: Any
    source: str
    lines: dict[Path, int] = field(default_factory=dict)
    written: dict[Path, str] = field(default_factory=dict)

    def line(self, path: Path) -> int:
        """The line of this path, or of the nearest thing around it."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


def refusal(what: str, *, where: str, hint: str | None = None) -> Invalid:
    """An error about one thing, which is also its only problem."""
    return Invalid(what, where=where, hint=hint, problems=(Invalid(what, where=where, hint=hint),))


def decode(text: str | bytes, source: str) -> str:
    """The text, if it is UTF-8 and no larger than `MAX_BYTES`; raises Invalid."""
    if len(text) > MAX_BYTES:
        raise refusal(
            f"the manifest is larger than {MAX_BYTES >> 10} KiB",
            where=source,
            hint="put data under `files` or `inputs`",
        )
    try:
        return text.decode() if isinstance(text, bytes) else text
    except UnicodeDecodeError as error:
        raise refusal(f"the text is not UTF-8 at byte {error.start}", where=source, hint="save it as UTF-8") from None


def read_document(text: str, source: str) -> Document:
    """Raises Invalid when the text is not one YAML document of plain values."""
    document = Document({}, source)
    loader = None
    try:
        loader = _Loader(text)
        document.value.update(_Reader(loader, document).read_all())
    except yaml.YAMLError as error:
        raise _unreadable(error, source) from None
    finally:
        if loader is not None:
            loader.dispose()
    return document


class _Reader:
    """Turns the parser's events into plain values, and notes where each stood.

    PyYAML's own composer recurses in C without a limit, so a hostile text could end the process: this one counts.
    """

    def __init__(self, loader: _Loader, document: Document) -> None:
        self._loader = loader
        self._document = document
        self._count = 0

    def _next(self) -> Any:
        """The next event; untyped, for the parser's stubs let every mark be absent."""
        event: Any = self._loader.get_event()
        self._count += 1
        if self._count > MAX_VALUES:
            where = f"{self._document.source}:{event.start_mark.line + 1}"
            raise refusal(f"the manifest has more than {MAX_VALUES} values", where=where, hint="put data into files")
        return event

    def read_all(self) -> dict[str, Any]:
        source = self._document.source
        self._next()  # the start of the stream
        if isinstance(self._next(), yaml.StreamEndEvent):
            raise refusal("the manifest is empty", where=source, hint="it needs at least a `name` and a `command`")
        event = self._next()
        if not isinstance(event, yaml.MappingStartEvent):
            raise refusal(
                "the manifest is not a mapping",
                where=f"{source}:{event.start_mark.line + 1}",
                hint="write fields such as `name: my-job`, one on each line",
            )
        value: dict[str, Any] = self._value(event, ())
        self._next()  # the end of the document
        event = self._next()
        if not isinstance(event, yaml.StreamEndEvent):
            where = f"{source}:{event.start_mark.line + 1}"
            raise refusal("there is more than one document", where=where, hint="one manifest a file: split it at `---`")
        return value

    def _value(self, event: Any, path: Path) -> Any:
        if len(path) > MAX_DEPTH:
            raise self._refuse(event, path, f"more than {MAX_DEPTH} levels deep", "a manifest has at most four levels")
        if isinstance(event, yaml.AliasEvent):
            raise self._refuse(event, path, "an alias (*) is used", "write the value out in each place")
        if event.tag is not None:
            raise self._refuse(event, path, f"the tag {event.tag} is used", "manifests hold plain values only")
        self._document.lines.setdefault(path, event.start_mark.line + 1)
        if isinstance(event, yaml.MappingStartEvent):
            return self._mapping(path)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(path)
        return self._scalar(event, path)

    def _sequence(self, path: Path) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            values.append(self._value(event, (*path, len(values))))
        return values

    def _mapping(self, path: Path) -> dict[str, Any]:
        values: dict[str, Any] = {}
        while not isinstance(key := self._next(), yaml.MappingEndEvent):
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarEvent):
                raise self._refuse(key, path, "a field's name is not a word", "quote it, or look for a stray bracket")
            here = (*path, key.value)
            if key.value in values:
                first = self._document.lines[here]
                raise self._refuse(key, here, f"the field is given twice, first on line {first}", "keep one of them")
            self._document.lines[here] = line
            values[key.value] = self._value(self._next(), here)
        return values

    def _scalar(self, event: Any, path: Path) -> Any:
        text: str = event.value
        tag: str = self._loader.resolve(yaml.ScalarNode, text, event.implicit)  # type: ignore[no-untyped-call]
        kind = tag.removeprefix(_TAG)
        if kind == "str":
            return text
        self._document.written[path] = text
        if kind == "null":
            return None
        if kind == "bool":
            return text.lower() == "true"
        try:
            return int(text) if kind == "int" else float(_NOT_FINITE.sub(r"\1\2", text.lower()))
        except ValueError:  # Python reads no integer of thousands of digits
            raise self._refuse(event, path, "the number cannot be read", "quote it if it is meant as text") from None

    def _refuse(self, event: Any, path: Path, what: str, hint: str) -> Invalid:
        where = f"{self._document.source}:{event.start_mark.line + 1}: {show_path(path)}"
        return refusal(what, where=where, hint=hint)


def _unreadable(error: yaml.YAMLError, source: str) -> Invalid:
    mark: Any = getattr(error, "problem_mark", None)
    where = f"{source}:{mark.line + 1}" if mark else source
    said = getattr(error, "problem", None) or "a character is not allowed"
    hint = "check the indentation, quotes and colons there"
    if "tab character" in said or "start any token" in said:
        hint = "indent with spaces, not with tabs; quote text that starts with @ or `"
    return refusal(f"the text is not YAML: {said}", where=where, hint=hint)
