"""The one protocol between the control plane and whatever starts processes.

A *gang* is a named set of ranks that starts whole or not at all. Names are chosen by the caller and deterministic
(`job.attempt.phase`), so every call may be repeated after a crash of either side.

An engine works in one of two ways, and its inventory shows which. *Placed*: its nodes are machines, and the caller
names node and devices of every rank. *Delegated*: its nodes are pools (`Node.pooled`), the caller admits to a pool,
and the cluster's own scheduler picks the machines; until it has, a gang is QUEUED.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from socket import socket
from typing import Protocol, runtime_checkable

from shoal.core import NO_AFFINITY, Affinity, Capability, Fault, Node, Reason, Sandbox, Share, ShoalError


@dataclass(frozen=True, slots=True)
class RankSpec:
    """One process of a gang: where it runs and what it is given. `env` adds to the gang's. On a pool, `devices` are
    places: how many of which type it needs, not which."""

    rank: int
    node: str
    devices: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one rank may use beside cores and memory; 0 is no limit.

    `processes` counts threads too. `log_bytes` is what is kept of a rank's log: its beginning and its end. `disk_bytes`
    and `files` are for the whole gang: its run directory, its records and the checkpoints that the engine's home holds
    of it; `unpacked_bytes` for what its bundle unpacks to.
    """

    processes: int = 0
    open_files: int = 0
    log_bytes: int = 0
    disk_bytes: int = 0
    unpacked_bytes: int = 0
    files: int = 0


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When a run must be over, and what is said of one that is not: `after_s` seconds after its start, or at a time.

    The control plane asks it to stop then. A supervisor does so itself a moment later, if it was not asked: no server
    may be running. `name` is then the `limit` of its exit."""

    name: str
    detail: str
    after_s: float | None = None
    at: float | None = None


@dataclass(frozen=True, slots=True)
class Mount:
    """A directory, file or socket of the machine that a gang sees in its sandbox: `source`, an absolute path without
    links, at `target`. That is `source` itself, or lies in the folder `mounts` of the engine's home (`MOUNTS`), where
    no tenant can put anything in its way. Without a sandbox it is seen at `source` only, and nothing makes it
    read-only. Rights stay as they are: the tenant's user must be able to read it."""

    source: Path
    target: Path
    read_only: bool = True


IMAGES_CAPABILITY = "images"
"""The capability of an engine that runs a gang in the image that it names (`Gang.image`)."""

MOUNTS = "mounts"
MOUNTS_CAPABILITY = "mounts"
"""The capability of an engine that shows `Gang.mounts`; one without it is given no such gang."""


class HomeShown(StrEnum):
    """Whether a gang sees the home of the user that it runs as, and may write there."""

    NO = "no"
    READ = "read"
    WRITE = "write"


