"""A permanent proxy that several users share: a TLS port, a token and limits for each user. Run on the site:
`shoal shell proxy CONFIG`. Each connection has a process of its own, and the process the rights of that user."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import hmac
import json
import os
import pwd
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.core import Invalid
from shoal.shell import proxy
from shoal.shell.executor import Admitted, Refusal
from shoal.shell.source import source
from shoal.shell.tools import offered

HANDSHAKE_S = 10.0
MOST_CONNECTIONS = 256
"""Of all users together, those included that have not said who they are."""
_LIMITS = {
    "memory_bytes": "RLIMIT_AS",
    "cpu_s": "RLIMIT_CPU",
    "processes": "RLIMIT_NPROC",
    "file_bytes": "RLIMIT_FSIZE",
    "seconds": "seconds",
}


@dataclass(frozen=True, slots=True)
class User:
    """`token_sha256`: of the token, in hexadecimal digits. `run_as`: the account of this machine whose rights its
    commands have; else those of the proxy, which then is not root. `connections` and `commands` are those at once,
    commands of each connection; on `cores` the pieces of one
    pipeline work at once; the limits below hold for each command."""

    name: str
    token_sha256: str
    roots: tuple[str, ...]
    writes: bool = False
    run_as: str = ""
    connections: int = 4
    commands: int = 64
    cores: int = 1
    memory_bytes: int | None = None
    cpu_s: int | None = None
    processes: int | None = None
    file_bytes: int | None = None
    seconds: int | None = None

    @property
    def limits(self) -> dict[str, int]:
        told = {limit: getattr(self, name) for name, limit in _LIMITS.items()}
        return {limit: value for limit, value in told.items() if value is not None}


@dataclass(frozen=True, slots=True)
class Config:
    host: str
    port: int
    certificate: Path
    key: Path
    users: Mapping[str, User] = field(default_factory=dict)


def read_config(path: Path) -> Config:
    """Relative paths are taken from its folder. Raises Invalid."""
    try:
        told = json.loads(path.read_text())
        host, _, port = told["listen"].rpartition(":")
        users = {name: User(name, **{**one, "roots": tuple(one["roots"])}) for name, one in told["users"].items()}
        found = Config(host, int(port), path.parent / told["certificate"], path.parent / told["key"], users)
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise Invalid(f"the proxy's settings cannot be read: {error!r}", where=str(path)) from error
    for one in users.values():
        if not all(root.startswith("/") for root in one.roots) or len(one.token_sha256) != 64:
            raise Invalid("a user has absolute roots, and a token's SHA-256 in 64 digits", where=f"{path}: {one.name}")
        where, is_root = f"{path}: {one.name}.run_as", os.geteuid() == 0
        if one.run_as and not is_root:
            raise Invalid("only root can run commands with the rights of others", where=where)
        if is_root and not one.run_as:
            hint = 'name an account ("root" where that is meant), or run the proxy as an account of its own'
            raise Invalid("the commands of this user would have root's rights", where=where, hint=hint)
        _account(one, path)
    return found


def _account(user: User, path: Path) -> None:
    try:
        if user.run_as:
            pwd.getpwnam(user.run_as)
    except KeyError:
        raise Invalid(f"there is no account {user.run_as!r}", where=f"{path}: {user.name}.run_as") from None


class SharedProxy:
    """Listens from its making on. `log` gets one line for each user that comes, each refusal, and each end."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.minimum_version = ssl.TLSVersion.TLSv1_3
        try:
            self._context.load_cert_chain(config.certificate, config.key)
            self._listener = socket.create_server((config.host, config.port))
        except OSError as error:
            raise Invalid(f"the proxy cannot listen: {error}", where=f"{config.host}:{config.port}") from error
        self._slots = tempfile.TemporaryDirectory(prefix="shoal-proxy-")
        self._children = set[int]()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def serve(self) -> None:
        """Until it is interrupted; the connections end with it."""
        proxy.SOURCE = source()
        parent = os.getpid()
        try:
            while True:
                link, address = self._listener.accept()
                self._reap()
                if len(self._children) >= MOST_CONNECTIONS:
                    log(f"{address[0]}: refused: {MOST_CONNECTIONS} connections are open")
                elif pid := os.fork():
                    self._children.add(pid)
                else:
                    self._in_child(link, address[0])
                link.close()
        finally:
            if os.getpid() == parent:
                for pid in self._children:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                self._listener.close()
                self._slots.cleanup()

    def _reap(self) -> None:
        for pid in list(self._children):
            if os.waitpid(pid, os.WNOHANG)[0]:
                self._children.discard(pid)

    def _in_child(self, link: socket.socket, address: str) -> None:
        """Never returns."""
        try:
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            self._listener.close()
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            link.settimeout(HANDSHAKE_S)
            secure = self._context.wrap_socket(link, server_side=True)
            secure.sendall(proxy.GREETING)
            proxy.Proxy(TlsLink(secure), admit=lambda hello: self._admit(hello, address)).serve()
            log(f"{address}: the connection ended")
        except BaseException as error:
            log(f"{address}: the connection ended: {error!r}")
        finally:
            os._exit(0)

    # --- who may do what ---

    def _admit(self, hello: dict[str, Any], address: str) -> Admitted:
        user = self._user(str(hello.get("token", "")))
        if user is None:
            log(f"{address}: refused: an unknown token")
            raise Refusal("the token is not known to this proxy")
        for root in hello["sites"].values():
            real = Path(root).resolve()
            if not any(real.is_relative_to(Path(allowed).resolve()) for allowed in user.roots):
                log(f"user {user.name} at {address}: refused: {root}")
                raise Refusal(f"user {user.name} may not use {root}")
        if not self._take_slot(user):
            log(f"user {user.name} at {address}: refused: {user.connections} connections")
            raise Refusal(f"user {user.name} has {user.connections} connections already")
        if user.run_as:
            account = pwd.getpwnam(user.run_as)
            os.initgroups(user.run_as, account.pw_gid)
            os.setgid(account.pw_gid)
            os.setuid(account.pw_uid)
        log(f"user {user.name} at {address}: connected")
        told = {
            **hello, "limits": {"RLIMIT_CORE": 0, **user.limits}, "cores": user.cores,
            "tools": [one for one in hello["tools"] if one in offered()],
        }  # fmt: skip
        return Admitted(told, user.commands, user.writes, lambda why: log(f"user {user.name}: refused: {why}"))

    def _user(self, token: str) -> User | None:
        told = hashlib.sha256(token.encode("utf-8", "replace")).hexdigest()
        found = [one for one in self.config.users.values() if hmac.compare_digest(one.token_sha256.lower(), told)]
        return found[0] if found else None

    def _take_slot(self, user: User) -> bool:
        """Kept until this process ends."""
        name = hashlib.sha256(user.name.encode()).hexdigest()
        for number in range(user.connections):
            fd = os.open(Path(self._slots.name) / f"{name}-{number}", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                os.close(fd)
            else:
                return True
        return False


class TlsLink:
    """A client at the other end of a TLS connection. The writer is a second number of the same socket, so that both can
    be waited for apart."""

    def __init__(self, secure: ssl.SSLSocket) -> None:
        secure.setblocking(False)
        self._secure = secure
        self.reader = secure.fileno()
        self.writer = os.dup(self.reader)

    def receive(self) -> bytes:
        parts = bytearray()
        try:
            while len(parts) < proxy.CHUNK and (part := self._secure.recv(proxy.CHUNK)):
                parts += part
            while self._secure.pending():
                parts += self._secure.recv(proxy.CHUNK)
        except ssl.SSLWantReadError:
            if not parts:
                raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from error
        return bytes(parts)

    def send(self, data: bytes) -> int:
        try:
            return self._secure.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            raise BlockingIOError from None
        except ssl.SSLError as error:
            raise ConnectionError(str(error)) from error


def log(text: str) -> None:
    print(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}", file=sys.stderr, flush=True)
