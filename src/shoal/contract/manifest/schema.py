"""What a tenant may ask for: the manifest's fields, their defaults and what each accepts.

The models hold normalised values: durations as seconds, sizes as bytes, shorthands spelled out. The canonical JSON of
a manifest is itself a valid manifest, and parsing it gives an equal one.
"""

from __future__ import annotations

import hashlib
import math
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    JsonValue,
    StringConstraints,
    Tag,
    WithJsonSchema,
    model_validator,
)

from shoal.contract.manifest import places, quantities
from shoal.contract.manifest.document import Path, show_path
from shoal.contract.manifest.kinds import Kind
from shoal.contract.manifest.quantities import problem
from shoal.contract.manifest.readers import (
    all_in_order,
    in_order,
    not_reserved,
    only_jobs,
    read_accelerators,
    read_entrypoint,
    read_grace,
    read_pattern,
    read_program,
    read_secrets,
    split_command,
)
from shoal.core import ANY, Fault, PriorityClass, Resources, Share

NAME = r"^[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?$"
ENV_NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
SECRET_NAME = r"^[A-Za-z0-9](?:[A-Za-z0-9_.-]{0,126}[A-Za-z0-9])?$"  # noqa: S105 - the shape of a name
METRIC_NAME = r"^[A-Za-z_][A-Za-z0-9_./-]{0,63}$"
ACCELERATOR_TYPE = r"^[a-z0-9](?:[a-z0-9._-]{0,61}[a-z0-9])?$"
BUNDLE = r"^sha256:[0-9a-f]{64}$"
NO_NUL = r"^[^\x00]*$"

BACKOFF_CAP_S = 60.0


def _json(kind: str | list[str], description: str) -> WithJsonSchema:
    return WithJsonSchema({"type": kind, "description": description})


Text = Annotated[str, StringConstraints(pattern=NO_NUL, max_length=65_536)]
Name = Annotated[str, StringConstraints(pattern=NAME)]
Count = Annotated[int, Field(strict=True, ge=0, le=100_000)]
Duration = Annotated[
    float, BeforeValidator(quantities.read_duration), _json(["string", "number"], quantities.DURATION_HINT)
]
DurationOrZero = Annotated[
    float, BeforeValidator(quantities.read_duration_or_zero), _json(["string", "number"], quantities.DURATION_HINT)
]
Memory = Annotated[int, BeforeValidator(quantities.read_memory), _json(["string", "integer"], quantities.SIZE_HINT)]
RelativePath = Annotated[Text, BeforeValidator(places.read_relative), StringConstraints(max_length=1024)]
Location = Annotated[Text, BeforeValidator(places.read_location), StringConstraints(max_length=4096)]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, serialize_by_alias=True)

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Self:
        """Itself, for nothing in it changes: defaults are shared instead of copied into every manifest."""
        return self


class Placement(StrEnum):
    """How a gang is laid out: on as few nodes as possible, or on as many."""

    PACK = "pack"
    SPREAD = "spread"


class Accelerators(Part):
    """How many accelerators of which type one rank holds: `exclusive`, or as the one `guaranteed` or one of the
    `best-effort` holders of each, with `memory` of each one's memory."""

    type: Annotated[str, StringConstraints(pattern=ACCELERATOR_TYPE)] = ANY
    count: Count = 1
    share: Share = Share.EXCLUSIVE
    memory: Memory | None = None


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
    ] = Accelerators(count=0)
    cpus: Annotated[float, Field(strict=True, ge=0, le=100_000)] | None = None
    memory: Memory | None = None

    def resources(self) -> Resources:
        """As a vector. What is left out is one core, and memory that nobody knows."""
        return Resources(
            {self.accelerators.type: self.accelerators.count},
            cpu_milli=1000 if self.cpus is None else round(self.cpus * 1000),
            memory_bytes=self.memory or 0,
            share=self.accelerators.share,
            device_memory_bytes=self.accelerators.memory or 0,
        )


