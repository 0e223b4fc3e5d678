"""An upgraded connection to the server: HTTP up to its answer, and bytes from there on."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import SplitResult, urlencode, urlsplit

from shoal.core import Conflict, Forbidden, Invalid, NotFound, Overloaded, ShoalError, Unavailable

_CONNECT_S = 5.0
_ANSWER_S = 75.0
_MOST_HEAD, _MOST_BODY = 64 << 10, 1 << 20
_KINDS: dict[int, type[ShoalError]] = {
    401: Forbidden, 403: Forbidden, 404: NotFound, 409: Conflict, 422: Invalid, 429: Overloaded, 503: Unavailable,
}  # fmt: skip


class Target(Protocol):
    """Where the server is, and the token that opens it."""

    @property
    def url(self) -> str: ...
    @property
    def token(self) -> str | None: ...
    @property
    def socket(self) -> Path | None: ...


class Unreachable(ShoalError):
    """No server answers, or the connection broke before it had: worth another try."""

    code = "no-server"


class Connection:
    """Connected from the beginning. `begun` are bytes that came with the answer's head. `door`: the connection to the
    server, where it gave another one; it says nothing, and its end is the end of both."""

    def __init__(self, made: socket.socket, begun: bytes, door: socket.socket | None = None) -> None:
        self.socket, self.door = made, door
        self.begun = begun
        self.going = bytearray()
        """What was given to `send`, and the other side does not take now."""
        self.hidden: Callable[[], int] = getattr(made, "pending", int)
        """How many bytes are here that `poll` does not see: of TLS."""
        if door is not None:
            made.setblocking(True)  # it was made by a server, which waits for nothing

    def fileno(self) -> int:
        return self.socket.fileno()

    def receive(self, most: int) -> bytes:
        """Empty at the end. Raises OSError."""
        if self.begun:
            found, self.begun = self.begun[:most], self.begun[most:]
            return found
        return self.socket.recv(most)

    def send(self, data: bytes = b"") -> None:
        """All of it, through a server, which holds what an agent does not take. To an agent itself as much as goes:
        waiting would keep its client from reading, for which the agent may wait. Raises OSError."""
        if self.door is None:
            self.socket.sendall(data)
            return
        self.going += data
        try:
            while self.going:
                del self.going[: self.socket.send(self.going, socket.MSG_DONTWAIT)]
        except BlockingIOError:
            pass

    def end(self) -> None:
        """Nothing more is sent."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for one in (self.socket, self.door):
            if one is not None:
                with contextlib.suppress(OSError):
                    one.close()


def upgrade(target: Target, path: str, protocol: str, params: dict[str, object] | None = None) -> Connection:
    """A server on this machine may give a connection to the session itself. Raises Unreachable, and what the server
    answers instead."""
    direct = f"{protocol}-direct"
    offered = protocol if target.socket is None else f"{direct}, {protocol}"
    made, status, headers, rest, given = _post(target, path, params, ["Connection: Upgrade", f"Upgrade: {offered}"])
    try:
        if status != 101:
            raise _error(status, _read_body(made, headers, rest))
        made.settimeout(None)
        if headers.get("upgrade") != direct:
            return Connection(made, rest)
        if given is None:
            raise OSError("no descriptor came: this process may have too many")
        return Connection(given, rest, made)
    except OSError as error:
        made.close()
        raise Unreachable(f"the connection to {target.url} broke: {error}") from None
    except ShoalError:
        made.close()
        raise


def post(
    target: Target, path: str, body: bytes, headers: list[str], params: dict[str, object] | None = None
) -> Any:  # fmt: skip
    """What the server answers, which is read as JSON. Raises Unreachable, and what the server answers instead."""
    made, status, found, rest, _ = _post(target, path, params, ["Connection: close", *headers], body)
    with made:
        try:
            answer = _read_body(made, found, rest)
            if not 200 <= status < 300:
                raise _error(status, answer)
            return json.loads(answer)
        except (OSError, ValueError) as error:
            raise Unreachable(f"the connection to {target.url} broke: {error}") from None


