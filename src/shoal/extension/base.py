"""What an extension may do. Every method has a default that does nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import BaseModel, ConfigDict

from shoal.admission import Decision, Explanation, Snapshot
from shoal.contract.events import EventKinds
from shoal.contract.records import Event, JobRecord
from shoal.core import Capability, Estimate, Node
from shoal.engine import Gang
from shoal.extension.server import LiveJob, Server
from shoal.store import Tables

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric
    from starlette.routing import Host

Decide = Callable[[Snapshot], Decision]
"""From a snapshot to what starts, stops and waits; pure but for what an extension remembers between rounds."""

Explain = Callable[[], Awaitable[Explanation]]
"""Admission's own answer, worked out when it is called."""


class Section(BaseModel):
    """An extension's section of the settings. An extension is built only when its section is on: when `enabled` says
    so, or, where that is not given, as soon as any of its settings is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = False


class NoSection(Section):
    """For extensions without settings: on wherever they are installed."""

    enabled: bool = True


class Extension:
    """One component in the server. Methods are called on the server's event loop and return soon."""

    name: ClassVar[str]
    """Names its section in the settings and in manifests, and itself in `shoal status`."""

    settings: ClassVar[type[Section]] = NoSection
    manifest: ClassVar[type[BaseModel] | None] = None
    """Its section of a job's manifest, below `extensions: {NAME: ...}`."""

    tables: ClassVar[Tables | None] = None
    """Its tables in the server's database, which are there whether it is on or off."""

    events: ClassVar[type[EventKinds] | None] = None
    """The kinds of events that it writes, for the reference."""

    paths: ClassVar[Sequence[str]] = ()
    """How the paths of its routes begin: a request for one is told when the extension is off."""

    def __init__(self, server: Server, settings: Any) -> None:
        """`settings` is an instance of the class named above. The server is not open yet."""

    @classmethod
    def off(cls) -> Sequence[Capability]:
        """What the server lacks while the extension is off, and what that costs."""
        return ()

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:
        """What it can do on this machine, for `shoal doctor`, which needs no server."""
        return ()

    # --- life ---

    async def open(self) -> None:
        """The server has reconciled with its database and engine: start the loops."""

    async def close(self) -> None:
        """End the loops. Running work goes on."""

    # --- sense ---

    def committed(self, events: Iterable[Event]) -> None:
        """These events are on disk."""

    def moved(self, job: LiveJob) -> None:
        """The server knows a committed change of this job now, its submission first: `job` and `attempt` are as they
        were written. It may be over by it; then this is the last that is heard of it."""

    def reported(self, job: LiveJob) -> None:
        """A running job reported progress."""

    def finish(self, job: LiveJob, progress: Mapping[str, Any]) -> Estimate | None:
        """When a running job ends, in Unix time, from what it reported just now. Asked once for each report, before it
        is kept: what is answered is kept with it as `finish`."""
        return None

    def telemetry(self, job: JobRecord) -> Mapping[str, Any] | None:
        """Where the speed of this job can be read, if this extension knows better than the job's own reports."""
        return None

    def steps_per_s(self, job: str, kind: str, workers: int) -> Estimate | None:
        """How fast a kind of job (`kind_of`) is on a kind of accelerator, where this extension can forecast it."""
        return None

    def sensed(self, job: LiveJob) -> Mapping[str, float]:
        """What sensors say of the resources that a running job uses, by their names. Asked at each report of the job,
        so answer from what is known already; what is not known is left out."""
        return {}

    def bundles(self) -> Iterable[tuple[str, str]]:
        """The (tenant, digest) of working files that this extension needs, beside those that jobs name."""
        return ()

    def offer(self, node: Node) -> Node:
        """What jobs may be given of a node that the engine has."""
        return node

    # --- decide ---

    def decide(self, snapshot: Snapshot, admit: Decide) -> Decision:
        """Change a decision, or make it. `admit` is admission's decision, or that of the extensions before."""
        return admit(snapshot)

    def counts_waiting(self) -> bool:
        """Whether its decisions depend on how many equal jobs wait. If not, one more behind another wakes nothing."""
        return type(self).decide is not Extension.decide

    def decided(self) -> None:
        """The last decision is written down."""

    async def explain(self, snapshot: Snapshot, job: LiveJob, usual: Explain) -> Explanation:
        """Why a job waits or runs where it does; `usual` gives what is said without this extension."""
        return await usual()

    # --- act ---

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        """Change a gang before it is launched: environment, secrets, limits. That of a job which is `delegated` has
        its command, its places and the server's limits, and nothing else yet."""
        return gang

    def delegated(self, job: LiveJob) -> bool:
        """Whether this extension says in `prepare` what the job runs, and itself keeps what that reports and leaves."""
        return False

    def killed(self, job: LiveJob) -> str | None:
        """Why the processes of the job's attempt were killed, if this extension had it done."""
        return None

    # --- shown ---

    def capabilities(self) -> Sequence[Capability]:
        """For `shoal status`."""
        return ()

    def status(self) -> Mapping[str, Any]:
        """For `shoal status`, below the extension's name."""
        return {}

    def metrics(self) -> Iterable[Metric]:
        """Read at every scrape of `/metrics`."""
        return ()

    def routers(self) -> Sequence[APIRouter]:
        """Added to the server's API."""
        return ()

    def hosts(self) -> Sequence[Host]:
        """Applications that answer under host names of their own, which are looked at before the server's paths."""
        return ()
