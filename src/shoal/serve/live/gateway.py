"""The gateway as the control plane sees it: one process per home, told what to serve by a file, looked at by another.

It outlives the server, like the replicas behind it: the next server finds it by its lock. It is started when the first
service is there, again when it died, and asked to end when the last service has gone.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import structlog

from shoal.base import extras
from shoal.base.ends import last_line
from shoal.base.processes import Process, send, start_detached, start_ticks
from shoal.core import Clock, Invalid, SystemClock, Unavailable
from shoal.serve import contract
from shoal.serve.contract import Address, Deployment, GatewayConfig, GatewayStatus, TenantEntry
from shoal.serve.sockets import sandboxed

log = structlog.get_logger("shoal.gateway")

_NEEDED = ("numpy", "onnxruntime", "grpc")
_SOCKET_PATH_BYTES = 100
"""The kernel takes 107 for a socket's path."""
_STALE_S = 5.0
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 10.0
_STEADY_S = 30.0
"""A gateway that lived so long is started again at once."""
_FAILING_ENDS = 3
_KILL_AFTER_S = 15.0


@dataclass(frozen=True, slots=True)
class GatewayDesired:
    """What the gateway is to know."""

    tenants: tuple[TenantEntry, ...] = ()
    admin_token_hashes: tuple[str, ...] = ()
    services: tuple[Deployment, ...] = ()


@dataclass(frozen=True, slots=True)
class ObservedGateway:
    """`status` is what a living gateway said within the last seconds; without one, `why` says what is the matter.
    `failing` when it does not stay up: it is tried on, but there is little hope."""

    status: GatewayStatus | None
    why: str = ""
    failing: bool = False


Start = Callable[[Sequence[str], Path], "subprocess.Popen[bytes]"]


