"""Questions of the server to the agents of sessions: how it is with each, and to end. A job may answer anything at
all.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from socket import socket

from shoal.core import NotFound, ShoalError
from shoal.engine import Enterable
from shoal.session.frames import ASK, MOST, STATE, frame, number, read_fields, take_frames, write_fields

_ANSWER_S = 2.0
_AT_ONCE = 32
_MOST_BYTES = 2 * MOST


@dataclass(frozen=True, slots=True)
class State:
    """Of a session, as its agent says: seconds since it began and since something was typed or written in it, or its
    job's devices worked; bytes that it wrote and was given; clients that are attached."""

    open_s: int
    idle_s: int
    written: int
    typed: int
    clients: int
    terminal: bool
    over: bool
    """It waits for its client to fetch the end."""


class Gone(Exception):
    """Nothing listens there: the session is over, or has not begun."""


class Asking:
    """`most` questions at once, each for a short time."""

    def __init__(self, most: int = _AT_ONCE) -> None:
        self._turn = asyncio.Semaphore(most)

    async def state(self, engine: Enterable, gang: str, rank: int, session: str, **told: object) -> State | None:
        """None where no answer comes. Raises Gone."""
        async with self._turn:
            try:
                made = await engine.reach_socket(gang, rank, socket_name(session))
            except NotFound:
                raise Gone from None
            except ShoalError:
                return None
            try:
                async with asyncio.timeout(_ANSWER_S):
                    return await _asked(made, frame(ASK, write_fields(**told)))
            except (OSError, ValueError, TimeoutError):
                return None
            finally:
                made.close()


def socket_name(session: str) -> str:
    """Of the agent's socket, in the rank's own directory."""
    return f"session-{session}.sock"


async def _asked(made: socket, question: bytes) -> State | None:
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_sendall(made, question)
    came = bytearray()
    while len(came) < _MOST_BYTES:
        data = await loop.sock_recv(made, MOST)
        if not data:
            return None
        came += data
        for kind, payload in take_frames(came):
            if kind == STATE:
                return _read(read_fields(payload))
    return None


def _read(said: dict[str, str]) -> State:
    most = 1 << 53
    open_s, idle_s, written, typed, clients = (
        number(said, name, most) for name in ("open", "idle", "written", "typed", "clients")
    )
    terminal, over = (said.get(name) == "1" for name in ("pty", "over"))
    return State(open_s, idle_s, written, typed, clients, terminal, over)
