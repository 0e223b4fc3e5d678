"""The server's settings, declared once: the file, the environment, flags and the reference page take them from here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from shoal.admission import Policy, Spread
from shoal.base.discover import find, find_one
from shoal.base.http import Limits as HttpLimits
from shoal.contract.manifest.quantities import read_duration, read_memory, write_duration, write_size
from shoal.control.home.bundles import BundleLimits
from shoal.control.home.retention import Retention
from shoal.control.limits import JobLimits
from shoal.core import Sandbox
from shoal.extension import Extension, Section

DEFAULT_PORT = 7070
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_POLICY = Policy()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return host in LOOPBACK or host.startswith("127.")


def _database(url: str) -> str:
    if not url.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:")):
        raise ValueError("must be sqlite:///PATH or postgresql://USER@HOST/NAME")
    return url


def _engine(name: str) -> str:
    if find_one("engines", name) is None:
        raise ValueError(f"there is no engine {name!r}; installed: {', '.join(find('engines'))}")
    return name


_LEAST_KEPT_S = 7200.0


def _period(value: Any) -> float:
    """What ended a moment ago is still read, and the last use of a bundle is kept to the hour."""
    try:
        seconds = read_duration(int(value) if isinstance(value, str) and value.strip().isdecimal() else value)
    except PydanticCustomError:
        seconds = 0.0
    if seconds < _LEAST_KEPT_S:
        raise ValueError(f"must be a duration of at least 2h, such as 30d, not {value!r}")
    return seconds


def _size(value: Any) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    try:
        return read_memory(value)
    except PydanticCustomError:
        raise ValueError(f"must be a size such as 512MiB or 4GiB, not {value!r}") from None


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


class Group(BaseModel):
    """Settings of the server that stand below one name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_JOBS, _HTTP, _BUNDLES, _KEEP = JobLimits(), HttpLimits(), BundleLimits(), Retention()
Bytes = Annotated[int, BeforeValidator(_size), PlainSerializer(write_size, return_type=str, when_used="json")]


class JobSettings(Group):
    """What a job gets that does not say what it needs, and what no job may exceed."""

    default_cpus: Seconds = Field(_JOBS.default_cpus, description="cores of a job that names none")
    default_memory: Bytes | None = Field(
        None, description="memory of a job that names none, such as 2GiB [a share of the node's memory for each core]"
    )
    max_processes: int = Field(_JOBS.processes, ge=4, le=4_194_304, description="processes and threads of a rank")
    max_open_files: int = Field(_JOBS.open_files, ge=64, le=1_048_576, description="open files of a process")
    max_log: Bytes = Field(_JOBS.log_bytes, description="size of a rank's log, such as 1GiB")
    max_disk: Bytes | None = Field(
        None, description="disk that a job's run directories may take [half of the home's file system]"
    )
    max_files: int | None = Field(
        None, ge=64, description="files that a job may have there [half of what the home's file system has room for]"
    )
    max_unpacked: Bytes = Field(_JOBS.unpacked_bytes, description="what an archive of working files unpacks to")

    def limits(self) -> JobLimits:
        return JobLimits(
            default_cpus=self.default_cpus, default_memory_bytes=self.default_memory, processes=self.max_processes,
            open_files=self.max_open_files, log_bytes=self.max_log, disk_bytes=self.max_disk,
            unpacked_bytes=self.max_unpacked, files=self.max_files,
        )  # fmt: skip


class BundleSettings(Group):
    """Archives of working files."""

    max_upload: Bytes = Field(_BUNDLES.upload_bytes, description="largest archive of working files")
    max_count: int = Field(_BUNDLES.count, ge=1, le=10_000_000, description="archives of a tenant")
    max_size: Bytes = Field(_BUNDLES.stored_bytes, description="size of all archives of a tenant")

    def limits(self, jobs: JobSettings) -> BundleLimits:
        return BundleLimits(self.max_upload, jobs.max_unpacked, self.max_count, self.max_size)


Period = Annotated[float, BeforeValidator(_period), PlainSerializer(write_duration, return_type=str, when_used="json")]