@dataclass(frozen=True, slots=True)
class Account:
    """A user of the machine as whom a gang runs, as the system knows it: `groups` are all it is in, `gid` the first.
    Files that it makes have the rights that `umask` leaves."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: Path
    shell: str = "/bin/sh"
    umask: int = 0o077


@dataclass(frozen=True, slots=True)
class Gang:
    """Everything an engine needs to start the ranks of one phase of one attempt.

    `argv` is executed directly, never through a shell. `enter` are the words in it that bring a command into the gang's
    software, such as an image: what is started beside a rank is started with them too. `secrets` are extra environment
    variables that must not be written to disk or logs. `run_dir` is the working directory shared by all ranks on a
    node; it is created if missing, and `bundle` (a tar archive) is unpacked into it first, once. `cpu_milli` (a share
    under contention; 0 is the least) and `memory_bytes` (a limit; 0 for none) are per rank; so are the devices, which
    it has as `share` says, with `device_memory_bytes` of each that others use too. A rank that is asked to stop gets
    `grace_s` before it is killed.
    `sandbox` is how far its processes are kept apart from those of other tenants than `tenant`; an engine that cannot
    do that (its capabilities tell) is never given such a gang. Within a tenant, gangs of another `division` are kept
    apart in the same way.
    `checkpoints` is the job's own directory for checkpoints, where the server keeps them: made from the job's id.
    Without `network`, a rank in the sandbox `bubblewrap` reaches nothing but itself.
    `account`, in a sandbox, is the user of the machine as whom its ranks run, instead of one that is the tenant's.
    Then `directory` is where they start, if not in the run directory: it is entered with that user's rights and no
    others. In the sandbox `bubblewrap` that user's home is seen only where `home` says so.
    `mounts` are shown to it by the server's own components; no part of them comes from a tenant.
    `image` is that of a registry, in which an engine whose cluster has containers runs its ranks.
    On a pool, each machine gets `ranks_per_node` of the ranks; 0: as the cluster likes. `affinity` says on which of its
    machines it may run; an engine whose cluster cannot be asked for that refuses the gang.
    Ranks that are not all ready within `launch_timeout_s` are rolled back; a queue of the cluster does not count.
    """

    name: str
    argv: tuple[str, ...]
    ranks: tuple[RankSpec, ...]
    run_dir: Path
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    bundle: Path | None = None
    checkpoints: Path | None = None
    cpu_milli: int = 0
    memory_bytes: int = 0
    share: Share = Share.EXCLUSIVE
    device_memory_bytes: int = 0
    limits: Limits = Limits()
    time_limits: tuple[TimeLimit, ...] = ()
    grace_s: float = 10.0
    launch_timeout_s: float = 60.0
    ranks_per_node: int = 0
    affinity: Affinity = NO_AFFINITY
    tenant: str = ""
    division: str = ""
    sandbox: Sandbox = Sandbox.NONE
    network: bool = True
    mounts: tuple[Mount, ...] = ()
    account: Account | None = None
    directory: Path | None = None
    home: HomeShown = HomeShown.NO
    enter: tuple[str, ...] = ()
    image: str = ""

    def directories(self) -> tuple[Path, ...]:
        """Those that are its job's own: the run directory, and where it has checkpoints."""
        run_dir = self.run_dir.absolute()
        return (run_dir,) if self.checkpoints is None else (run_dir, self.checkpoints.absolute())


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What the server makes an engine from. `home` is its directory; `slots`, where declared, is the number of CPU
    slots to offer instead of what the machines have; `settings` is the engine's own section, where it has one."""

    home: Path
    slots: int | None = None
    settings: object = None


@dataclass(frozen=True, slots=True)
class Inventory:
    """All nodes that an engine has at one time.

    A node or device that is missing is gone, and so is what ran on it: an engine that merely could not look says what
    it said before. `closed` gives, by node, why the engine lets no new work start there (drained or cordoned by its
    own means, not answering); what runs there goes on.
    """

    nodes: tuple[Node, ...]
    closed: Mapping[str, str] = field(default_factory=dict)


