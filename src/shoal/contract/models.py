"""Models of the API: the one contract that server, SDK and CLI share.

Times are Unix seconds, durations end in `_s`, memory in `_bytes`, cpus in thousandths (`cpu_milli`). Fields may be
added in later versions; readers ignore those they do not know.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from shoal.contract.lifecycle import Desired, ErrorCode, JobState, Outcome, Stop
from shoal.contract.manifest.defaults import MemoryDefault
from shoal.contract.manifest.quantities import MAX_MEMORY_BYTES, MIN_MEMORY_BYTES
from shoal.contract.manifest.values import ACCELERATOR_TYPE, NAME, NO_NUL
from shoal.contract.pages import Figure
from shoal.contract.principal import TokenRole
from shoal.contract.view import Given, View
from shoal.core import Fault, PriorityClass, Sandbox, Share


class ReasonView(View):
    """Why, for programs (`code`, `facts`) and for people (`text`)."""

    code: str
    text: str
    facts: dict[str, Any] = Field(default_factory=dict)


class ResourcesView(View):
    accelerators: dict[str, int] = Field(default_factory=dict)
    cpu_milli: int = 0
    memory_bytes: int = 0
    share: Share = Share.EXCLUSIVE
    device_memory_bytes: int = 0


class JobView(View):
    """A job. `resources` is per rank. `ranks` is the most ranks that it may have and `min_ranks` the fewest; `size` is
    how many its present attempt has, or its last one once it is over. `started_at` is when it first ran, `running_at`
    since when the present attempt does, and `ran_s` is of the attempts that are over. `reason` says why it is where it
    is, `wait_cause` why it had waited. `owner_id` names what an extension has it for, such as the service of a replica.
    A task of a job array has `array_id` and its index."""

    id: str
    tenant: str
    name: str
    state: JobState
    version: int
    desired: Desired
    priority_class: PriorityClass
    priority: int
    resources: ResourcesView
    ranks: int
    min_ranks: int | None = None
    size: int | None = None
    attempt: int
    submitted_at: float
    updated_at: float
    queued_at: float
    started_at: float | None = None
    running_at: float | None = None
    ended_at: float | None = None
    not_before: float = 0.0
    deadline_at: float | None = None
    expected_s: float | None = None
    retries: dict[str, int] = Field(default_factory=dict)
    waited_s: float = 0.0
    ran_s: float = 0.0
    error_code: ErrorCode | None = None
    fault: Fault | None = None
    message: str = ""
    reason: dict[str, Any] | None = None
    wait_cause: dict[str, Any] | None = None
    progress: dict[str, Any] = Field(default_factory=dict)
    idempotency_key: str | None = None
    owner_id: str | None = None
    array_id: str | None = None
    array_index: int | None = None

    @property
    def terminal(self) -> bool:
        return self.state.terminal

    def ran_until(self, now: float) -> float | None:
        """Seconds that all its attempts ran by this Unix time; None where none has."""
        present_s = 0.0 if self.running_at is None else max(0.0, now - self.running_at)
        return None if self.started_at is None else self.ran_s + present_s


class SubmittedView(JobView):
    """A job that was accepted; `warnings` says why it can never start as nodes and quotas are now. Of a job array it is
    the first task, and `array` the whole. `memory_from` says whose default its memory is, where its manifest names
    none."""

    warnings: list[ReasonView] = Field(default_factory=list)
    memory_from: MemoryDefault | None = None
    array: ArrayView | None = None


class ArrayView(View):
    """A job array: how many of its tasks are in which state. `limit` of them may run at once; null: any number."""

    id: str
    tenant: str
    name: str
    indices: str
    tasks: int
    limit: int | None = None
    submitted_at: float
    states: dict[JobState, int] = Field(default_factory=dict)

    @property
    def terminal(self) -> bool:
        return all(state.terminal for state in self.states)


class ArrayChange(View):
    """What was asked of an array's tasks: `changed` are the ids of those that it was asked of."""

    array: ArrayView
    changed: list[str]


class JobsToCancel(Given):
    """`jobs` are ids, not names."""

    jobs: list[Annotated[str, Field(min_length=1, max_length=128, pattern=NO_NUL)]] = Field(
        min_length=1, max_length=1000
    )


class PlacementView(View):
    rank: int
    node: str
    devices: list[str] = Field(default_factory=list)


class AttemptView(View):
    """One try to run a job; `ranks` tells how each of its processes fared."""

    number: int
    epoch: int
    created_at: float
    running_at: float | None = None
    ended_at: float | None = None
    outcome: Outcome | None = None
    error_code: ErrorCode | None = None
    message: str = ""
    stop: Stop | None = None
    stop_at: float | None = None
    stop_cause: str = ""
    placement: list[PlacementView] = Field(default_factory=list)
    ranks: list[dict[str, Any]] = Field(default_factory=list)


