"""The one writer: group commit, fencing, sequence numbers, and word of what was committed.

Callers queue operations; a thread takes all that wait, writes them in one transaction with one flush of the disk, and
then wakes each event loop once. While it writes, the next group gathers. Without a thread (`inline`) every operation
is its own transaction in the caller, which makes a simulation repeat exactly.

Threads that write for many stores commit one store at a time, and flush many at once: the disk then takes little
longer for all of them than for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import Any, NamedTuple

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, StatementError

from shoal.contract.records import Event
from shoal.core import LeaseLost, ShoalError, Unavailable
from shoal.store import operations, rows
from shoal.store.database import Database
from shoal.store.lease import Lock
from shoal.store.operations import Collision, Done, Operation
from shoal.store.position import Position

log = logging.getLogger(__name__)

Callback = Callable[[Sequence[Event]], None]

GROUP_LIMIT = 1024
"""Rows of work per transaction: beyond it the flush is well shared, and waiting callers only wait longer."""


_FLOOD, _EACH_S, _RECENT_S = 0.15, 0.006, 1.0
"""When committing took so much of the last `_RECENT_S`, it is a flood: then each of the stores that wrote meanwhile is
committed once in as many times `_EACH_S`."""


class _Request(NamedTuple):
    operation: Operation
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]


@dataclass(frozen=True, slots=True, eq=False)
class _Subscriber:
    callback: Callback
    loop: asyncio.AbstractEventLoop | None
    """Where to call; None: on the loop that awaited the write, or at once when there is none."""


class WriterThreads:
    """Threads that write for stores. Under a flood what a busy store writes gathers for few transactions; a store that
    did not write for a while is written at once. One store is never written by two threads at once."""

    def __init__(self, threads: int = 1) -> None:
        self._ready: queue.SimpleQueue[Writer | None] = queue.SimpleQueue()
        self._early: queue.SimpleQueue[Writer | None] = queue.SimpleQueue()
        self._committing = threading.Lock()
        self._recent: dict[Writer, float] = {}
        self._spent_s, self._ended = 0.0, 0.0
        self._threads = [
            threading.Thread(target=self._serve, name=f"shoal-store-writer-{at}", daemon=True) for at in range(threads)
        ]
        self._delaying = threading.Thread(target=self._delay, name="shoal-store-delay", daemon=True)
        for thread in (*self._threads, self._delaying):
            thread.start()

    def wake(self, writer: Writer) -> None:
        """Something was queued for this writer."""
        if not writer.due:
            writer.due = True
            (self._ready if time.monotonic() >= writer.not_before else self._early).put(writer)

    def close(self) -> None:
        """Serve those whose turn is to come, then end. The stores are closed before or after, as it comes."""
        self._early.put(None)
        self._delaying.join()
        for _ in self._threads:
            self._ready.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (writer := self._ready.get()) is not None:
            writer.write_group(self._turn(writer))
            writer.due = False
            if writer.more:  # queued since it looked
                self.wake(writer)

    def _delay(self) -> None:
        """Pass on those that came early when their time has come."""
        waiting: list[tuple[float, int, Writer]] = []
        for number in count():
            try:
                left_s = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
                writer = self._early.get(timeout=left_s)
            except queue.Empty:
                self._ready.put(heappop(waiting)[2])
                continue
            if writer is None:
                break
            heappush(waiting, (writer.not_before, number, writer))
        for _, _, writer in waiting:
            self._ready.put(writer)

    @contextlib.contextmanager
    def _turn(self, writer: Writer) -> Iterator[None]:
        """One store is committed at a time: more at once would only contend for the interpreter's lock."""
        with self._committing:
            began = time.monotonic()
            self._recent.pop(writer, None)
            self._recent[writer] = began
            while next(iter(self._recent.values())) < began - _RECENT_S:
                del self._recent[next(iter(self._recent))]
            yield
            ended = time.monotonic()
            self._spent_s = self._spent_s * max(0.0, 1.0 - (ended - self._ended) / _RECENT_S) + ended - began
            self._ended = ended
            flood = self._spent_s >= _FLOOD * _RECENT_S
            writer.not_before = began + len(self._recent) * _EACH_S if flood else 0.0


