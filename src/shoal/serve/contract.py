"""Contract of the control plane and the gateway: two files in the home's `serve` directory.

`config.json` says what to serve: only the control plane writes it, the gateway follows it. `status.json` says what is
served: only the gateway writes it, every half second. Both are replaced whole, so a reader never sees half of one, and
either side may die and come back without the other: there is no connection to lose. Tokens are in neither, only their
SHA-256 (`shoal.core.token_digest`).

One gateway at a time serves a directory: it holds a lock on `gateway.lock` (`hold`), which the kernel drops with it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.base.files import write_whole
from shoal.base.http import Limits as HttpLimits
from shoal.base.locks import is_locked, lock_file
from shoal.core import Conflict, Invalid, Money, Reason, Unavailable
from shoal.serve.types import ServiceSpec

if TYPE_CHECKING:
    from pydantic import TypeAdapter

VERSION = 1
"""Of both files. Fields may be added within a version; readers ignore those they do not know."""

CONFIG_FILE, STATUS_FILE, LOCK_FILE = "config.json", "status.json", "gateway.lock"
TOKEN_VARIABLE = "SHOAL_REPLICA_TOKEN"  # noqa: S105 - its name
"""In a replica's environment: the token that says whose replica it is."""

STATUS_EVERY_S = 0.5
_ASKED_S = 0.2
"""For so long another process may hold the lock that only asks whether it is held."""

FREE = Money(0)


# --- what to serve ---

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - what listens on all addresses is reached on loopback


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen; port 0 stands for any free one."""

    host: str = "127.0.0.1"
    port: int = 0

    @property
    def reached_at(self) -> str:
        """HOST:PORT by which a client on this machine reaches it."""
        host = _LOOPBACK.get(self.host, self.host)
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class TenantEntry:
    """A tenant with its share, and the digests of its valid tokens."""

    name: str
    weight: float = 1.0
    token_hashes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deployment:
    """One generation of a service.

    While an update rolls out, a service has several (same `id`, rising `generation`). Replicas of an older one serve
    its `spec` until they end. A ready replica of any generation may take a request for what it has loaded.
    A replica shows the token whose digest is `replica_token_hash`; this identifies its deployment.
    """

    id: str
    generation: int
    spec: ServiceSpec
    replica_token_hash: str


@dataclass(frozen=True, slots=True)
class GatewayConfig:
    """`generation` grows with every change of the file. `socket` is where replicas connect. `slots` are the compute
    slots to share out, `price_per_hour` what all of them together cost. Calls without a token count as those of the
    tenant `anonymous` ("": the operator); None refuses them. `http_limits` hold for HTTP, and the largest body for gRPC
    as well."""

    generation: int
    socket: str
    slots: int
    http: Address = Address()
    grpc: Address = Address()
    price_per_hour: Money = FREE
    tenants: tuple[TenantEntry, ...] = ()
    admin_token_hashes: tuple[str, ...] = ()
    anonymous: str | None = None
    services: tuple[Deployment, ...] = ()
    http_limits: HttpLimits = field(default_factory=HttpLimits)
    version: int = VERSION


# --- what is served ---


@dataclass(frozen=True, slots=True)
class ReplicaStatus:
    """A connected replica, by its `connection_name`. `ready` once it has loaded all of its generation's models;
    until then `reason` says what is missing. `failed` when it cannot load one, for that reason, whatever time it gets.
    """

    name: str
    ready: bool
    reason: str = ""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ReplicaKill:
    """The gateway killed the replica of this `connection_name` at a Unix time, for the reason `why`."""

    name: str
    at: float
    why: str


class ModelState(StrEnum):
    """A version's state, in the words of the protocol's repository index."""

    READY = "READY"
    LOADING = "LOADING"
    UNAVAILABLE = "UNAVAILABLE"


@dataclass(frozen=True, slots=True)
class VersionStatus:
    """A model's version; `reason` says why it is not READY. `word` is the state that its runtime gives it, with the
    reason `said`: "" where the runtime gives none. Where replicas differ, it is that of the first that is not `well`.
    `figures` are its runtime's: of several replicas the sum of counters (`..._total`), and the mean of all others."""

    model: str
    version: str
    state: ModelState
    reason: str = ""
    word: str = ""
    said: str = ""
    well: bool = True
    figures: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """A service, all its generations together. Counts are since the gateway started; quantiles and the rate are of the
    last minute, None where there was no request. `causes` counts the `rejected` by the code of their reason. Goodput is
    the rate within the objective, None without one. `reason` says why no request can be served, None if one can."""

    id: str
    replicas: tuple[ReplicaStatus, ...] = ()
    models: tuple[VersionStatus, ...] = ()
    requests: int = 0
    rejected: int = 0
    failed: int = 0
    rate_per_s: float = 0.0
    p50_s: float | None = None
    p99_s: float | None = None
    reason: Reason | None = None
    causes: dict[str, int] = field(default_factory=dict)
    goodput_per_s: float | None = None

    @property
    def ready(self) -> tuple[str, ...]:
        """The names of the replicas that take requests."""
        return tuple(replica.name for replica in self.replicas if replica.ready)