def _post(
    target: Target, path: str, params: dict[str, object] | None, more: list[str], body: bytes = b""
) -> tuple[socket.socket, int, dict[str, str], bytes, socket.socket | None]:
    """A connection, the head of its answer, and what came behind and beside that. Raises Unreachable."""
    split = urlsplit(target.url)
    if split.scheme not in ("http", "https") or not split.hostname:
        raise Invalid(f"{target.url!r} is no address", where="SHOAL_URL", hint="such as http://127.0.0.1:7070")
    try:
        made = _connect_here(target.socket) if target.socket is not None else _connect(split)
        made.settimeout(_ANSWER_S)
    except OSError as error:
        raise Unreachable(f"no server answers at {target.url}: {error}") from None
    try:
        query = f"?{urlencode(params)}" if params else ""
        host = split.netloc.rpartition("@")[2]
        lines = [
            f"POST {split.path.rstrip('/')}{path}{query} HTTP/1.1", f"Host: {host}", *more,
            f"Content-Length: {len(body)}", "Accept: application/json", "User-Agent: shoal",
        ]  # fmt: skip
        if target.token:
            if not (target.token.isascii() and target.token.isprintable()):
                raise Invalid("this is no token: it has characters that no token has", where="SHOAL_TOKEN")
            lines.append(f"Authorization: Bearer {target.token}")
        made.sendall("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
        head, rest, given = _read_head(made)
        return made, *_parse(head), rest, given
    except OSError as error:
        made.close()
        raise Unreachable(f"the connection to {target.url} broke: {error}") from None
    except ShoalError:
        made.close()
        raise


def _connect(split: SplitResult) -> socket.socket:
    secure = split.scheme == "https"
    made = socket.create_connection((split.hostname, split.port or (443 if secure else 80)), timeout=_CONNECT_S)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not secure:
        return made
    import ssl  # most servers are reached without: it takes as long to load as all of this

    context = ssl.create_default_context(cafile=os.environ.get("SHOAL_CA_FILE") or None)
    return context.wrap_socket(made, server_hostname=split.hostname)


def _connect_here(path: Path) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(_CONNECT_S)
        made.connect(str(path))
    except OSError:
        made.close()
        raise
    return made


def _read_head(made: socket.socket) -> tuple[bytes, bytes, socket.socket | None]:
    data, given = b"", None
    while b"\r\n\r\n" not in data:
        if made.family == socket.AF_UNIX:
            part, found, _, _ = socket.recv_fds(made, 16 << 10, 1, socket.MSG_CMSG_CLOEXEC)
            given = socket.socket(fileno=found[0]) if found else given
        else:
            part = made.recv(16 << 10)
        if not part or len(data) > _MOST_HEAD:
            raise Unreachable("the connection broke before there was an answer")
        data += part
    head, _, rest = data.partition(b"\r\n\r\n")
    return head, rest, given


def _parse(head: bytes) -> tuple[int, dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    words = first.split(" ", 2)
    if len(words) < 2 or not words[0].startswith("HTTP/1.") or not words[1].isdigit():
        raise ShoalError("what answers is no server of Shoal", hint="check SHOAL_URL")
    pairs = (line.partition(":") for line in lines)
    return int(words[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _read_body(made: socket.socket, headers: dict[str, str], rest: bytes) -> bytes:
    length = headers.get("content-length", "")
    wanted = min(int(length), _MOST_BODY) if length.isdecimal() and len(length) < 10 else 0
    while len(rest) < wanted and (part := made.recv(16 << 10)):
        rest += part
    return rest[:wanted]


def _error(status: int, body: bytes) -> ShoalError:
    try:
        told = json.loads(body)["error"]
        what, where, hint = str(told["what"]), told.get("where"), told.get("hint")
    except (ValueError, KeyError, TypeError):
        if status in (404, 405, 426):
            return Unavailable("this server has no sessions", hint="`shoal status` shows what the server can do")
        what, where, hint = f"the server answered {status}, and not as Shoal does", None, "check SHOAL_URL"
    if status == 503 and isinstance(told := what, str) and "starting" in told:
        return Unreachable(what, where=where, hint=hint)
    return _KINDS.get(status, ShoalError)(what, where=where, hint=hint)
