"""The shared part of all kinds of manifests: their common fields, the resources they ask for, and their canonical
text.
"""

from __future__ import annotations

import hashlib
import sys
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, WithJsonSchema

from shoal.contract.manifest import places, quantities
from shoal.contract.manifest.defaults import MemoryDefault
from shoal.contract.manifest.readers import in_order, not_reserved, read_accelerators, read_secrets
from shoal.contract.manifest.values import (
    ACCELERATOR_TYPE,
    BUNDLE,
    ENV_NAME,
    SECRET_NAME,
    Count,
    Memory,
    Name,
    Part,
    Text,
    json_of,
)
from shoal.core import ANY, Resources, Share


class Accelerators(Part):
    """How many accelerators of which type one rank holds: `exclusive`, or as the one `guaranteed` or one of the
    `best-effort` holders of each, with `memory` of each one's memory."""

    type: Annotated[str, StringConstraints(pattern=ACCELERATOR_TYPE)] = Field(
        default=ANY, description="a type of accelerator, or `any`: whatever type has enough"
    )
    count: Count = Field(default=1, description="how many")
    share: Share = Field(
        default=Share.EXCLUSIVE,
        description="to oneself, or with others as the one `guaranteed` holder or one of the `best-effort` ones",
    )
    memory: Memory | None = Field(default=None, description="of each device's memory; needed with a share")


class ResourceRequest(Part):
    """What one rank holds while it runs. `cpus` 0 holds none: it runs with the least weight, on what others leave.
    What is left out is the tenant's or the server's default, and stands in the manifest once it was accepted."""

    accelerators: Annotated[
        Accelerators,
        BeforeValidator(read_accelerators),
        WithJsonSchema(
            {
                "description": "a number, TYPE:COUNT, or both spelled out",
                "anyOf": [
                    {"type": "integer", "minimum": 0},
                    {"type": "string"},
                    {
                        "type": "object",
                        "properties": {
                            "type": {"type": "string"},
                            "count": {"type": "integer", "minimum": 0},
                            "share": {"enum": [share.value for share in Share]},
                            "memory": {"type": ["string", "integer"], "description": quantities.SIZE_HINT},
                        },
                        "additionalProperties": False,
                    },
                ],
            }
        ),
    ] = Field(default=Accelerators(count=0), description="a number of any type, TYPE, TYPE:COUNT, or both spelled out")
    cpus: Annotated[float, Field(strict=True, ge=0, le=100_000)] | None = Field(
        default=None, description="cores, fractions allowed; 0 holds no core and runs with the least weight"
    )
    memory: Memory | None = Field(default=None, description="a limit for each rank; one that needs more is killed")
    memory_from: MemoryDefault | None = Field(
        default=None, description="set by the server where it chose the memory: whose default it is"
    )

    def resources(self) -> Resources:
        """As a vector. The defaults are one core and an unknown amount of memory."""
        return Resources(
            {self.accelerators.type: self.accelerators.count},
            cpu_milli=1000 if self.cpus is None else round(self.cpus * 1000),
            memory_bytes=self.memory or 0,
            share=self.accelerators.share,
            device_memory_bytes=self.accelerators.memory or 0,
        )


EnvName = Annotated[str, StringConstraints(pattern=ENV_NAME), AfterValidator(not_reserved)]

TenantField = Annotated[
    Name | None, Field(description="for whom it runs; a token of another tenant is refused [the token's]")
]
Description = Annotated[Text, StringConstraints(max_length=4096), Field(description="text for people")]
Labels = Annotated[
    dict[Text, Text], Field(max_length=64, description="text by name, for filters"), AfterValidator(in_order)
]
Files = Annotated[
    tuple[Annotated[Text, BeforeValidator(places.read_file)], ...],
    Field(
        max_length=4096,
        description="files, directories and globs below the manifest's own directory, unpacked into the run directory",
    ),
]
Bundle = Annotated[
    Annotated[str, StringConstraints(pattern=BUNDLE)] | None,
    Field(description="the digest of an archive that was uploaded already, in place of `files`"),
]
Env = Annotated[
    dict[EnvName, Text],
    Field(
        max_length=1024,
        description="variables, all of them text: quote numbers; those that Shoal sets itself are refused",
    ),
    AfterValidator(in_order),
]
Secrets = Annotated[
    dict[EnvName, Annotated[str, StringConstraints(pattern=SECRET_NAME)]],
    BeforeValidator(read_secrets),
    Field(max_length=256, description="variable: name of a stored secret; or a list of names that are both"),
    AfterValidator(in_order),
    json_of(["object", "array"], "variable: stored secret; or a list of both"),
]


class Manifest(Part):
    """What a tenant hands in, of any kind."""

    def values(self) -> dict[str, Any]:
        """As a mapping that `model_validate` takes."""
        return self.model_dump(by_alias=True, exclude_none=True)

    def with_bundle(self, digest: str) -> Self:
        """This manifest after its files were uploaded as the archive `digest` (`sha256:HEX`)."""
        return self.model_validate({**self.values(), "files": (), "bundle": digest})

    def canonical_json(self) -> str:
        """The one JSON text of this manifest; two equal manifests have the same, once in memory: many jobs wait."""
        return sys.intern(self.model_dump_json(exclude_none=True))

    def fingerprint(self, text: str | None = None) -> str:
        """SHA-256 in hexadecimal: two manifests that mean the same have the same. `text` is its `canonical_json`, for
        those who have it."""
        return hashlib.sha256((text or self.canonical_json()).encode()).hexdigest()