@dataclass(frozen=True, slots=True)
class UsageTotal:
    """What a tenant used and owes, in all."""

    tenant: str
    device_s: float
    cost: Money


@dataclass(frozen=True, slots=True)
class GatewayStatus:
    """`pid` and `started` (clock ticks since boot) name the process for good; `at` is when this was written, in Unix
    seconds; `generation` is that of the config it follows, `http` and `grpc` where it listens. `killed` are the last
    replicas that were killed, by this gateway or one before it; each is written before the signal is sent."""

    pid: int
    started: int
    at: float
    generation: int
    http: Address
    grpc: Address
    services: tuple[ServiceStatus, ...] = ()
    usage: tuple[UsageTotal, ...] = ()
    killed: tuple[ReplicaKill, ...] = ()
    version: int = VERSION


# --- the files ---


def write_config(folder: Path, config: GatewayConfig) -> None:
    """On disk when this returns. Raises Unavailable."""
    _write(folder / CONFIG_FILE, codec(GatewayConfig).dump_json(config, indent=1), durable=True)


def read_config(folder: Path) -> GatewayConfig | None:
    """None when there is none yet. Raises Invalid for one that cannot be understood."""
    found: GatewayConfig | None = _read(folder / CONFIG_FILE, codec(GatewayConfig))
    return found


def write_status(folder: Path, status: GatewayStatus) -> None:
    """Raises Unavailable."""
    _write(folder / STATUS_FILE, codec(GatewayStatus).dump_json(status), durable=False)


def read_status(folder: Path) -> GatewayStatus | None:
    """None when there is none yet. The gateway that wrote it may be gone: see `held`. Raises Invalid."""
    found: GatewayStatus | None = _read(folder / STATUS_FILE, codec(GatewayStatus))
    return found


@cache
def codec(kind: Any) -> TypeAdapter[Any]:
    """Reads and writes a dataclass as JSON."""
    from pydantic import TypeAdapter  # heavy: only for the processes that need it, which replicas are not

    return TypeAdapter(kind)


def _read(path: Path, codec: TypeAdapter[Any]) -> Any:
    from pydantic import ValidationError

    from shoal.base.validation import problems

    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Invalid(f"the file cannot be read: {error.strerror}", where=str(path)) from error
    try:
        found = codec.validate_json(text)
    except ValidationError as error:
        first = problems(error)[0]
        what = f"{first.where or 'the text'}: {first.what}"
        raise Invalid(what, where=str(path), hint="it is written by Shoal alone: remove it") from None
    if found.version != VERSION:
        raise Invalid(
            f"this is version {found.version} of the file, and {VERSION} is known here", where=str(path),
            hint="gateway and control plane must be of one release: restart both",
        )  # fmt: skip
    return found


def _write(path: Path, text: bytes, *, durable: bool) -> None:
    """Replace the file, for its owner only, whole or not at all."""
    try:
        write_whole(path, text, durable=durable)
    except OSError as error:
        raise Unavailable(f"the file cannot be written: {error.strerror}", where=str(path)) from error


# --- who serves ---


def hold(folder: Path) -> int:
    """Become the directory's gateway, until the process ends or the returned descriptor is closed.

    Raises Conflict when another process is.
    """
    descriptor = lock_file(folder / LOCK_FILE, wait_s=_ASKED_S)
    if descriptor is None:
        raise Conflict("a gateway serves this directory already", where=str(folder / LOCK_FILE))
    return descriptor


def held(folder: Path) -> bool:
    """Whether a gateway serves the directory now."""
    return is_locked(folder / LOCK_FILE)


# --- names and tokens ---


def replica_name(service: str, index: int, generation: int) -> str:
    """`ocr-3-2` for the fourth replica that service `ocr` ever had, started for its second generation. Unique among its
    tenant's."""
    return f"{service}-{index}-{generation}"


def connection_name(tenant: str, replica: str) -> str:
    """`ada/ocr-3-2`: by which the gateway knows the replica, for another tenant may have one of the same name."""
    return f"{tenant}/{replica}"


def parse_replica_name(name: str) -> tuple[str, int, int]:
    """(service, index, generation). Raises ValueError for what is no replica's name."""
    service, index, generation = name.rsplit("-", 2)
    return service, int(index), int(generation)
