"""The server's home directory: which files it has, and which server (if any) lives there now.

Clients read these too, so nothing heavy is imported here.
"""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from shoal.base.files import write_whole
from shoal.base.processes import Process, name_of, open_process, parent_of, start_ticks
from shoal.core import Invalid, ShoalError, Unavailable

SYSTEM_SOCKET = Path("/run/shoal/shoal.sock")
"""Where a server listens that all users of a machine share, as its setting `socket` says."""

PARENT, SERVER = "shoal-parent", "shoal-server"
"""What `ps` calls a server, and the process that starts it again when it is killed."""


def default_home(environ: Mapping[str, str]) -> Path:
    """Where a home is unless a command names another."""
    return Path(environ.get("SHOAL_HOME") or "~/.shoal").expanduser().absolute()


@dataclass(frozen=True, slots=True)
class Home:
    """`HOME/server.json` says where the server is, `admin.token` holds the admin's token."""

    path: Path

    @property
    def server_file(self) -> Path:
        return self.path / "server.json"

    @property
    def token_file(self) -> Path:
        return self.path / "admin.token"

    @property
    def socket_file(self) -> Path:
        """Where the server listens for users of this machine, unless its settings name another path."""
        return self.path / "shoal.sock"

    @property
    def log_file(self) -> Path:
        return self.path / "server.log"

    @property
    def config_file(self) -> Path:
        return self.path / "config.yaml"

    @property
    def serve_folder(self) -> Path:
        """What the gateway and the control plane tell each other."""
        return self.path / "serve"

    @property
    def database(self) -> str:
        return f"sqlite:///{self.path / 'shoal.db'}"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server: its pid and start time (clock ticks since boot; together they name one process for good), and url."""

    pid: int
    started: int
    url: str
    version: str = ""

    def alive(self) -> bool:
        return start_ticks(self.pid) == self.started

    def parent(self) -> Process | None:
        """The process that starts it again when it is killed, if there is one."""
        parent = parent_of(self.pid)
        started = start_ticks(parent) if name_of(parent) == PARENT else None
        return None if started is None else Process(parent, started)

    def lost(self) -> bool:
        """Whether its parent is gone: the kernel is about to end it as well."""
        return name_of(self.pid) == SERVER and self.parent() is None


def prepare_home(path: Path) -> Home:
    """Make the directory, for its owner only. The home is named by its real path: a sandbox hides and shows parts of
    it, and a link on the way would lead around that. Raises Invalid when that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        if path.stat().st_uid == os.getuid():
            path.chmod(0o700)
        if not os.access(path, os.W_OK | os.X_OK):
            raise PermissionError(13, "it is not writable")
    except OSError as error:
        raise Invalid(
            f"the home directory cannot be used: {error.strerror}", where=str(path), hint="give another with --home"
        ) from error
    return Home(path.resolve())


def read_server(home: Home) -> ServerInfo | None:
    """What the last server wrote about itself; it may be gone (`alive`)."""
    try:
        return ServerInfo(**json.loads(home.server_file.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def running_server(home: Home) -> ServerInfo | None:
    info = read_server(home)
    return info if info is not None and info.alive() else None


def await_lost(info: ServerInfo, *, timeout_s: float) -> bool:
    """Wait for the end of a server whose parent is gone; False where it does not end, or is none."""
    if not info.lost():
        return False
    descriptor = open_process(Process(info.pid, info.started))
    if descriptor is None:
        return True
    try:
        return bool(select.select([descriptor], [], [], timeout_s)[0])
    finally:
        os.close(descriptor)


def write_server(home: Home, info: ServerInfo) -> None:
    write_whole(home.server_file, json.dumps(asdict(info)) + "\n")


def stop_server(home: Home, *, timeout_s: float) -> ServerInfo | None:
    """Ask the home's server to leave and wait until it has; None when there is none. Its jobs run on.

    Raises Unavailable when it is still there after the timeout.
    """
    info = running_server(home)
    if info is None:
        return None
    process = info.parent() or Process(info.pid, info.started)
    descriptor = open_process(process)
    if descriptor is None:
        return info
    try:
        signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        ended, _, _ = select.select([descriptor], [], [], timeout_s)
    except PermissionError as error:
        raise ShoalError(f"the server (pid {info.pid}) belongs to another user", hint="ask its owner") from error
    finally:
        os.close(descriptor)
    if not ended:
        raise Unavailable(
            f"the server (pid {info.pid}) is still there after {timeout_s:g} s",
            where=str(home.log_file),
            hint=f"wait, or end it with `kill -9 {process.pid}`: jobs run on and the next server takes them over",
        )
    return info