class Phase(StrEnum):
    """A gang's or rank's phase. QUEUED: handed over to the cluster, which has not picked machines yet; STARTING: some
    rank is not ready yet; RUNNING: all user processes were let go; ENDED: no process of it is left."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Exit:
    """How a rank ended: `code` if the process exited, `signal` if a signal killed it. Both are None when its end was
    not observed (the supervisor or machine died). Then `lost` is True, and `node_lost` too if its node is gone.
    No process of a lost rank is left, nor comes back with its node. `oom` when the memory limit killed it. `stopped`
    when its end may be an answer to a stop: a signal ended it, or it had found a notice or a signal that it handles.
    One that leaves with its own exit code before the signal, or ignores the signal, ended by itself. `limit` names the
    limit whose excess ended it (`detail` tells). `memory_bytes` is the most memory that the rank had at once, with
    the files that the kernel kept for it; 0 where the engine cannot say it."""

    code: int | None = None
    signal: int | None = None
    lost: bool = False
    node_lost: bool = False
    oom: bool = False
    stopped: bool = False
    detail: str = ""
    limit: str = ""
    memory_bytes: int = field(default=0, compare=False)

    @property
    def ok(self) -> bool:
        """One that was stopped at a limit has not done all it had to, however politely it left."""
        return self.code == 0 and not (self.limit and self.stopped)


@dataclass(frozen=True, slots=True)
class RankStatus:
    rank: int
    phase: Phase
    node: str = ""
    pid: int | None = None
    started_at: float | None = None
    ended_at: float | None = None
    exit: Exit | None = None


@dataclass(frozen=True, slots=True)
class GangStatus:
    """`reason` says why a gang was rolled back or ended when no exit tells, and of one that is QUEUED what the cluster
    says it waits for. `fault` is set where a gang ended before its ranks were let go, and not because it was stopped:
    whose fault that was."""

    name: str
    phase: Phase
    ranks: tuple[RankStatus, ...] = ()
    reason: Reason | None = None
    fault: Fault | None = None

    @property
    def ended(self) -> bool:
        return self.phase is Phase.ENDED


@dataclass(frozen=True, slots=True)
class LogChunk:
    """Bytes of a stream from `offset` to `next_offset`; `ended` when the writer is gone and nothing more will come.
    `offset` may lie behind the one that was asked for, where the middle of a log was removed."""

    data: bytes
    offset: int
    next_offset: int
    ended: bool


LogTimes = tuple[tuple[int, float], ...]
"""(size in bytes, Unix time) of a log, both in order: all before that size was written by then. The last is the size
now and when it was last written to. A second apart where it grew; what is old may have fewer."""


class LaunchFailed(ShoalError):
    """No rank of the gang runs; all that had started was rolled back. `fault` says whose fault it was."""

    code = "launch-failed"

    def __init__(self, what: str, *, fault: Fault, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, where=where, hint=hint)
        self.fault = fault


class Refused(LaunchFailed):
    """No machine of the engine could ever run such a gang."""

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        super().__init__(what, fault=Fault.USER, where=where, hint=hint)


class Engine(Protocol):
    """See the module's docstring. All methods may be repeated; none blocks the event loop for long."""

    name: str

    async def open(self) -> None:
        """Start the engine's own threads and watchers, and find the gangs of earlier lives (see `gangs`)."""
        ...

    async def close(self) -> None:
        """Release the engine's own resources. Running gangs go on."""
        ...

    def capabilities(self) -> tuple[Capability, ...]: ...

    async def inventory(self) -> Inventory:
        """What there is now, looked at anew. Raises Unavailable where nothing can be said."""
        ...

    def nodes(self) -> AsyncIterator[Inventory]:
        """First what there is, then again whole whenever a node comes, goes, changes, closes or opens. A slow caller
        may miss what was true in between, never what is true last. A gang on a node or device that is gone is to be
        stopped by the caller, and ends (`Exit.lost`) as soon as the engine is sure that no process of it is left."""
        ...

    async def launch(self, gang: Gang) -> GangStatus:
        """Start the gang whole, or nothing of it.

        Returns once the ranks were let go (RUNNING, or already ENDED); of a gang for a pool once the cluster has it,
        and the rest arrives through `changes`. A gang of this name that exists already is adopted: if it was past its
        barrier its status is returned, if it was not, the launch is completed or rolled back. Raises LaunchFailed after
        a rollback.
        """
        ...

    async def gangs(self) -> Mapping[str, GangStatus]:
        """All gangs the engine knows, ended ones included until they are forgotten; found anew after a restart."""
        ...

    async def status(self, name: str) -> GangStatus | None: ...

    def changes(self) -> AsyncIterator[GangStatus]:
        """Every change of a gang's status, from `open` on; the last status of a gang is never skipped."""
        ...

    async def notify(self, name: str, notice: Mapping[str, object]) -> None:
        """Leave a notice (for example: checkpoint before this time) where the ranks' training hooks look for it."""
        ...

    async def signal(self, name: str, signum: int) -> None:
        """Send a signal to every rank's main process. Unknown and ended gangs are ignored."""
        ...

    async def stop(self, name: str, *, grace_s: float | None = None, reason: str = "") -> None:
        """Ask all ranks to end; returns at once, the end arrives through `changes`.

        A rank that uses the training hooks finds a notice and has `grace_s` (default: the gang's) to checkpoint and
        leave by itself, then SIGTERM; one that does not gets SIGTERM at once. What is left of the rank's processes
        when the grace is over gets SIGKILL. Unknown and ended gangs are ignored.
        """
        ...

    async def read(self, name: str, rank: int, stream: str, offset: int, limit: int = 65536) -> LogChunk:
        """Bytes of a rank's stream from `offset`; a negative one counts back from the stream's end. Streams are
        `log` (stdout and stderr), `metrics` (JSON lines of the training hooks) and `file:RELATIVE/PATH` inside the run
        directory. Raises NotFound for an unknown gang, rank or escaping path; a stream not yet written is empty. Works
        for forgotten gangs as long as the files exist."""
        ...

    async def log_times(self, name: str, rank: int) -> LogTimes:
        """When a rank's log had which size. Raises NotFound as `read` does."""
        ...

    async def forget(self, name: str) -> None:
        """Drop the record of an ended gang (its logs stay). A gang that still runs is stopped first, at once."""
        ...

    async def erase(self, name: str, *, dry_run: bool = False) -> int:
        """Remove what is left of a forgotten gang, its logs above all; how many bytes that takes. With `dry_run`
        nothing is removed. A gang that is known still, and one that never was, is left alone: 0."""
        ...

    async def sweep(self, known: frozenset[str]) -> tuple[str, ...]:
        """Kill every process that belongs to this engine's home but to no gang in `known`; returns what was ended."""
        ...


