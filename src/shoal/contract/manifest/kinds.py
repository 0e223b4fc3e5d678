"""Kinds of manifests: jobs, and what components declare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from shoal.base import discover

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from shoal.contract.manifest.conflicts import Conflict
    from shoal.contract.manifest.values import Part

_PART = "manifests"


@dataclass(frozen=True, eq=False)
class Kind:
    """A kind of manifest: how it is read, and what is said of its problems.

    `parts` has the model at each path; `*` stands for a position in a list or a name in a mapping. A text that names no
    kind is of this one if it has one of the `marks` at the top. `used_by` says what takes such a manifest. The methods
    of the Python client that do are in its `namespace`. `shapes` says of each pattern what is wrong with a value that
    does not match it, `missing` of each needed field what to write, `known_as` what other systems call a field.
    """

    name: str
    model: type[Part]
    parts: Mapping[tuple[str, ...], type[Part]]
    conflicts: Callable[[dict[str, Any]], list[Conflict]]
    schema: Callable[[], dict[str, Any]]
    """The JSON Schema, for editors and for the API's description."""
    used_by: str
    marks: frozenset[str] = frozenset()
    namespace: str | None = None
    shapes: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    known_as: Mapping[str, str] = field(default_factory=dict)

    def fields(self, path: tuple[str, ...]) -> dict[str, FieldInfo]:
        """Those that a mapping at this path may hold, by their names as they are written in a manifest."""
        part = self.parts.get(path)
        return {field.alias or name: field for name, field in part.model_fields.items()} if part else {}

    def place(self, steps: Iterable[str]) -> tuple[str, ...]:
        """The path of these fields as `parts` has it; positions in lists and names in mappings are left out."""
        path: tuple[str, ...] = ()
        for step in steps:
            path = (*path, "*", step) if (*path, "*") in self.parts else (*path, step)
        return (*path, "*") if (*path, "*") in self.parts else path

    def field_names(self, path: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self.fields(path))

    def needed_names(self, path: tuple[str, ...]) -> tuple[str, ...]:
        """Those of them that it must hold."""
        return tuple(name for name, field in self.fields(path).items() if field.is_required())


def other_kind(name: str) -> Kind | None:
    """The kind of this name that a component declares."""
    found = discover.find_one(_PART, name)
    kind: Kind | None = found.load() if found is not None else None
    return kind


def other_kinds() -> tuple[Kind, ...]:
    """All that components declare."""
    kinds, _ = discover.load_all(_PART)
    return tuple(kinds.values())
