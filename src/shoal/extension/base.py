"""The protocol of an extension. Every method has a default that does nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from pydantic import BaseModel, ConfigDict

from shoal.admission import Additions, Blocker, Decision, Explanation, Prefers, Snapshot
from shoal.base.loops import BackgroundLoop
from shoal.contract.events import EventKinds
from shoal.contract.gangs import Move
from shoal.contract.manifest import JobManifest
from shoal.contract.pages import Page
from shoal.contract.records import Event
from shoal.core import NO_AFFINITY, Affinity, Capability, Reason
from shoal.engine import Gang
from shoal.extension.server import LiveJob, Server
from shoal.store import Tables

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric
    from starlette.routing import Host


class Decider(Protocol):
    """Decides which waiting jobs start where and which running ones leave, in the place of admission."""

    def __call__(self, snapshot: Snapshot, prefers: Prefers | None) -> Decision:
        """Called for every decision on the server's event loop, of which it takes at most milliseconds: what takes
        longer is made in a thread, by the next decision. It sees no job that is held. `prefers` is what extensions
        prefer, to be handed to `shoal.admission.decide`. Where it raises, admission decides in its place until it
        works again."""
        ...

    async def explain(self, snapshot: Snapshot, job: LiveJob, where: str) -> Explanation | None:
        """Why this job waits, or runs where it does; None where admission says so. `where` says where a job is that
        does not wait."""
        ...


class Show(Protocol):
    """Says how far something is."""

    def __call__(self, text: str, part: float | None = None) -> None: ...


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
    """Its section of a job's manifest, below `extensions: {NAME: ...}`. When a job is submitted, validators find its
    whole manifest in pydantic's context."""

    tables: ClassVar[Tables | None] = None
    """Its tables in the server's database, which are there whether it is on or off."""

    events: ClassVar[type[EventKinds] | None] = None
    """The kinds of events that it writes, for the reference."""

    paths: ClassVar[Sequence[str]] = ()
    """How the paths of its routes begin: a request for one is told when the extension is off."""

    in_planes: ClassVar[bool] = False
    """Planes have one of their own too, with these settings. It needs jobs, events, the database and what the engine
    says that it can, and knows no machine or device: in a plane, the engine is the pool that all planes share.
    `Server.plane` says which one it is: what it keeps outside of its home must be below a name of that plane's."""

    not_in_planes: ClassVar[str] = "it is of the machines of the shared server"
    """Why planes have none of their own, for those who ask for one there."""

    def __init__(self, server: Server, settings: Any) -> None:
        """`settings` is an instance of the class named above. The server is not open yet."""

    @classmethod
    def off(cls) -> Sequence[Capability]:
        """What the server lacks while the extension is off, and what that costs."""
        return ()

    @classmethod
    def plane_deleted(cls, settings: Any, plane: str) -> None:
        """Remove what the plane of this id kept outside of its home: it is deleted. Called beside the event loop, also
        where nothing is left; what it raises is tried again later. For those that are `in_planes`."""

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:
        """What it can do on this machine, for `shoal doctor`, which needs no server."""
        return ()

    def accept(self, manifest: JobManifest) -> None:
        """Raise Invalid for a job with this extension's section that could not run here, whatever becomes free: where
        the engine cannot do what the section asks for. Asked when a job is submitted or checked, after its section was
        read: answer in microseconds. What it raises is what the submitter is told."""

    # --- life ---

    async def open(self) -> None:
        """The server has reconciled with its database and engine, and decides from now on: read what is remembered.
        Awaited in the order of names, before the API answers; what it raises stops the server."""

    def loops(self) -> Sequence[BackgroundLoop]:
        """What runs beside the server, such as `shoal.base.loops.RunningLoop("renting", self._rent)`.

        Asked after `open`. The server opens them, and closes them before `close`. One that raises is logged, shown by
        `shoal status`, and started again after a wait; the other loops and the server go on."""
        return ()

    def idle(self) -> bool:
        """Whether nothing is left to be done: a plane sleeps only then, and does nothing until a request wakes it.
        Asked each second where it has no jobs: answer in microseconds."""
        return True

    async def close(self) -> None:
        """The loops have ended: close files and connections. Running work goes on. Awaited in the opposite order."""

    # --- sense ---

    def committed(self, events: Iterable[Event]) -> None:
        """These events are on disk."""

    def moved(self, job: LiveJob) -> None:
        """The server knows a committed change of this job now, its submission first: `job` and `attempt` are as they
        were written. It may be over by it; then this is the last that is heard of it."""

    def reported(self, job: LiveJob) -> None:
        """A running job reported progress."""

    def answers(self) -> Mapping[type, object]:
        """What this extension answers: an object by the protocol of each question, such as `{shoal.core.Speeds: self}`.

        Asked once, when all extensions are built. `server.ask` and `server.ask_all` give the objects to the caller,
        in the order of the extensions' names; the protocol says when it is asked and how long an answer may take. An
        answer that raises is taken for none by the server, and logged once."""
        return {}

    # --- decide ---
    #
    # For each decision the server asks `holds` and `keeps_off` of every extension, then one decider (by which `prefers`
    # is asked), then `adjust` of every extension, in the order of their names, on its event loop. It unites what they
    # say; none sees or changes what another says. What raises costs its own part only: it is logged once, shown by
    # `shoal status`, and asked again the next time.

    def decider(self) -> Decider | None:
        """Who decides in place of admission, as the extension is set; None: it leaves that to others. Asked once, when
        the server is built. Two extensions with a decider are an error of the settings."""
        return None

    def holds(self, snapshot: Snapshot) -> Mapping[str, Reason]:
        """The waiting jobs that may not start now, by id, and why: no decider sees them, whatever the others say. A
        fact `starts_at` of the reason (Unix seconds) says when that will be over.

        Asked before every decision and explanation: answer in microseconds, from what is known already. It changes
        nothing. If it raises, what it held before stays held, and a job that came since is not. Call `server.wake` when
        a job is let go: nothing else tells the server."""
        return {}

    def keeps_off(self, snapshot: Snapshot) -> Mapping[str, frozenset[str]]:
        """The nodes on which waiting jobs may not start in this decision, by the job's id: what depends on the time or
        on what else runs, which `affinity` cannot say. On a pool it has no effect: hold the job.

        Asked when and as `holds` is, and as quick. If it raises, what it said before counts, and jobs that came since
        are kept off none."""
        return {}

    def affinity(self, job: LiveJob) -> Affinity:
        """What this extension says of the nodes on which a job may be, beside its manifest: all requirements hold, and
        tolerations and preferences are added. Labels and taints that begin with `shoal/` are the server's own: no
        manifest tolerates them.

        Asked whenever the job comes to wait or to run, and kept until then: answer in microseconds. If it raises, the
        job starts nowhere until it is asked again."""
        return NO_AFFINITY

    def prefers(self, job: LiveJob) -> Mapping[str, float]:
        """What nodes are worth to a job, in seconds of run time that it saves there, by name: where its data lies, or
        what it needs is loaded already. The seconds of all extensions and of its manifest add up. They choose between
        nodes on which the whole job fits, and beat packing; nothing else.

        Asked of each job that starts, within the decision: answer in microseconds, from what is known already. If it
        raises, it prefers none."""
        return {}

    def adjust(self, snapshot: Snapshot, decision: Decision) -> Additions:
        """The starts and preemptions to add to the decision, which is of the jobs that nothing holds; `snapshot` has
        all jobs. Of the held jobs, an extension may start those that it alone holds.

        Asked after every decision: answer in microseconds. What contradicts the decision, a hold of another, the free
        capacity or the tenant's quota is dropped, with a line in the log. If it raises, nothing is added."""
        return Additions()

    def counts_waiting(self) -> bool:
        """Whether its decisions depend on how many equal jobs wait. If not, one more behind another wakes nothing."""
        kind = type(self)
        if kind not in _DECIDES:
            names = ("decider", "holds", "keeps_off", "adjust")
            _DECIDES[kind] = any(getattr(kind, name) is not getattr(Extension, name) for name in names)
        return _DECIDES[kind]

    def decided(self) -> None:
        """The last decision is written down. On the event loop, before the next decision: return soon."""

    async def explain(self, snapshot: Snapshot, job: LiveJob) -> Sequence[Blocker]:
        """What this extension adds to why a job waits, or runs where it does: blocking causes stand in its summary.
        What it holds is named without that; a cause with the code of the hold's reason replaces it, to say what would
        change it.

        Asked on the event loop whenever a person asks: longer work goes to a thread. If it raises, its causes are
        left out."""
        return ()

    # --- act ---

    async def stage(self, job: LiveJob, show: Show) -> None:
        """Bring what the job needs to the nodes of its attempt, before anything of it is launched.

        Awaited on the event loop while the job is STARTING, for each attempt, and again after a restart of the server:
        find what is there already. It may take minutes. `show(text, part)` says how far it is (`part` from 0 to 1), in
        `shoal explain` and `shoal show`. It is cancelled when the job is asked to stop. Extensions stage one after the
        other, in the order of names. What it raises ends the attempt as a failed launch, which is tried again as the
        job's `restart` says: raise `shoal.engine.LaunchFailed` to say whose fault it was. Not for delegated jobs."""

    def inputs(self, job: LiveJob, moves: Sequence[Move]) -> Sequence[Move]:
        """How the job's inputs are fetched: leave out what `stage` brings or a mount shows, or name a nearer source.

        Asked before the first phase of each attempt, once or more, with what the extensions before left: answer in
        microseconds, and the same for the same attempt. If it raises, the moves stay as they were."""
        return moves

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        """Change a gang before it is launched: command, environment, secrets, limits, mounts. That of a job which is
        `delegated` has its command, its places and the server's limits, and nothing else yet. Extensions prepare one
        after the other, in the order of names.

        What only stands before the command is for `enter` and `attend`: there the order of names does not matter to
        what the command sees."""
        return gang

    def enter(self, job: LiveJob, gang: Gang) -> Sequence[str]:
        """The words before a command that bring it into what this extension gives the job's own: a virtual environment,
        an image's root file system. They stand right before the command, and before each one that is started beside
        it later (`shoal exec`), which so sees the same.

        Asked when all have prepared the gang, which is seen with its mounts and environment. The words of all stand in
        the order of names, those of the first outermost. What they run has the job's rights, in its sandbox."""
        return ()

    def attend(self, job: LiveJob, gang: Gang) -> Sequence[str]:
        """The words that start a process of the server's own machine which runs the job's command as its child and
        stays with it, such as one that holds its terminal. They stand before the words of every `enter`, so that the
        process is outside of the job's software, and the command inside. Not for what is started beside it.

        Asked after `enter`; the words of all stand in the order of names, those of the first outermost."""
        return ()

    def mount_roots(self) -> Sequence[Path]:
        """Folders, beside its own in the server's home (`HOME/NAME`), whose contents it may show to jobs by
        `Gang.mounts` in `prepare`, such as one that its settings name. A mount of anything else fails the launch. No
        tenant may be able to write on the way to what is shown."""
        return ()

    def delegated(self, job: LiveJob) -> bool:
        """Whether this extension says in `prepare` what the job runs, and itself keeps what that reports and leaves."""
        return False

    # --- shown ---

    def capabilities(self) -> Sequence[Capability]:
        """For `shoal status`."""
        return ()

    def page(self, tenant: str | None) -> Page | None:
        """What it shows in `shoal status`, reports and web pages, as far as this tenant's people may see it; None of
        `tenant`: to an admin, who sees all. No page: it has nothing for them.

        Asked on the event loop whenever a person looks: answer in milliseconds, from what is known already. If it
        raises, its page is left out."""
        return None

    def metrics(self) -> Iterable[Metric]:
        """Read at every scrape of `/metrics`."""
        return ()

    def routers(self) -> Sequence[APIRouter]:
        """Added to the server's API. Asked once, beside the event loop, when the server is ready already: import the
        routes here, and the start does not wait for what they need."""
        return ()

    def hosts(self) -> Sequence[Host]:
        """Applications that answer under host names of their own, which are looked at before the server's paths."""
        return ()


_DECIDES: dict[type[Extension], bool] = {}
"""Asked at each job that comes to wait: each class is looked at once."""