RankCount = Annotated[int, Field(strict=True, ge=1, le=10_000)]


class RankRange(Part):
    """A gang of any size from `min` to `max` ranks: whoever schedules chooses, and may change it by a checkpoint."""

    min: RankCount = 1
    max: RankCount

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if self.min > self.max:
            raise problem(f"min is {self.min}, which is more than max, {self.max}", "min is at most max")
        return self


COUNT, RANGE = "<count>", "<range>"
"""Names of the two ways to write ranks, for pydantic's errors."""


def _fixed(ranks: int | RankRange) -> int | RankRange:
    """A range of one size is that size: manifests that mean the same are the same."""
    return ranks.max if isinstance(ranks, RankRange) and ranks.min == ranks.max else ranks


Ranks = Annotated[
    Annotated[RankCount, Tag(COUNT)] | Annotated[RankRange, Tag(RANGE)],
    Discriminator(lambda value: RANGE if isinstance(value, dict | RankRange) else COUNT),
    AfterValidator(_fixed),
]


class RestartLimits(Part):
    """How many times a failed job is tried again, by whose fault the failure was."""

    user: Count = 0
    platform: Count = 3
    infrastructure: Count = 5


class Restart(Part):
    """When to try again. Preempted attempts always resume and count against no limit. `always` means after a success
    as well, without limit, the first time at once: such a job ends only when it is asked to."""

    on: Literal["failure", "never", "always"] = "failure"
    limits: RestartLimits = RestartLimits()
    backoff: DurationOrZero = 1.0


class Input(Part):
    """Data to fetch before the command starts: from a location to a path in the run directory."""

    source: Location = Field(alias="from")
    target: RelativePath = Field(alias="to")


class Output(Part):
    """Results to store after the command succeeded: from a path in the run directory to a location."""

    source: RelativePath = Field(alias="from")
    target: Location = Field(alias="to")


class Checkpoint(Part):
    """Where checkpoints are kept; Shoal keeps them in its own home when no directory is named."""

    directory: Location | None = None


MetricName = Annotated[str, StringConstraints(pattern=METRIC_NAME)]
MetricPattern = Annotated[Text, AfterValidator(read_pattern), StringConstraints(max_length=1024)]


class Metrics(Part):
    """Where metrics of an unmodified script come from: patterns on its log, or a file of JSON lines it writes."""

    regex: Annotated[dict[MetricName, MetricPattern], Field(max_length=64), AfterValidator(in_order)] = {}
    jsonl: RelativePath | None = None


EnvName = Annotated[str, StringConstraints(pattern=ENV_NAME), AfterValidator(not_reserved)]


