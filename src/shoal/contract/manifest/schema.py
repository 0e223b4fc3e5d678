"""Schema of a job's manifest: its fields, their defaults and what each accepts.

The models hold normalised values: durations as seconds, sizes as bytes, shorthands spelled out. The canonical JSON of
a manifest is itself a valid manifest, and parsing it gives an equal one.
"""

from __future__ import annotations

import math
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    JsonValue,
    StringConstraints,
    Tag,
    WithJsonSchema,
    model_validator,
)

from shoal.contract.dependencies import When
from shoal.contract.manifest import quantities
from shoal.contract.manifest.arrays import ARRAY_HINT, Array, parse_array, read_array
from shoal.contract.manifest.conflicts import conflicts
from shoal.contract.manifest.kinds import Kind
from shoal.contract.manifest.nodes import Nodes, PreferredNodes
from shoal.contract.manifest.path import show_path
from shoal.contract.manifest.quantities import problem
from shoal.contract.manifest.readers import (
    all_in_order,
    in_order,
    only_jobs,
    read_after,
    read_entrypoint,
    read_grace,
    read_output,
    read_pattern,
    read_program,
    split_command,
)
from shoal.contract.manifest.shared import (
    Accelerators,
    Bundle,
    Description,
    Env,
    Files,
    Labels,
    Manifest,
    ResourceRequest,
    Secrets,
    TenantField,
)
from shoal.contract.manifest.values import (
    METRIC_NAME,
    NOTHING,
    Count,
    Duration,
    DurationOrZero,
    Location,
    Name,
    Part,
    RelativePath,
    Text,
    json_of,
)
from shoal.core import NO_AFFINITY, Affinity, Fault, PriorityClass, Resources

BACKOFF_CAP_S = 60.0


class Placement(StrEnum):
    """How a gang is laid out: on as few nodes as possible, or on as many."""

    PACK = "pack"
    SPREAD = "spread"


RankCount = Annotated[int, Field(strict=True, ge=1, le=10_000)]


class RankRange(Part):
    """A gang of any size from `min` to `max` ranks: the scheduler chooses, and may change it at a checkpoint."""

    min: RankCount = Field(default=1, description="the fewest ranks; the job waits only while not even these fit")
    max: RankCount = Field(description="the most ranks")

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

    user: Count = Field(default=0, description="tries after a failure of the script")
    platform: Count = Field(default=3, description="tries after a failure of Shoal")
    infrastructure: Count = Field(default=5, description="tries after a failure of the machine")


class Restart(Part):
    """When to try again. Preempted attempts always resume and count against no limit. `always` means after a success
    as well, without limit; the first time there is no wait. Such a job ends only when it is asked to."""

    on: Literal["failure", "never", "always"] = Field(
        default="failure",
        description="`always`: after a success as well, without limit; the first time there is no wait",
    )
    limits: RestartLimits = Field(
        default=RestartLimits(), description="how many failures are tried again, by whose fault they were"
    )
    backoff: DurationOrZero = Field(
        default=1.0, description="the wait before the first retry; it doubles with each, up to a minute"
    )


class Input(Part):
    """Data to fetch before the command starts: from a location to a path in the run directory."""

    source: Location = Field(alias="from", description="a location, from which it is fetched")
    target: RelativePath = Field(alias="to", description="a path in the run directory")
    cached: bool = Field(
        default=False, description="fetch it through the cache that tenants share, where the server has one"
    )


class Output(Part):
    """Results to keep after the command succeeded: a file or directory. A plain path means `from`."""

    source: RelativePath = Field(alias="from", description="a path in the run directory")
    target: Location | None = Field(
        default=None,
        alias="to",
        description="a location, to which it is stored; left out: the server keeps it, for `shoal download`",
    )


class Checkpoint(Part):
    """Where checkpoints are kept; Shoal keeps them in its own home when no directory is named."""

    directory: Location | None = Field(
        default=None, description="where checkpoints are kept; without it Shoal keeps them itself"
    )


class After(Part):
    """A job that must have ended, and how, before this one may start."""

    job: Annotated[Text, StringConstraints(min_length=1, max_length=128)] = Field(
        description="a job's or a job array's id, or its name: the newest of that name"
    )
    when: When = Field(
        default=When.SUCCESS,
        description="its end: `success`, `failure` (any other) or `end`; of an array, that of all its tasks",
    )


MetricName = Annotated[str, StringConstraints(pattern=METRIC_NAME)]
MetricPattern = Annotated[Text, AfterValidator(read_pattern), StringConstraints(max_length=1024)]


class Metrics(Part):
    """Where metrics of an unmodified script come from: patterns on its log, or a file of JSON lines it writes."""

    regex: Annotated[dict[MetricName, MetricPattern], Field(max_length=64), AfterValidator(in_order)] = Field(
        default=NOTHING,
        description="name and RE2 pattern, searched in each line of rank 0's log; its group is the value",
    )
    jsonl: RelativePath | None = Field(
        default=None, description="a file in the run directory to which the script appends JSON objects"
    )