@runtime_checkable
class Joinable(Protocol):
    """An engine to which the server can add machines. Those of a cluster join by the cluster's own means instead."""

    async def join(self, node: Node, closed: str) -> None:
        """A machine that is there from now on; where `closed` says why, none starts work there but the one who added
        it."""
        ...

    async def leave(self, name: str) -> None:
        """The machine is gone, with what ran on it. Nothing for one that is not there."""
        ...


@dataclass(frozen=True, slots=True)
class Beside:
    """A process to be started beside a rank's own, with what that has: user, limits, namespaces, directory and
    environment, to which `env` adds. Its command line is `argv`, the gang's `enter`, and `command`: so `argv` runs on
    the machine as it is, and what it starts is in the gang's software. `name` is of small letters, digits and hyphens,
    and new for the rank."""

    name: str
    argv: tuple[str, ...]
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)


@runtime_checkable
class Enterable(Protocol):
    """An engine whose running ranks the server can reach into, on behalf of those whose job it is. Each method raises
    NotFound where the rank does not run."""

    async def start_beside(self, name: str, rank: int, process: Beside) -> None:
        """Ask for a process beside the rank's. It ends with the rank at the latest. Standard input and output are
        closed for it."""
        ...

    async def why_not_beside(self, name: str, rank: int, process: str) -> str:
        """Why a process that was asked for could not be started; empty where nothing is known of that."""
        ...

    async def reach_socket(self, name: str, rank: int, file: str) -> socket:
        """A connection to the Unix socket of this name in the rank's own directory (`SHOAL_RUN`). Raises Conflict where
        no process of the rank listens on it, and NotFound where there is none."""
        ...

    async def reach_port(self, name: str, rank: int, port: int) -> socket:
        """A connection to the TCP port on which a process of the rank listens, in the rank's network. Raises NotFound
        where none does, even if another process does."""
        ...