class JobDetail(JobView):
    """A job with its manifest and all its attempts, oldest first. `run_dir` is where its newest attempt runs or ran,
    below the server's home."""

    manifest: dict[str, Any] = Field(default_factory=dict)
    attempts: list[AttemptView] = Field(default_factory=list)
    run_dir: str | None = None


class JobList(View):
    """`next` continues the listing (as `before`); absent when there is no more. With `fold`, tasks of job arrays are
    not among the jobs: their arrays are in `arrays`, newest first as well."""

    jobs: list[JobView]
    arrays: list[ArrayView] = Field(default_factory=list)
    next: str | None = None


class EventView(View):
    """One step of history; `seq` is its place in the log and the position of every watch."""

    seq: int
    at: float
    kind: str
    actor: str
    cause: str = ""
    tenant: str | None = None
    job_id: str | None = None
    attempt: int | None = None
    old_state: str | None = None
    new_state: str | None = None
    data: dict[str, Any] = Field(default_factory=dict)
    owner_id: str | None = None


class EventList(View):
    """`next` is the position to ask from next (as `after`), also when the list is empty."""

    events: list[EventView]
    next: int


class MetricView(View):
    """One reported value; `value` is null where the job reported one that is no number."""

    attempt: int
    at: float
    step: int | None = None
    name: str
    value: float | None


class MetricList(View):
    metrics: list[MetricView]


class BlockerView(View):
    """One cause of a wait; `change` says what would have to be different."""

    cause: str
    blocking: bool
    reason: ReasonView
    change: str = ""


class ExplanationView(View):
    """Why a job waits: causes in the order that admission asks. `estimated_start` absent: cannot be said. `estimate`
    says what it rests on, or what is missing for it. In nine of ten cases the start lies between `start_low` and
    `start_high`; where a bound is absent, it cannot be said."""

    job_id: str
    summary: str
    ahead: int
    estimated_start: float | None = None
    estimate: str = ""
    start_low: float | None = None
    start_high: float | None = None
    causes: list[BlockerView] = Field(default_factory=list)


class CheckView(View):
    """The answer of a dry run: what would happen, and warnings."""

    name: str
    tenant: str
    manifest: dict[str, Any]
    remarks: list[ReasonView] = Field(default_factory=list)


class GarbageView(View):
    """What the garbage collector removed, or would: ids of whole jobs, ids of jobs whose run directories (`runs`) or
    kept outputs (`artifacts`) go, digests of bundles, the number of events, and the bytes on disk. `left` are files
    that could not be removed, and why."""

    dry_run: bool
    jobs: list[str]
    runs: list[str]
    bundles: list[str]
    events: int
    freed_bytes: int
    left: list[str] = Field(default_factory=list)
    artifacts: list[str] = Field(default_factory=list)


class FileView(View):
    """A file of a job, by its path in the run directory. `kind`: file, directory, link or other. `kept`: it is of the
    outputs that the server keeps."""

    path: str
    kind: str
    size_bytes: int
    modified_at: float
    kept: bool


class FileList(View):
    """`next` continues the listing (as `after`); absent when there is no more."""

    files: list[FileView]
    next: str | None = None


class BundleView(View):
    bundle: str
    size_bytes: int
    unpacked_bytes: int = 0


Count = Annotated[int, Field(ge=0, le=2**53)]
AcceleratorType = Annotated[str, Field(pattern=ACCELERATOR_TYPE)]


class QuotaView(Given):
    """Upper limits on what a tenant may hold at once; absent or null is unlimited. The defaults are what each rank of a
    job gets that does not say what it needs; absent or null: the server's."""

    accelerators: Count | None = None
    by_type: dict[AcceleratorType, Count] = Field(default_factory=dict, max_length=100)
    cpu_milli: Count | None = None
    memory_bytes: Count | None = None
    running_jobs: Count | None = None
    queued_jobs: Count | None = None
    disk_bytes: Count | None = None
    default_cpu_milli: Count | None = None
    default_memory_bytes: Annotated[int, Field(ge=MIN_MEMORY_BYTES, le=MAX_MEMORY_BYTES)] | None = None


class TenantView(View):
    """A tenant with its limits and what it holds now."""

    name: str
    weight: float
    quota: QuotaView
    max_priority_class: PriorityClass
    sandbox: Sandbox = Sandbox.NONE
    created_at: float
    used: ResourcesView = Field(default_factory=ResourcesView)
    running_jobs: int = 0
    disk_bytes: int = 0
    jobs: dict[str, int] = Field(default_factory=dict)


