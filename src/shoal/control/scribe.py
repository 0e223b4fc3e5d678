"""A scribe: a small process that writes into one SQLite database what its server tells it.

Writing a job's steps takes the interpreter about as long as deciding them. In a thread both would wait for one
interpreter's lock, and on processors without a common cache each would find the other's objects far away. The scribe
only ever does what goes well: whatever is refused is rolled back and left to the server, which then says why.

Frames go both ways over a socket pair that the server made: a length, then `marshal` (only the server and its own child
hold the ends). At the socket's end, or when a frame is cut short because the server was killed, the scribe leaves.
"""

from __future__ import annotations

import marshal
import socket
import sqlite3
import struct
import sys
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from shoal.control.bulk import Bulk, Row, Work, write

_LENGTH = struct.Struct("<Q")
_FORMAT = 2
"""Of marshal: later ones look for values that occur twice, which costs more than it saves."""


def pack(value: Any) -> bytes:
    """Raises ValueError for what is no plain value."""
    return marshal.dumps(value, _FORMAT)


def send(stream: socket.socket, value: Any) -> None:
    data = pack(value)
    stream.sendall(_LENGTH.pack(len(data)))
    stream.sendall(data)


def receive(source: BinaryIO) -> Any:
    """Raises EOFError at the end, or within a frame."""
    (length,) = _LENGTH.unpack(_exactly(source, _LENGTH.size))
    return marshal.loads(_exactly(source, length))  # noqa: S302 - from our own server or our own child


def _exactly(source: BinaryIO, length: int) -> bytes:
    data = source.read(length)
    if len(data) < length:
        raise EOFError("the other side is gone")
    return data


def connect(path: str, pragmas: Mapping[str, str | int]) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=256)
    for name, value in pragmas.items():
        connection.execute(f"PRAGMA {name} = {value}")
    return connection


def commit(connection: sqlite3.Connection, bulks: Mapping[str, Bulk], epoch: int, packed: Sequence[bytes]) -> int:
    """Write all in one transaction under this epoch of the control lease. Returns the number after which the events
    are numbered, or -1: nothing was written."""

    def run(kind: str, rows: Sequence[Row]) -> int:
        return sum(connection.execute(*each).rowcount for each in bulks[kind].statements(rows))

    works = [Work(*marshal.loads(each)) for each in packed]  # noqa: S302 - from our own server
    try:
        connection.execute("BEGIN IMMEDIATE")
        ruling, last = connection.execute("SELECT epoch, (SELECT max(seq) FROM event) FROM control_lease").fetchone()
        seq: int = last or 0
        if ruling == epoch and write(works, seq, run):
            connection.execute("COMMIT")
            return seq
    except (sqlite3.Error, OverflowError, ValueError):
        pass  # the server meets it again when it does the same, and tells its callers
    if connection.in_transaction:
        connection.execute("ROLLBACK")
    return -1


def main() -> None:
    stream = socket.socket(fileno=int(sys.argv[1]))
    source = stream.makefile("rb")
    path, pragmas, statements = receive(source)
    bulks = {kind: Bulk(*parts) for kind, parts in statements.items()}
    connection = connect(path, pragmas)
    try:
        while True:
            epoch, packed = receive(source)
            send(stream, commit(connection, bulks, epoch, packed))
    except (EOFError, ConnectionError):
        connection.close()


if __name__ == "__main__":
    main()
