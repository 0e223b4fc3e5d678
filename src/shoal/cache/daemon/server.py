"""The daemon's socket: who asks, what they may ask, and the loops that run beside."""

from __future__ import annotations

import hmac
import json
import os
import pwd
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from shoal.base.files import write_whole
from shoal.cache.daemon.cache import Caller, SharedCache
from shoal.cache.daemon.protocol import ADMIN_TOKEN, LONGEST, NO_ANSWER, SOCKET, remote_token_of, token_of, view_of
from shoal.cache.sources import PROTOCOLS
from shoal.cache.store import folder_name
from shoal.core import Forbidden, Invalid, NotFound, ShoalError

_PEER = struct.Struct("3i")
_CONNECTIONS = 1024


class Daemon:
    """`secret`: tenants prove their names by tokens made of it, and the admin too; without it a process of the daemon's
    own user may call itself as it likes, and the others have the names of their users."""

    def __init__(self, cache: SharedCache, secret: bytes | None = None) -> None:
        self.cache = cache
        self._secret = secret
        self._stop = threading.Event()
        path = cache.store.root / SOCKET
        path.parent.mkdir(mode=0o755, exist_ok=True)
        path.parent.chmod(0o755)
        path.unlink(missing_ok=True)  # of a daemon that is gone: the lock of the store is ours
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                outer._serve(self.connection, self.rfile, self.wfile)

        class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
            daemon_threads = True
            request_queue_size = 256

        folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # a socket's path has 107 bytes
            self._server = Server(f"/proc/self/fd/{folder}/{path.name}", Handler)
        finally:
            os.close(folder)
        path.chmod(0o666)
        if secret is not None:
            write_whole(cache.store.root / ADMIN_TOKEN, token_of(secret, ""))
        self._connections: set[socket.socket] = set()
        self._mutex = threading.Lock()
        self._threads = [
            threading.Thread(target=self._server.serve_forever, args=(0.2,), daemon=True, name="socket"),
            threading.Thread(target=self._rounds, daemon=True, name="rounds"),
            threading.Thread(target=self._ticks, daemon=True, name="ticks"),
            threading.Thread(target=self._check_contents, daemon=True, name="check"),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        """Readers keep their links."""
        self._stop.set()
        self._server.shutdown()
        self._server.server_close()
        with self._mutex:
            for connection in self._connections:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(timeout=10.0)
        self.cache.close()
        with suppress(OSError):  # of a disk that is read-only; nobody listens there
            (self.cache.store.root / SOCKET).unlink(missing_ok=True)

    # --- loops ---

    def _rounds(self) -> None:
        while not self._stop.wait(self.cache.settings.planning.round_s):
            _guarded(self.cache.round)

    def _ticks(self) -> None:
        while not self._stop.wait(1.0):
            _guarded(self.cache.tick)

    def _check_contents(self) -> None:
        for _ in self.cache.store.check_contents():
            if self._stop.is_set():
                return

    # --- requests ---

    def _serve(self, connection: socket.socket, lines: Any, out: Any) -> None:
        with self._mutex:
            if len(self._connections) >= _CONNECTIONS:
                return
            self._connections.add(connection)
        try:
            _, uid, _ = _PEER.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
            session = Session(self.cache, uid, self._secret)
            while line := lines.readline(LONGEST + 1):
                if len(line) > LONGEST or not line.endswith(b"\n"):
                    return
                answer = session.answer(line)
                if answer is not None:
                    out.write(answer)
        except OSError:
            return
        finally:
            with self._mutex:
                self._connections.discard(connection)


class Session:
    """One connection. It has to say `hello` first."""

    def __init__(self, cache: SharedCache, uid: int, secret: bytes | None) -> None:
        self._cache = cache
        self._uid = uid
        self._secret = secret
        self._reader: Caller | None = None
        self._admin = False

    def answer(self, line: bytes) -> bytes | None:
        do = ""
        try:
            request = json.loads(line)
            do = str(request.pop("do"))
            found: dict[str, Any] = {"ok": self._do(do, request)}
        except ShoalError as error:
            found = {"error": {"code": error.code, "what": error.what, "where": error.where, "hint": error.hint}}
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            found = {"error": {"code": "invalid", "what": f"no such request: {type(error).__name__} {error}"}}
        return None if do in NO_ANSWER else json.dumps(found).encode() + b"\n"

    def _do(self, do: str, given: dict[str, Any]) -> Any:
        if do == "hello":
            return self._hello(str(given.get("tenant") or ""), str(given.get("token") or ""))
        if self._reader is None:
            raise Forbidden("say hello first")
        cache, reader = self._cache, self._reader
        if do == "open":
            return cache.open(reader, _text(given, "url"), _mapping(given))
        if do == "chunk":
            number, tag = int(given["number"]), _text(given, "tag")
            return cache.chunk(reader, _text(given, "url"), _mapping(given), number, tag)
        if do == "report":
            return cache.report(reader, given)
        if do == "show":
            return self._show(reader, _text(given, "url"), _mapping(given), _text(given, "view"))
        if do == "declare":
            epochs = given.get("epochs")
            return cache.declare(
                reader, _text(given, "url"), _mapping(given), float(given.get("bytes_per_s", 0.0)),
                None if epochs is None else float(epochs), fetch=bool(given.get("fetch")),
            )  # fmt: skip
        if do == "explain":
            told = cache.explain(_text(given, "url"), None if self._admin else reader.tenant)
            if not self._admin and not cache.planner.reads(reader.tenant, told["set"]):
                raise NotFound("the cache knows no such data set of yours", where=_text(given, "url"))
            return told
        if do == "status":
            return _own(cache.status(), None if self._admin else reader.tenant)
        if not self._admin:
            raise Forbidden("only the cache's admin may do this")
        if do in ("pin", "unpin"):
            return cache.pin(_text(given, "url"), do == "pin")
        if do == "drop":
            return cache.drop(_text(given, "url"))
        if do == "release":
            return cache.store.views.release(_text(given, "tenant"), _text(given, "view"))
        if do == "demands":
            cache.declare_all(given["demands"], given["weights"], given.get("devices", {}))
            return cache.observe(given.get("observed", []))
        if do == "decide":
            cache.round()
            return cache.planner.last.as_json()
        if do == "last":
            return cache.planner.last.as_json()
        raise Invalid(f"there is no request {do!r}")

    def _show(self, reader: Caller, url: str, options: Mapping[str, Any], view: str) -> dict[str, Any]:
        name = view.partition(":")[0]
        if self._secret is None or not hmac.compare_digest(view, view_of(self._secret, reader.tenant, name)):
            raise Forbidden("only a server gives a job its view", where=name)
        return self._cache.inputs.show(reader, url, options, name, token_of(self._secret, reader.tenant))

    def _hello(self, tenant: str, token: str) -> dict[str, Any]:
        """Who asks: by token, or by the user that the kernel tells."""
        own, remote = self._uid in (0, os.geteuid()), False
        user = _user_name(self._uid)
        if self._secret is not None and token:
            remote = hmac.compare_digest(token, remote_token_of(self._secret, tenant))
            if not remote and not hmac.compare_digest(token, token_of(self._secret, tenant)):
                raise Forbidden("the token is not the tenant's", where=tenant)
        elif tenant and tenant != user and (self._secret is not None or not own):
            raise Forbidden(f"user {user} cannot read as tenant {tenant}", hint="a token proves a tenant's name")
        self._admin = own and not remote and (self._secret is None or (bool(token) and not tenant))
        shares = self._secret is not None and self._uid == os.geteuid() and not self._admin
        self._reader = Caller(tenant or user, self._uid, files=not shares and not remote)
        links = self._cache.store.root / "links" / folder_name(self._reader.tenant)
        with suppress(OSError):  # of a disk that is read-only: what is there is there
            self._cache.store.links.folder(self._reader.tenant, self._uid)
        return {"tenant": self._reader.tenant, "links": str(links), "chunk_bytes": self._cache.store.chunk_bytes,
                "protocols": PROTOCOLS}  # fmt: skip


def _own(status: dict[str, Any], tenant: str | None) -> dict[str, Any]:
    """What a tenant may know: its own figures, and of the others only the sums."""
    if tenant is None:
        return status
    rows = [one for one in status["tenants"] if one["tenant"] == tenant]
    decision = {**status["decision"], "tenants": {
        name: one for name, one in status["decision"]["tenants"].items() if name == tenant
    }}  # fmt: skip
    own = {name: [one for one in status[name] if one["tenant"] == tenant] for name in ("views", "waits")}
    return {**status, **own, "tenants": rows, "sets": [], "decision": decision}


def _text(given: Mapping[str, Any], name: str) -> str:
    found = given[name]
    if not isinstance(found, str):
        raise TypeError(f"{name} is no text")
    return found


def _mapping(given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = given.get("options") or {}
    if not isinstance(found, dict):
        raise TypeError("options are no mapping")
    return found


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid-{uid}"


def _guarded(action: Callable[[], None]) -> None:
    """A loop goes on after an error, which is told on stderr."""
    import sys

    try:
        action()
    except Exception as error:
        print(f"{time.strftime('%H:%M:%S')} {type(error).__name__}: {error}", file=sys.stderr, flush=True)