class TenantList(View):
    tenants: list[TenantView]


Weight = Annotated[float, Field(ge=0.001, le=1e6, allow_inf_nan=False)]


class TenantCreate(Given):
    name: Annotated[str, Field(pattern=NAME, description="lower case letters, digits and inner dashes")]
    weight: Weight = 1.0
    quota: QuotaView = Field(default_factory=QuotaView)
    max_priority_class: PriorityClass = PriorityClass.GUARANTEED
    sandbox: Annotated[
        Sandbox | None, Field(description="left out: `user` where the server can give it, else `none`")
    ] = None


class TenantChange(Given):
    """Only what is given changes; within `quota` too, where null lifts a limit."""

    weight: Weight | None = None
    quota: QuotaView | None = None
    max_priority_class: PriorityClass | None = None
    sandbox: Sandbox | None = None


class TokenCreate(Given):
    label: Annotated[str, Field(max_length=100, pattern=NO_NUL)] = ""
    role: TokenRole = TokenRole.MEMBER


class TokenView(View):
    id: str
    tenant: str | None = None
    label: str = ""
    created_at: float
    revoked_at: float | None = None
    read_only: bool = False


class NewTokenView(TokenView):
    """`token` is shown this once and never again."""

    token: str


class TokenList(View):
    tokens: list[TokenView]


class SecretPut(Given):
    value: Annotated[str, Field(max_length=65536, pattern=NO_NUL, repr=False)]


class SecretView(View):
    name: str
    set_at: float


class SecretList(View):
    """Names only: a stored secret is never shown."""

    tenant: str
    secrets: list[SecretView]


class DeviceView(View):
    """`job_id` and `tenant` say who holds it, as far as the asker may know: alone, or as the guaranteed one of several.
    `best_effort_jobs` are those of the others that the asker may know, `best_effort_seats` how many there may be."""

    id: str
    type: str
    index: int
    memory_bytes: int | None = None
    free: bool = True
    job_id: str | None = None
    tenant: str | None = None
    best_effort_jobs: list[str] = Field(default_factory=list)
    best_effort_seats: int = 0


class MachineView(View):
    """A machine of a pool on which jobs run that the asker may know."""

    name: str
    job_ids: list[str]


class NodeView(View):
    """A node; one that is not `schedulable` takes no new work, and `closed` says why. Where a node is a pool, among
    whose machines its cluster picks, `machines` are those that jobs run on."""

    name: str
    schedulable: bool
    closed: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    taints: list[str] = Field(default_factory=list)
    devices: list[DeviceView] = Field(default_factory=list)
    cpu_milli: int
    free_cpu_milli: int
    memory_bytes: int
    free_memory_bytes: int
    machines: list[MachineView] = Field(default_factory=list)


class DrainGiven(Given):
    because: Annotated[str, Field(max_length=200, pattern=NO_NUL)] = ""


class NodeList(View):
    nodes: list[NodeView]


class StatusView(View):
    """How the server is; further keys depend on its version. It is not `ready` while nothing can be written, and
    `last_write_failed` says why."""

    model_config = ConfigDict(frozen=True, extra="allow")

    version: str
    ready: bool
    last_write_failed: str | None = None
    jobs: dict[str, int] = Field(default_factory=dict)
    components: dict[str, list[Figure]] = Field(default_factory=dict)
    """The key figures of each component that has any."""


class SettingView(View):
    """`changed`: it is not the default. A secret's value is hidden."""

    name: str
    value: Any = None
    changed: bool = False
    text: str = ""


class SettingList(View):
    settings: list[SettingView] = Field(default_factory=list)


class CapabilityView(View):
    """One thing that the machine can or cannot do, and what its absence costs."""

    name: str
    available: bool
    detail: str
    consequence: str = ""


class DoctorView(View):
    """The most important first."""

    jobs_can_start: bool
    capabilities: list[CapabilityView] = Field(default_factory=list)


class ProblemView(View):
    what: str
    where: str | None = None
    hint: str | None = None


class ErrorBody(View):
    """`code` is a stable word, `what` one sentence, `where` the field, file or line, `hint` what to do."""

    code: str
    what: str
    where: str | None = None
    hint: str | None = None
    problems: list[ProblemView] = Field(default_factory=list)


class JobsChange(View):
    """`jobs` are those that are so or will be, as they are now; `refused` says why not, by its id in `where`."""

    jobs: list[JobView]
    refused: list[ErrorBody]


class ErrorView(View):
    error: ErrorBody