class JobManifest(Manifest):
    """One job as its tenant describes it. Use `parse_manifest` to make one from text."""

    kind: Annotated[Literal["job"], BeforeValidator(only_jobs)] = Field(
        default="job", description="a job runs to completion"
    )
    name: Name = Field(description="lower-case letters, digits and dashes, at most 63")
    tenant: TenantField = None
    description: Description = ""
    labels: Labels = Field(default=NOTHING)

    command: Annotated[
        Annotated[tuple[Text, ...], Field(max_length=4096), AfterValidator(read_program)] | None,
        BeforeValidator(split_command),
        WithJsonSchema({"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}),
    ] = Field(
        default=None,
        description="words, or one line that is split as by a shell; it is executed directly, without a shell",
    )
    entrypoint: Annotated[Text, AfterValidator(read_entrypoint)] | None = Field(
        default=None,
        description="`package.module`, run by `python -m`, or `package.module:function`, called without arguments",
    )
    files: Files = ()
    bundle: Bundle = None
    env: Env = Field(default=NOTHING)
    secrets: Secrets = Field(default=NOTHING)

    resources: ResourceRequest = Field(
        default=ResourceRequest(),
        description="what each rank holds; what is left out is the tenant's default, else the server's",
    )
    ranks: Ranks = Field(
        default=1,
        description="processes of the gang, which start and stop together: a number, or a range {min: 1, max: 4}",
    )
    ranks_per_node: Annotated[int, Field(strict=True, ge=1)] | None = Field(
        default=None,
        description="how many ranks each node gets, of which `ranks` is a multiple; left out: what `placement` gives",
    )
    network: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="false: it reaches nothing but itself; for a job of one rank, in the sandbox `bubblewrap`",
    )
    priority_class: PriorityClass = Field(
        default=PriorityClass.BEST_EFFORT,
        description="`guaranteed` work may take the place of `best-effort` work; a tenant may be denied it",
    )
    priority: Annotated[int, Field(strict=True, ge=-100, le=100)] = Field(
        default=0, description="order among the tenant's own jobs, greater first"
    )
    placement: Placement = Field(
        default=Placement.PACK, description="the gang on as few nodes as possible, or on as many"
    )
    nodes: Nodes | None = Field(
        default=None, description="on which nodes it may run, by their labels and taints; left out: all without taints"
    )

    array: Annotated[str | None, BeforeValidator(read_array), json_of("string", ARRAY_HINT)] = Field(
        default=None, description="a job array: one job for each index, which is in its `SHOAL_ARRAY_INDEX`"
    )
    after: Annotated[
        tuple[Annotated[After, BeforeValidator(read_after)], ...],
        BeforeValidator(lambda value: [value] if isinstance(value, str | dict) else value),
        Field(max_length=256),
    ] = Field(default=(), description="jobs that this one waits for; it is cancelled if they can no longer end so")

    restart: Restart = Field(default=Restart(), description="when to try again after a failure")
    deadline: Annotated[
        float | str | None,
        BeforeValidator(lambda value: None if value is None else quantities.read_deadline(value)),
        WithJsonSchema({"type": ["string", "number"], "description": quantities.DEADLINE_HINT}),
    ] = Field(default=None, description="a job that has not ended by then fails; one that has passed is refused")
    max_runtime: Duration | None = Field(
        default=None, description="the longest the job may run, all its attempts together; waiting does not count"
    )
    expected_runtime: Duration | None = Field(
        default=None, description="the tenant's guess; makes estimated starts better, limits nothing"
    )
    grace: Annotated[DurationOrZero, AfterValidator(read_grace)] = Field(
        default=10.0, description="time to checkpoint and leave between being asked and being killed, at most 10m"
    )

    inputs: tuple[Input, ...] = Field(
        default=(), max_length=256, description="data that is fetched before the command starts"
    )
    outputs: tuple[Annotated[Output, BeforeValidator(read_output)], ...] = Field(
        default=(), max_length=256, description="results that are kept after the command succeeded"
    )
    checkpoint: Checkpoint = Field(default=Checkpoint(), description="where checkpoints are kept")
    metrics: Metrics = Field(
        default=Metrics(), description="where metrics come from; needless for scripts that call `shoal.train.report`"
    )
    environment: dict[str, JsonValue] | None = Field(
        default=None,
        max_length=16,
        description="where its software is: {venv: PATH}, {conda: NAME}, {uv: uv.lock} or {image: IMAGE}",
    )
    artifacts: tuple[JsonValue, ...] | None = Field(
        default=None,
        max_length=64,
        description="files kept when an attempt ends: paths or patterns in its directory, or {path: ..., name: ...}",
    )
    extensions: Annotated[
        dict[Name, dict[str, JsonValue]],
        AfterValidator(all_in_order),
    ] = Field(default=NOTHING, max_length=16, description="sections for extensions of the server, by their names")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for path, what, hint in conflicts(self.__dict__):
            raise problem(f"{show_path(path)}: {what}", hint)
        if self.environment is not None:
            self._move("environment", "environment", self.environment)
        if self.artifacts is not None:
            results = self.extensions.get("results", {})
            self._move("artifacts", "results", {**results, "artifacts": list(self.artifacts)})
        return self

    def _move(self, field: str, extension: str, section: dict[str, JsonValue]) -> None:
        """To where the sections of all extensions are: manifests that mean the same are the same."""
        self.__dict__["extensions"] = all_in_order({**self.extensions, extension: section})
        self.__dict__[field] = None

    def argv(self, python: str = "python") -> tuple[str, ...]:
        """The words to execute, never through a shell. `python` runs an entrypoint."""
        if self.command is not None:
            return self.command
        module, _, function = (self.entrypoint or "").partition(":")
        if function:
            return (python, "-c", f"from {module} import {function}; {function}()")
        return (python, "-m", module)

    @property
    def affinity(self) -> Affinity:
        """What it says of the nodes that it runs on."""
        return NO_AFFINITY if self.nodes is None else self.nodes.affinity

    def resources_per_rank(self) -> Resources:
        """What one rank of the gang holds."""
        return self.resources.resources()

    @property
    def tasks(self) -> Array | None:
        """The tasks of the array; None for a single job."""
        return None if self.array is None else parse_array(self.array)

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
        ("after", "*"): After,
        ("nodes",): Nodes,
        ("nodes", "prefer", "*"): PreferredNodes,
    },
    conflicts,
    manifest_schema,
    "submit it: `shoal submit`, or POST /v1/jobs",
)