class KeepSettings(Group):
    """How long the garbage collector leaves what is over. A period is at least 2 hours."""

    jobs: Period = Field(_KEEP.jobs_s, description="finished jobs: record, events, metrics, logs, checkpoints; as 30d")
    runs: Period = Field(_KEEP.runs_s, description="run directories of finished jobs")
    events: Period = Field(_KEEP.events_s, description="events of no job and no live service")
    artifacts: Period = Field(_KEEP.artifacts_s, description="outputs of finished jobs that the server keeps")
    bundles: Period = Field(_KEEP.bundles_s, description="archives that nothing live names, after their last use")
    jobs_per_tenant: int = Field(_KEEP.jobs_per_tenant, ge=1, le=100_000_000, description="finished jobs of a tenant")
    runs_size: Bytes | None = Field(None, description="run directories of a tenant's finished jobs together [any size]")

    def retention(self) -> Retention:
        return Retention(
            self.jobs, self.runs, self.events, self.bundles, self.artifacts, self.jobs_per_tenant, self.runs_size
        )


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class HttpSettings(Group):
    """What one client, one address and all clients may take of the API, and of the gateway of services."""

    head_kib: int = Field(_HTTP.head >> 10, ge=1, le=1024, description="size of a request's first line and headers")
    head_s: Positive = Field(_HTTP.head_s, description="seconds for a request's first line and headers")
    body_s: Positive = Field(_HTTP.body_s, description="seconds for a body, to which its size at the slowest rate adds")
    slowest_kib_per_s: int = Field(
        int(_HTTP.slowest_bytes_per_s) >> 10, ge=1, le=1 << 20, description="the slowest rate of a large body"
    )
    idle_s: Positive = Field(_HTTP.idle_s, description="seconds for which an idle connection is kept")
    connections: int = Field(_HTTP.connections, ge=1, le=1 << 20, description="open connections of all clients")
    connections_per_address: int | None = Field(
        None, ge=1, le=1 << 20, description="open connections of one address [half of all]"
    )
    reserved_files: int = Field(
        _HTTP.reserved_files, ge=16, le=1 << 20, description="descriptors that no connection may use"
    )

    def limits(self) -> HttpLimits:
        return HttpLimits(
            head=self.head_kib << 10, head_s=self.head_s, body_s=self.body_s,
            slowest_bytes_per_s=float(self.slowest_kib_per_s << 10), idle_s=self.idle_s, connections=self.connections,
            per_address=self.connections_per_address, reserved_files=self.reserved_files,
        )  # fmt: skip


class TokenLimits(Group):
    """What the holder of one token may ask of the API."""

    requests_per_s: Positive = Field(200.0, description="requests of one token per second, on average")
    burst: int = Field(1000, ge=1, le=1 << 20, description="requests of one token at once")
    questions_per_s: Positive = Field(
        5.0,
        description="explanations, and checks of manifests over 4 KiB, of one token per second, on average",
    )
    question_burst: int = Field(30, ge=1, le=1 << 20, description="explanations and such checks of one token at once")
    streams: int = Field(
        256, ge=1, le=1 << 20, description="requests of one token that wait: event streams, followed logs, long polls"
    )


class TlsSettings(Group):
    """A second door, over TLS, beside that at `host` and `port`. Files that change are read again."""

    port: int | None = Field(None, ge=0, le=65535, description="the API answers over TLS on this port; 0: any free one")
    host: Text = Field("0.0.0.0", description="address of that port")  # noqa: S104 - it is for other machines
    certificate: Path | None = Field(None, description="the certificate with its chain, PEM")
    key: Path | None = Field(None, description="its key, PEM without a password")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        given = [one is not None for one in (self.port, self.certificate, self.key)]
        if any(given) and not all(given):
            raise ValueError("tls needs all of `port`, `certificate` and `key`")
        return self


class ServerSettings(BaseModel):
    """Of the server itself. Each field's description is its help text and its row in the reference."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    db: Annotated[Text, AfterValidator(_database)] | None = Field(
        None, description="database: sqlite:///PATH, or postgresql://USER@HOST/NAME [sqlite:///HOME/shoal.db]"
    )
    host: Text = Field(
        "127.0.0.1", description="address to listen on, without TLS: keep to loopback; for others see `tls`"
    )
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="port to listen on; 0: any free one")
    engine: Annotated[Text, AfterValidator(_engine)] = Field(
        "local", description="where processes run: local, simulated, or the name of an installed one"
    )
    slots: int | None = Field(
        None, ge=1, le=4096, description="CPU slots to offer instead of what the machine has [accelerators, else cores]"
    )
    placement: Annotated[Spread, BeforeValidator(_lower)] = Field(
        _POLICY.placement, description="pack (keep nodes free for gangs) or spread"
    )
    preemption: bool = Field(_POLICY.preemption, description="may guaranteed work displace best-effort work?")
    backfill_s: Seconds = Field(
        _POLICY.backfill_s, description="how long jobs of unknown length may overtake a blocked gang"
    )
    quantum_s: Seconds = Field(_POLICY.quantum_s, description="seconds of an accelerator that a tenant's turn is worth")
    default_runtime_s: Seconds = Field(
        _POLICY.default_runtime_s, description="taken for a job's length while nothing is known of it"
    )
    together: str = Field(
        ",".join(_POLICY.together),
        description="labels of nodes, from the innermost: a gang of several nodes is kept on those of one value "
        "where they hold it; with commas between",
    )
    log_level: Annotated[str, BeforeValidator(_lower), Field(pattern="^(debug|info|warning|error)$")] = Field(
        "info", description="debug, info, warning or error"
    )
    sandbox: Annotated[Sandbox, BeforeValidator(_lower)] = Field(
        Sandbox.NONE, description="the weakest sandbox of any tenant: none, user or bubblewrap"
    )
    jobs: JobSettings = Field(default_factory=lambda: JobSettings.model_validate({}))
    bundles: BundleSettings = Field(default_factory=lambda: BundleSettings.model_validate({}))
    keep: KeepSettings = Field(default_factory=lambda: KeepSettings.model_validate({}))
    http: HttpSettings = Field(default_factory=lambda: HttpSettings.model_validate({}))
    tokens: TokenLimits = Field(default_factory=lambda: TokenLimits.model_validate({}))
    tls: TlsSettings = Field(default_factory=lambda: TlsSettings.model_validate({}))

    def section(self, extension: type[Extension]) -> Section:
        """An extension's own settings."""
        return cast("Section", getattr(self, extension.name))
