"""Listening here for a port of a job: each connection goes through the server by one of its own."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Sequence

from shoal.contract.calls import path_piece
from shoal.core import ShoalError, Unavailable
from shoal.session.client.connection import Connection, Target, upgrade

_PIECE = 256 << 10
_MOST = 128
"""Connections at once; others wait to be accepted."""


def reach(target: Target, job_id: str, rank: int, port: int) -> Connection:
    """Raises as `upgrade`."""
    return upgrade(target, f"/v1/jobs/{path_piece('job', job_id)}/ports/{port}", "shoal-forward", {"rank": rank})


def forward(
    locate: Callable[[], Target], job_id: str, rank: int, bind: str, wanted: Sequence[tuple[int, int]], *,
    show: Callable[[int, int], None], note: Callable[[str], None],
) -> None:  # fmt: skip
    """Until interrupted. Raises Unavailable where this machine's port is taken."""
    room = threading.Semaphore(_MOST)
    with selectors.DefaultSelector() as selector, contextlib.ExitStack() as opened:
        for remote, local in wanted:
            try:
                listener = socket.create_server((bind, local), backlog=64)
            except OSError as error:
                hint = f"another one: {remote}:LOCAL, or {remote}:0 for any"
                raise Unavailable(f"{bind}:{local} cannot be listened on: {error.strerror}", hint=hint) from None
            opened.enter_context(listener)
            selector.register(listener, selectors.EVENT_READ, remote)
            show(remote, int(listener.getsockname()[1]))
        while True:
            for key, _ in selector.select():
                listener = key.fileobj  # type: ignore[assignment]
                with contextlib.suppress(OSError):
                    made, _ = listener.accept()
                    room.acquire()
                    work = (room, lambda port=key.data: reach(locate(), job_id, rank, port), made, note)
                    threading.Thread(target=_serve, args=work, name="forward", daemon=True).start()


def _serve(
    room: threading.Semaphore, connect: Callable[[], Connection], made: socket.socket, note: Callable[[str], None]
) -> None:  # fmt: skip
    try:
        with made:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                connection = connect()
            except ShoalError as error:
                note(f"{error.what}" + (f" ({error.hint})" if error.hint else ""))
                return
            try:
                carry(made, connection)
            finally:
                connection.close()
    finally:
        room.release()


def carry(made: socket.socket, connection: Connection) -> None:
    """Both ways, until both have ended or one is lost."""
    back = threading.Thread(target=_back, args=(connection, made), daemon=True)
    back.start()
    with contextlib.suppress(OSError):
        while data := made.recv(_PIECE):
            connection.send(data)
    connection.end()
    back.join()


def _back(connection: Connection, made: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := connection.receive(_PIECE):
            made.sendall(data)
    with contextlib.suppress(OSError):
        made.shutdown(socket.SHUT_WR)