class Writer:
    """`threads` write for it; None: every operation is written in the caller's thread."""

    def __init__(
        self, database: Database, lock: Lock, position: Position | None, threads: WriterThreads | None
    ) -> None:
        self._database = database
        self._lock = lock
        self._position = position
        self.epoch = 0
        self._refusal: ShoalError | None = None
        self._closed = False
        self._subscribers: tuple[_Subscriber, ...] = ()
        self._requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
        self._threads = threads
        self._committed = 0
        self.due = False
        """Whether it waits for a thread, or has one."""
        self.not_before = 0.0
        """When a thread should write for it again at the earliest."""

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
        self._threads.wake(self)
        if self._closed:  # meanwhile, by another thread: the writer will not look again
            self._fail_rest()
        return await request.future

    def write_now(self, operation: Operation) -> Any:
        """The same in the caller's thread, as a transaction of its own."""
        with self._database.lock:
            (value,), events = self._flushed(*self._commit([operation]))
            self._announce([], events)
        if isinstance(value, ShoalError):
            raise value
        return value

    def subscribe(self, callback: Callback) -> Callable[[], None]:
        try:
            loop = asyncio.get_running_loop() if self._threads is not None else None
        except RuntimeError:
            loop = None
        subscriber = _Subscriber(callback, loop)
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
        while self.more:
            self.write_group()
        self.refuse(Unavailable("the store is closed", hint="repeat the request when the server is up again"))
        self._closed = True
        self._fail_rest()

    # --- for the threads ---

    @property
    def more(self) -> bool:
        return not self._requests.empty()

    def write_group(self, turn: AbstractContextManager[None] = contextlib.nullcontext()) -> None:  # noqa: B008
        """What waits, as one transaction, which is committed in this `turn`."""
        with self._database.lock:
            with turn:
                group = self._next_group()
                values, events = self._commit([request.operation for request in group]) if group else ([], [])
            if group:
                values, events = self._flushed(values, events)
                self._announce(list(zip(group, values, strict=True)), events)

    def _next_group(self) -> list[_Request]:
        group: list[_Request] = []
        weight = 0
        with contextlib.suppress(queue.Empty):
            while weight < GROUP_LIMIT:
                group.append(self._requests.get_nowait())
                weight += group[-1].operation.weight
        return group

    def _fail_rest(self) -> None:
        """Requests that were queued while the store closed."""
        rest: list[tuple[_Request, Any]] = []
        with contextlib.suppress(queue.Empty):
            while True:
                request = self._requests.get_nowait()
                if self._refusal is not None:
                    rest.append((request, _copy(self._refusal)))
        self._announce(rest, [])

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
        epoch, last = connection.exec_driver_sql(query).one()
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

    # --- word of it ---

    def _announce(self, results: Sequence[tuple[_Request, Any]], events: Sequence[Event]) -> None:
        """One call per event loop: first the subscribers hear of the events, then the callers wake."""
        waiting: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Any]]] = {}
        for request, value in results:
            waiting.setdefault(request.loop, []).append((request.future, value))
        calls: dict[asyncio.AbstractEventLoop | None, list[Callback]] = {}
        if events:
            fallback = next(iter(waiting), None)
            for subscriber in self._subscribers:
                calls.setdefault(subscriber.loop or fallback, []).append(subscriber.callback)
        _deliver(calls.pop(None, []), events, [])
        for loop in (waiting.keys() | calls.keys()) - {None}:
            if loop is not None and not loop.is_closed():
                loop.call_soon_threadsafe(_deliver, calls.get(loop, []), events, waiting.get(loop, []))


def _copy(error: ShoalError) -> ShoalError:
    """For another caller: an exception object gathers the tracebacks of all callers that raise it."""
    return type(error)(error.what, where=error.where, hint=error.hint)


def _deliver(
    callbacks: Sequence[Callback], events: Sequence[Event], results: Sequence[tuple[asyncio.Future[Any], Any]]
) -> None:
    for callback in callbacks:
        try:
            callback(events)
        except Exception:  # the events are committed: one listener's failure is no other's
            log.exception("a subscriber to the store's events failed")
    for future, value in results:
        if future.done():  # its caller was cancelled
            continue
        if isinstance(value, ShoalError):
            future.set_exception(value)
        else:
            future.set_result(value)
