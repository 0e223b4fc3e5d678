"""Shared memory as the codecs need it: tensors that a message only refers to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from shoal.inference.errors import BadRequest
from shoal.inference.types import Buffer, Parameter

REGION, OFFSET, SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"
"""The names of the parameters by which a tensor refers to a region."""


@dataclass(frozen=True, slots=True)
class Place:
    """`size` bytes from `offset` bytes on in a region that the tenant registered."""

    region: str
    offset: int
    size: int


class Regions(Protocol):
    """Tenants' registered regions. All raise BadRequest for a place that does not exist."""

    def check(self, tenant: str, place: Place) -> None: ...

    def read(self, tenant: str, place: Place) -> Buffer: ...

    def write(self, tenant: str, place: Place, data: Buffer) -> None: ...


def place_of(parameters: Mapping[str, Parameter], where: str) -> Place | None:
    """Where a tensor with these parameters lies, None if it travels in the message."""
    region = parameters.get(REGION)
    if region is None:
        return None
    offset, size = parameters.get(OFFSET, 0), parameters.get(SIZE)
    if type(region) is not str or not region:
        raise BadRequest(f"{REGION} must be the name of a region", where=where)
    if type(size) is not int or size < 0:
        raise BadRequest(f"{SIZE} must say how many bytes the tensor takes", where=where)
    if type(offset) is not int or offset < 0:
        raise BadRequest(f"{OFFSET} must be 0 or a positive number of bytes", where=where)
    return Place(region, offset, size)


def parameters_of(place: Place) -> dict[str, Parameter]:
    return {REGION: place.region, OFFSET: place.offset, SIZE: place.size}