class JobManifest(Part):
    """One job as its tenant describes it. Use `parse_manifest` to make one from text."""

    kind: Annotated[Literal["job"], BeforeValidator(only_jobs)] = "job"
    name: Name
    tenant: Name | None = None
    description: Annotated[Text, StringConstraints(max_length=4096)] = ""
    labels: Annotated[dict[Text, Text], Field(max_length=64), AfterValidator(in_order)] = {}

    command: Annotated[
        Annotated[tuple[Text, ...], Field(max_length=4096), AfterValidator(read_program)] | None,
        BeforeValidator(split_command),
        WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
    ] = None
    entrypoint: Annotated[Text, AfterValidator(read_entrypoint)] | None = None
    files: tuple[Annotated[Text, BeforeValidator(places.read_file)], ...] = Field((), max_length=4096)
    bundle: Annotated[str, StringConstraints(pattern=BUNDLE)] | None = None
    env: Annotated[dict[EnvName, Text], Field(max_length=1024), AfterValidator(in_order)] = {}
    secrets: Annotated[
        dict[EnvName, Annotated[str, StringConstraints(pattern=SECRET_NAME)]],
        BeforeValidator(read_secrets),
        Field(max_length=256),
        AfterValidator(in_order),
    ] = {}

    resources: ResourceRequest = ResourceRequest()
    ranks: Ranks = 1
    priority_class: PriorityClass = PriorityClass.BEST_EFFORT
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = 0
    placement: Placement = Placement.PACK

    restart: Restart = Restart()
    deadline: Annotated[
        float | str | None,
        BeforeValidator(lambda value: None if value is None else quantities.read_deadline(value)),
        WithJsonSchema({"type": ["string", "number"], "description": quantities.DEADLINE_HINT}),
    ] = None
    max_runtime: Duration | None = None
    expected_runtime: Duration | None = None
    grace: Annotated[DurationOrZero, AfterValidator(read_grace)] = 10.0

    inputs: tuple[Input, ...] = Field((), max_length=256)
    outputs: tuple[Output, ...] = Field((), max_length=256)
    checkpoint: Checkpoint = Checkpoint()
    metrics: Metrics = Metrics()
    extensions: Annotated[
        dict[Name, dict[str, JsonValue]],
        Field(max_length=16, description="sections for extensions of the server, by their names"),
        AfterValidator(all_in_order),
    ] = {}

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for path, what, hint in conflicts(self.__dict__):
            raise problem(f"{show_path(path)}: {what}", hint)
        return self

    def argv(self, python: str = "python") -> tuple[str, ...]:
        """The words to execute, never through a shell. `python` runs an entrypoint."""
        if self.command is not None:
            return self.command
        module, _, function = (self.entrypoint or "").partition(":")
        if function:
            return (python, "-c", f"from {module} import {function}; {function}()")
        return (python, "-m", module)

    def resources_per_rank(self) -> Resources:
        """What one rank of the gang holds."""
        return self.resources.resources()

    @property
    def min_ranks(self) -> int:
        """The fewest ranks that the gang may have."""
        return self.ranks if isinstance(self.ranks, int) else self.ranks.min

    @property
    def max_ranks(self) -> int:
        """The most that it may have; equal to `min_ranks` for a gang of fixed size."""
        return self.ranks if isinstance(self.ranks, int) else self.ranks.max

    def deadline_at(self, submitted_at: float) -> float | None:
        """The deadline in Unix seconds, for a job submitted at `submitted_at`."""
        if isinstance(self.deadline, str):
            return datetime.fromisoformat(self.deadline).timestamp()
        return None if self.deadline is None else submitted_at + self.deadline

    def retry_limit(self, fault: Fault) -> float:
        """How many failures of this fault are tried again; infinity for an endless job."""
        if self.endless:
            return math.inf
        return 0 if self.restart.on == "never" else int(getattr(self.restart.limits, fault.value))

    def backoff_s(self, retry: int) -> float:
        """Seconds to wait before the given retry (1 is the first): doubling, at most a minute or the first wait. An
        endless job is tried again at once first."""
        first = self.restart.backoff
        if self.endless:
            if retry == 1:
                return 0.0
            retry -= 1
        return first if first >= BACKOFF_CAP_S else min(BACKOFF_CAP_S, first * 2.0 ** min(retry - 1, 32))

    @property
    def endless(self) -> bool:
        """Whether the job runs until it is asked to end."""
        return self.restart.on == "always"

    def forgives(self, ran_s: float) -> bool:
        """Whether an attempt that ran so long makes up for the failures before it."""
        return self.endless and ran_s >= BACKOFF_CAP_S

    @property
    def grace_s(self) -> float:
        return self.grace

    @property
    def max_runtime_s(self) -> float | None:
        return self.max_runtime

    @property
    def expected_runtime_s(self) -> float | None:
        return self.expected_runtime

    def with_bundle(self, digest: str) -> JobManifest:
        """This manifest after its files were uploaded as the archive `digest` (`sha256:HEX`)."""
        values = self.model_dump(by_alias=True, exclude_none=True)
        return JobManifest.model_validate({**values, "files": (), "bundle": digest})

    def canonical_json(self) -> str:
        """The one JSON text of this manifest; two equal manifests have the same."""
        return self.model_dump_json(exclude_none=True)

    def fingerprint(self) -> str:
        return fingerprint_of(self.canonical_json())


