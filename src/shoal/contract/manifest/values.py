"""The plain values that fields of manifests hold: text, names, durations, sizes, places."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, StringConstraints, WithJsonSchema
from pydantic_core import CoreSchema, core_schema

from shoal.contract.manifest import places, quantities

NAME = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
SECRET_NAME = r"^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?$"  # noqa: S105 - the shape of a name
METRIC_NAME = r"^[A-Za-z_][A-Za-z0-9_./-]{0,63}$"
ACCELERATOR_TYPE = r"^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$"
BUNDLE = r"^sha256:[0-9a-f]{64}$"
NO_NUL = r"^[^\x00]*$"


def json_of(kind: str | list[str], description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, "description": description})


Text = Annotated[str, StringConstraints(pattern=NO_NUL, max_length=65_536)]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Count = Annotated[int, Field(strict=True, ge=0, le=100_000)]
Duration = Annotated[
    float, BeforeValidator(quantities.read_duration), json_of(["string", "number"], quantities.DURATION_HINT)
]
DurationOrZero = Annotated[
    float, BeforeValidator(quantities.read_duration_or_zero), json_of(["string", "number"], quantities.DURATION_HINT)
]
_WRITTEN = PlainSerializer(quantities.write_duration, return_type=str, when_used="json")
Period = Annotated[Duration, _WRITTEN]
"""A duration of the settings, which is shown as people write it."""
PeriodOrZero = Annotated[DurationOrZero, _WRITTEN]
Memory = Annotated[int, BeforeValidator(quantities.read_memory), json_of(["string", "integer"], quantities.SIZE_HINT)]
RelativePath = Annotated[Text, BeforeValidator(places.read_relative), StringConstraints(max_length=1024)]
Location = Annotated[Text, BeforeValidator(places.read_location), StringConstraints(max_length=4096)]


class _Nothing(dict[str, Any]):
    """A mapping without entries that stays so, and has a hash: pydantic would copy a plain one into every manifest."""

    def __hash__(self) -> int:  # type: ignore[override]
        return 0

    def __deepcopy__(self, memo: object) -> Self:
        return self

    @classmethod
    def __get_pydantic_core_schema__(cls, source: object, handler: object) -> CoreSchema:
        return core_schema.dict_schema()

    def __setitem__(self, name: str, value: object) -> None:
        raise TypeError("this is the default of all manifests")


NOTHING: dict[str, Any] = _Nothing()


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, serialize_by_alias=True)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself, for nothing in it changes: defaults are shared instead of copied into every manifest."""
        return self