class LocalGateway:
    """The gateway of this machine. `settings` say where it listens (port 0: any free one, the same again for the same
    home), and all else that does not change while it runs. `start` starts a process detached, its output appended to a
    file."""

    def __init__(
        self,
        folder: Path,
        settings: GatewayConfig,
        *,
        clock: Clock | None = None,
        start: Start | None = None,
    ) -> None:
        self._folder = folder
        self._settings = settings
        self._clock = clock or SystemClock()
        self._start = start or partial(start_detached, what="gateway")
        self._child: subprocess.Popen[bytes] | None = None
        self._config: GatewayConfig | None = None
        self._status: GatewayStatus | None = None
        self._seen: tuple[int, int] = (0, 0)
        self._started_at = 0.0
        self._start_at = 0.0
        self._wait_s = 0.0
        self._ends = 0
        self._ended = ""
        self._asked_at: float | None = None

    @property
    def log_file(self) -> Path:
        return self._folder / "gateway.log"

    @property
    def socket(self) -> str:
        """Where replicas connect."""
        path = str(self._folder.absolute() / "replicas.sock")
        if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES:
            return path
        name = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
        return f"/tmp/shoal-{os.getuid()}/{name}.sock"  # noqa: S108 - a private directory, see `_make_folders`

    @property
    def sandboxed(self) -> Path:
        """Where replicas in a sandbox connect, in a folder that holds nothing else."""
        return sandboxed(self._folder.absolute())

    def require(self) -> None:
        """Raises Unavailable where nothing can be served."""
        missing = [name for name in _NEEDED if find_spec(name) is None]
        if missing:
            raise Unavailable(
                f"serving needs packages that are not installed here: {', '.join(missing)}",
                hint=f"{extras.install('serve')}, then restart the server",
            )

    def serve(self, desired: GatewayDesired) -> None:
        """See that a gateway runs and knows this. Returns at once; may be repeated. Raises Unavailable."""
        self._asked_at = None
        self._make_folders()
        self._tell(desired)
        if contract.held(self._folder):
            self._ended = ""
            return
        if self._child is not None and self._child.poll() is None:
            return
        now = self._clock.monotonic()
        if self._child is not None:
            self._on_exit(self._child, now)
        if now >= self._start_at:
            self._child = self._start(self._command(), self.log_file)
            self._started_at = now
            log.info("gateway started", pid=self._child.pid)

    def rest(self) -> bool:
        """Nothing is to be served any more: see that it ends. True once it has."""
        if self._child is not None and self._child.poll() is not None:
            self._child = None
        if not self._folder.is_dir() or not contract.held(self._folder):
            return self._child is None
        self._tell(GatewayDesired())
        status, now = self._read_status(), self._clock.monotonic()
        if status is None:
            return False
        if self._asked_at is None:
            self._asked_at = now
            send(Process(status.pid, status.started), signal.SIGTERM)
        elif now - self._asked_at > _KILL_AFTER_S:
            send(Process(status.pid, status.started), signal.SIGKILL)
        return False

    def observe(self) -> ObservedGateway:
        if not self._folder.is_dir() or not contract.held(self._folder):
            starting = self._child is not None and self._child.poll() is None
            why = self._ended or ("the gateway is starting" if starting else "the gateway does not run yet")
            return ObservedGateway(None, why, failing=self._ends >= _FAILING_ENDS)
        try:
            status = self._read_status()
        except Invalid as error:
            return ObservedGateway(None, f"what the gateway says cannot be understood: {error}")
        if status is None or start_ticks(status.pid) != status.started:
            return ObservedGateway(None, "the gateway is starting")
        age = self._clock.now() - status.at
        if age > _STALE_S:
            return ObservedGateway(None, f"the gateway (pid {status.pid}) has said nothing for {age:.0f} s")
        return ObservedGateway(status)

    def killed(self, name: str, since: float) -> str | None:
        """Why the gateway killed the replica of this `connection_name` after that time, if it did."""
        status = self._read_status_gently()
        found = [kill.why for kill in status.killed if kill.name == name and kill.at >= since] if status else []
        return found[-1] if found else None

    # --- files ---

    def _make_folders(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            place = Path(self.socket).parent
            place.mkdir(exist_ok=True, mode=0o700)
            found = place.stat()
            shown = sandboxed(self._folder).parent
            shown.mkdir(exist_ok=True)
            shown.chmod(0o711)
        except OSError as error:
            raise Unavailable(f"the gateway has no place: {error.strerror}", where=str(self._folder)) from error
        if found.st_uid != os.getuid() or found.st_mode & 0o077:
            raise Unavailable("others may enter the directory of the replicas' socket", where=str(place))

    def _tell(self, desired: GatewayDesired) -> None:
        if self._config is None:
            try:
                self._config = contract.read_config(self._folder)
            except Invalid as error:
                log.warning("the gateway's config is written anew", error=str(error))
        known = self._config
        settings, status = self._settings, self._read_status_gently()
        config = replace(
            settings,
            generation=known.generation if known else 0,
            socket=self.socket,
            http=_kept(settings.http, status.http if status else known.http if known else None),
            grpc=_kept(settings.grpc, status.grpc if status else known.grpc if known else None),
            tenants=desired.tenants,
            admin_token_hashes=desired.admin_token_hashes,
            services=desired.services,
        )
        if config != known:
            config = replace(config, generation=config.generation + 1)
            contract.write_config(self._folder, config)
            self._config = config

    def _read_status(self) -> GatewayStatus | None:
        """Read again only when it was written again."""
        try:
            found = (self._folder / contract.STATUS_FILE).stat()
        except OSError:
            return None
        if (found.st_ino, found.st_mtime_ns) != self._seen:
            self._status = contract.read_status(self._folder)
            self._seen = (found.st_ino, found.st_mtime_ns)
        return self._status

    def _read_status_gently(self) -> GatewayStatus | None:
        try:
            return self._read_status()
        except Invalid:
            return None

    # --- the process ---

    def _command(self) -> tuple[str, ...]:
        return (sys.executable, "-m", "shoal.serve.gateway", "--home-dir", str(self._folder))

    def _on_exit(self, child: subprocess.Popen[bytes], now: float) -> None:
        """It ended: wait before the next start, longer each time unless it had lived long."""
        self._child = None
        steady = now - self._started_at > _STEADY_S
        self._ends = 1 if steady else self._ends + 1
        self._wait_s = 0.0 if steady else min(_LONGEST_WAIT_S, self._wait_s * 2 or _FIRST_WAIT_S)
        self._start_at = now + self._wait_s
        said = last_line(self.log_file)
        self._ended = f"the gateway ended with code {child.returncode}{': ' + said if said else ''}"
        log.warning("gateway ended", code=child.returncode, said=said, wait_s=self._wait_s)


def _kept(wanted: Address, known: Address | None) -> Address:
    """Where any free port will do, the one it had before: clients find it again."""
    return known if wanted.port == 0 and known is not None and known.host == wanted.host else wanted
