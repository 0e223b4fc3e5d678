"""The one writer: group commit, fencing, sequence numbers, and word of what was committed.

Callers queue operations; a thread takes all that wait, writes them in one transaction with one flush of the disk, and
then wakes each event loop once. While it writes, the next group gathers. Without a thread (`inline`) every operation
is its own transaction in the caller, which makes a simulation repeat exactly.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, StatementError

from shoal.contract.records import Event
from shoal.core import LeaseLost, ShoalError, Unavailable
from shoal.store import operations, rows, statements
from shoal.store.announcing import Announcement, Callback, Subscriber, announce
from shoal.store.database import Database
from shoal.store.lease import Lock
from shoal.store.operations import Collision, Done, Operation
from shoal.store.position import Position
from shoal.store.writer_threads import GROUP_LIMIT, WriterThreads

log = logging.getLogger(__name__)


class _Request(NamedTuple):
    operation: Operation
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


class Group(NamedTuple):
    """A transaction that is committed: its requests with a value or an error each, and its events."""

    requests: Sequence[_Request]
    values: list[Any]
    events: list[Event]


class Writer:
    """`threads` write for it; None: every operation is written in the caller's thread."""

    def __init__(
        self, database: Database, lock: Lock, position: Position | None, threads: WriterThreads | None
    ) -> None:
        self._database = database
        self.lock = database.lock
        """Held while it is written for."""
        self._lock = lock
        self._position = position
        self.epoch = 0
        self._refusal: ShoalError | None = None
        self._closed = False
        self._subscribers: tuple[Subscriber, ...] = ()
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._threads = threads
        self._committed = 0
        self._queued = self._taken = 0
        self.due = False
        """Whether it waits for its round."""

    # --- for callers ---

    async def write(self, operation: Operation) -> Any:
        """Returns what the operation gives once it is on disk, or raises its error."""
        if self._refusal is not None:
            raise _copy(self._refusal)
        if self._threads is None:
            return self.write_now(operation)
        loop = asyncio.get_running_loop()
        request = _Request(operation, loop, loop.create_future())
        self._requests.put(request)
        self._queued += operation.weight
        self._threads.wake(self)
        if self._closed:  # meanwhile, by another thread: the writer will not look again
            self._fail_rest()
        return await request.future

    def write_now(self, operation: Operation) -> Any:
        """The same in the caller's thread, as a transaction of its own."""
        with self._database.lock:
            (value,), events = self._flushed(*self._commit([operation]))
            announce([Announcement(self._subscribers, events, ())])
        if isinstance(value, ShoalError):
            raise value
        return value

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        try:
            loop = asyncio.get_running_loop() if self._threads is not None else None
        except RuntimeError:
            loop = None
        subscriber = Subscriber(callback, loop)
        with self._database.lock:
            self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            with self._database.lock:
                self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def hold(self, epoch: int) -> None:
        """From now on every transaction requires this epoch."""
        self.epoch = epoch

    def admit(self) -> None:
        """Writes are welcome again."""
        self._refusal = None

    def refuse(self, error: ShoalError) -> None:
        """From now on every write fails with this error."""
        with self._database.lock:
            self.epoch = 0
            self._refusal = error

    def close(self) -> None:
        """Write what is queued, and nothing more."""
        while not self._requests.empty():
            with self.lock:
                announce([self.flush(self.commit(GROUP_LIMIT))])
        self.refuse(Unavailable("the store is closed", hint="repeat the request when the server is up again"))
        self._closed = True
        self._fail_rest()

    # --- for the threads; they hold `lock` ---

    @property
    def backlog(self) -> int:
        """About how many rows wait."""
        return 0 if self._requests.empty() else max(1, self._queued - self._taken)

    def commit(self, limit: int) -> Group:
        """About this number of the rows that wait, as one transaction."""
        requests: list[_Request] = []
        weight = 0
        with contextlib.suppress(queue.Empty):
            while weight < limit:
                requests.append(self._requests.get_nowait())
                weight += requests[-1].operation.weight
        self._taken += weight
        return Group(requests, *(self._commit([one.operation for one in requests]) if requests else ([], [])))

    def flush(self, group: Group) -> Announcement:
        """What is to be told once the group is on disk."""
        if not group.requests:
            return Announcement((), (), ())
        values, events = self._flushed(group.values, group.events)
        return self._told(zip(group.requests, values, strict=True), events)

    def _told(self, results: Iterable[tuple[_Request, Any]], events: Sequence[Event]) -> Announcement:
        answers = [(request.loop, (request.future, value)) for request, value in results]
        return Announcement(self._subscribers, events, answers)

    def _fail_rest(self) -> None:
        """Requests that were queued while the store closed."""
        rest: list[tuple[_Request, Any]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                request = self._requests.get_nowait()
                if self._refusal is not None:
                    rest.append((request, _copy(self._refusal)))
        announce([self._told(rest, [])])

    # --- one group ---

    def _commit(self, group: Sequence[Operation]) -> tuple[list[Any], list[Event]]:
        """Write the group. Returns a value or an error for each operation, and the events stored. Never raises."""
        try:
            try:
                return self._transaction(group, operations.together)
            except (Collision, ShoalError, StatementError, OverflowError, TypeError, ValueError) as error:
                one_of_them = isinstance(error, Collision | ShoalError) or self._database.blames_value(error)
                if self._refusal is not None or isinstance(error, Unavailable) or not one_of_them:
                    raise
            return self._transaction(group, partial(operations.apart, self._database))
        except ShoalError as error:
            return [_copy(error) for _ in group], []
        except DBAPIError as error:
            return [self._database.failure(error) for _ in group], []
        except Exception as error:  # a bug; but no caller may wait for ever, and the next group must have its turn
            log.exception("a group of %d writes failed", len(group))
            failed = Unavailable(f"the store failed: {error!r}", hint="see the server's log; this is a defect of Shoal")
            return [_copy(failed) for _ in group], []

    def _transaction(
        self, group: Sequence[Operation], run: Callable[[Connection, Sequence[Operation], int], list[Done]]
    ) -> tuple[list[Any], list[Event]]:
        if self._refusal is not None:
            raise _copy(self._refusal)
        if self.epoch and self._lock.lost():
            self._fence("its session with the database ended")
        connection = self._database.writer()
        try:
            with connection.begin():
                seq = self._turn(connection)
                done = run(connection, group, seq)
        except DBAPIError as error:
            if not self._database.blames_value(error):
                self._database.discard_writer()
            raise
        events = [pending.event for one in done for pending in one.events]
        self._committed = seq + len(events)
        values = [one.value for one in done]
        if not self._subscribers:
            return values, []
        return values, [rows.numbered(number, event) for number, event in enumerate(events, seq + 1)]

    def _flushed(self, values: list[Any], events: list[Event]) -> tuple[list[Any], list[Event]]:
        """What was committed, once it is on disk; errors where it could not be brought there."""
        try:
            self._database.flush()
        except OSError as error:
            failed = self._database.failure(error)
            return [_copy(failed) for _ in values], []
        if self._position is not None:
            self._position.note(self._committed)
        return values, events

    # --- fencing ---

    def _turn(self, connection: Connection) -> int:
        """Check the epoch, and return the last sequence number. Locking the lease's row makes writers of several
        processes take turns. So a new holder waits for the transaction in flight, or this one sees the new epoch."""
        if not self._database.is_sqlite:
            # A statement of its own, so that the next one sees what was committed while this one waited. SQLite has
            # the whole database locked already.
            connection.exec_driver_sql("SELECT 1 FROM control_lease FOR UPDATE")
        query = "SELECT epoch, (SELECT max(seq) FROM event) FROM control_lease"
        epoch, last = statements.one(connection, query)
        if self.epoch and epoch != self.epoch:
            self._fence(f"another process took it (epoch {epoch})")
        # Never a number again that was given before, whatever the database has lost since.
        return max(int(last or 0), self._position.seq if self._position is not None else 0)

    def _fence(self, how: str) -> None:
        error = LeaseLost(
            f"this process lost control of the database: {how}",
            where=str(self._database),
            hint="start the server again; running jobs go on, and nothing of this write was stored",
        )
        self.refuse(error)
        raise _copy(error)


def _copy(error: ShoalError) -> ShoalError:
    """For another caller: an exception object gathers the tracebacks of all callers that raise it."""
    return type(error)(error.what, where=error.where, hint=error.hint)