def fingerprint_of(canonical_json: str) -> str:
    """SHA-256 in hexadecimal: two manifests that mean the same have the same."""
    return hashlib.sha256(canonical_json.encode()).hexdigest()


Conflict = tuple[Path, str, str]
"""Fields that contradict each other: which field, what, hint."""


def conflicts(values: dict[str, Any]) -> list[Conflict]:
    """What contradicts itself in a job. `values` may also be an unchecked mapping."""
    found: list[Conflict] = []
    if values.get("command") is not None and values.get("entrypoint") is not None:
        found.append((("entrypoint",), "there is a command already", "keep one of `command` and `entrypoint`"))
    if values.get("command") is None and values.get("entrypoint") is None:
        found.append((("command",), "the job has nothing to run", "give a `command` or an `entrypoint`"))
    return found + shared_conflicts(values, PriorityClass.BEST_EFFORT)


def shared_conflicts(values: dict[str, Any], usual: PriorityClass) -> list[Conflict]:
    """Those between fields that every kind of manifest has; `usual` is the class of one that names none."""
    found: list[Conflict] = _conflicts_of_share(values, usual)
    if values.get("files") and values.get("bundle") is not None:
        found.append((("files",), "the files are bundled already", "keep one of `files` and `bundle`"))
    env, secrets = values.get("env"), read_secrets(values.get("secrets"))
    if isinstance(env, dict) and isinstance(secrets, dict) and env and secrets:
        for name in sorted(str(name) for name in env.keys() & secrets.keys()):
            what = "the name is in `env` as well"
            found.append((("secrets", name), what, "keep it in one of `env` and `secrets`"))
    return found


def _conflicts_of_share(values: dict[str, Any], usual: PriorityClass) -> list[Conflict]:
    asked = _part(_part(values, "resources"), "accelerators")
    share, path = asked.get("share", Share.EXCLUSIVE), ("resources", "accelerators")
    if share not in set(Share):
        return []
    if share == Share.EXCLUSIVE:
        what = "an exclusive accelerator comes with all of its memory"
        return [((*path, "memory"), what, "remove it, or name a `share`")] if asked.get("memory") else []
    found: list[Conflict] = []
    if not asked.get("memory"):
        found.append(((*path, "memory"), "a share needs memory of its own", "say how much, such as 20GiB"))
    if asked.get("count") == 0:
        found.append(((*path, "share"), "there is no accelerator to share", "ask for one"))
    if values.get("priority_class", usual) != share:
        what = f"a {share} share is for {share} work"
        found.append(((*path, "share"), what, f"write `priority_class: {share}`, or share it otherwise"))
    return found


def _part(values: Any, name: str) -> dict[str, Any]:
    """A part of a manifest that may be checked or not."""
    part = values.get(name)
    return part.__dict__ if isinstance(part, Part) else part if isinstance(part, dict) else {}


def manifest_schema() -> dict[str, Any]:
    """The manifest's JSON Schema, for editors and for the API's description."""
    schema = JobManifest.model_json_schema()
    schema["title"] = "Shoal job manifest"
    schema["anyOf"] = [{"required": ["command"]}, {"required": ["entrypoint"]}]
    return schema


JOB = Kind(
    "job",
    JobManifest,
    {
        (): JobManifest,
        ("resources",): ResourceRequest,
        ("resources", "accelerators"): Accelerators,
        ("ranks",): RankRange,
        ("restart",): Restart,
        ("restart", "limits"): RestartLimits,
        ("inputs", "*"): Input,
        ("outputs", "*"): Output,
        ("checkpoint",): Checkpoint,
        ("metrics",): Metrics,
    },
    conflicts,
    manifest_schema,
    "submit it: `shoal submit`, or POST /v1/jobs",
)
