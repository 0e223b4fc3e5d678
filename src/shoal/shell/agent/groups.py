"""The part of a pipeline that runs elsewhere: what it starts there, and what comes back to the stages here.

Nothing is passed on before all of it has started and each stage has said that it still waits, and no stage ends before
that or before its last: until then the whole part can still run here instead, and does so where a site refuses it or
the connection is lost. What changes something starts over there only after the stages have said so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import structlog

from shoal.shell.agent.connection import Connection
from shoal.shell.agent.joining import Joining
from shoal.shell.agent.refresh import refresh
from shoal.shell.agent.relays import Ended, Relay, united
from shoal.shell.annotations import Split
from shoal.shell.calls import Open
from shoal.shell.cores import must_be_text, on_cores
from shoal.shell.frames import Frame
from shoal.shell.proxy import STDIN_WINDOW
from shoal.shell.sites import Site
from shoal.shell.stages import Piece, absolute, environment_for

log = structlog.get_logger("shoal.shell")

LOST = 255
WINDOW = 4 << 20
LEAST_WINDOW = 256 << 10
ACCEPT_S = 5.0
ALL_WINDOWS = 32 << 20
"""Bytes of output that may be on their way or wait here, of all commands together."""


class Group:
    """Neighbouring stages that run at one site, or in pieces at several. A `Stream` of each connection."""

    def __init__(
        self, relays: Sequence[Relay], connections: Mapping[str, Connection], ended: Callable[[Ended], None]
    ) -> None:
        self.relays = relays
        self.connections = connections
        self._ended = ended
        self._of: dict[int, Relay] = {}
        self._at: dict[int, Connection] = {}
        self._started = set[int]()
        self._held: list[tuple[Relay, int]] = []
        self._accepted = False
        self._touched = False
        self._failed = False
        self._takes_input = False
        self._read = 0
        self._wake = asyncio.Event()
        self._refreshing: list[asyncio.Task[None]] = []
        self._joined: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Start it, and see it to its end."""
        repaying = asyncio.create_task(self._repay())
        try:
            if not self._changes:
                self._start()
            if not await self._offer():
                self._give_up("here: a stage of the pipeline did not wait for the agent", lost=False)
                return
            if self._changes:
                self._start()
            self._accepted = True
            self._begin()
            await asyncio.gather(*(self._listen(relay) for relay in self.relays))
        except Exception as error:  # whatever is wrong here, no stage waits for ever
            log.exception("a part of a pipeline failed", error=str(error))
            self._give_up("here: the agent failed", lost=True)
        finally:
            repaying.cancel()
            if self._joined is not None:
                self._joined.cancel()

    # --- start ---

    async def _offer(self) -> bool:
        """Whether all stages still wait: one for which the agent was too late runs here, and so must the others."""
        again = not self._changes
        for relay in self.relays:
            assert relay.stage.match is not None
            relay.send(b"T", bytes([again, relay.stage.match.annotation.write_error]))
        taken = await asyncio.gather(*(_accepts(relay) for relay in self.relays))
        for relay, takes in zip(self.relays, taken, strict=True):
            if not takes:
                relay.over = True
                relay.writer.close()
        return all(taken)

    @property
    def _changes(self) -> bool:
        return self._writes_there or any(one.stage.match and one.stage.match.changes for one in self.relays)

    @property
    def _writes_there(self) -> bool:
        """The last stage writes its output to a file of its site."""
        last = self.relays[-1]
        return bool(last.stage.output) and last.decision.site == last.stage.output

    def _start(self) -> None:
        first = self.relays[0]
        pieces = first.decision.pieces or (Piece(first.decision.site, ()),)
        total = sum(len(one.positions) for one in pieces)
        self._prepare_join(len(pieces))
        window = max(LEAST_WINDOW, min(WINDOW, ALL_WINDOWS // (1 + sum(c.busy for c in self.connections.values()))))
        for piece in pieces:
            connection = self.connections[piece.site]
            told = []
            for at, relay in enumerate(self.relays):
                number = connection.number()
                key = self._key(connection, number)
                relay.streams.append(key)
                self._of[key], self._at[key] = relay, connection
                told.append(self._told(at, relay, piece if at == 0 and first.decision.pieces else None, total, number,
                                       connection, window))  # fmt: skip
            told[0]["whole_lines"] = len(told) > 1 and piece is not pieces[-1]
            in_pieces = self._in_pieces(told, dealt_out=len(pieces) > 1) if connection.welcome["namespaces"] else None
            streams = [_Keyed(self, connection)] * len(told)
            connection.start(told, streams, writes=self._changes, pieces=in_pieces)

    def _in_pieces(self, told: Sequence[Mapping[str, Any]], *, dealt_out: bool) -> Mapping[str, Any] | None:
        """How the stages share the cores of the site, and what their input must be where other sites have a part."""
        stages = [one.stage for one in self.relays]
        if self._changes:
            return None
        if dealt_out:
            return must_be_text(stages, told[0]["reads"])
        found = stages[0].match
        assert found is not None
        bare = [word for at, word in enumerate(stages[0].call.argv) if at not in found.inputs]
        return on_cores(stages, [one.decision for one in self.relays], told[0]["reads"], bare)

    def _key(self, connection: Connection, number: int) -> int:
        return (sorted(self.connections).index(connection.site.name) << 32) | number

    def _told(
        self, at: int, relay: Relay, piece: Piece | None, total: int, number: int, connection: Connection, window: int
    ) -> dict[str, Any]:
        call, found = relay.stage.call, relay.stage.match
        assert found is not None
        argv = list(call.argv)
        reads = [absolute(one, call.cwd) for one in found.reads]
        if piece is not None:
            others = set(found.inputs) - set(piece.positions)
            argv = [word for place, word in enumerate(argv) if place not in others]
            if total > 1 and "named" not in found.effects:
                argv[1:1] = found.annotation.split_adds
            reads = [absolute(call.argv[place], call.cwd) for place in piece.positions]
        stdin: dict[str, Any] = {}
        if at:
            stdin = {"pipe": at - 1}
        elif found.stdin and call.stdin.kind is Open.FILE and connection.site.holds(call.stdin.path):
            stdin = {"file": call.stdin.path, "offset": call.stdin.offset}
        elif found.stdin and call.stdin.kind is not Open.NULL:
            stdin = {"stream": True}
            self._takes_input = True
        told = {
            "id": number, "path": call.path, "argv": argv, "cwd": call.cwd, "env": environment_for(call, found),
            "umask": call.umask, "reads": reads, "writes": [absolute(one, call.cwd) for one in found.writes],
            "touches": [absolute(one, call.cwd) for one in found.annotation.touches] if found.changes else [],
            "stdin": stdin, "stdout": {"pipe": at} if at < len(self.relays) - 1 else self._output(),
            "merge": call.one_output, "credit": window,
        }  # fmt: skip
        if not connection.site.holds(call.cwd):
            told["cwd"] = next(iter(connection.site.mounts))
        if not connection.welcome.get("namespaces"):
            _translate(told, found.path_positions if piece is None else range(1, len(argv)), connection.site)
        return told

    def _output(self) -> dict[str, Any]:
        told = self.relays[-1].stage.call.stdout
        if not self._writes_there:
            return {"stream": True}
        return {"file": told.path, "offset": told.offset, "append": bool(told.flags & os.O_APPEND)}

    # --- from over there ---

    def started(self, size: int, key: int) -> None:
        self._started.add(key)
        self._read += size if self._of[key] is self.relays[0] else 0
        self._begin()

    @property
    def _is_open(self) -> bool:
        return self._accepted and len(self._started) == len(self._of)

    def _begin(self) -> None:
        if not self._is_open:
            return
        first = self.relays[0]
        if self._takes_input and not first.over:
            first.send(b"S", struct.pack("=I", STDIN_WINDOW))
        for relay in self.relays:
            self._deliver(relay)

    def output(self, key: int, kind: int, data: bytes) -> None:
        relay = self._of[key]
        relay.waiting.setdefault(key, []).append((kind, data))
        relay.came(key, data, error=kind == Frame.ERR)
        self._deliver(relay)

    def _deliver(self, relay: Relay) -> None:
        """Pass on what came, in the order of the pieces."""
        if not self._is_open or relay.over:
            return
        if relay.joining is not None:
            self._join(relay, relay.joining)
            return
        while relay.turn < len(relay.streams):
            alike = relay.failed_alike() if relay.turn else False
            if alike is None:
                return
            if alike:
                break
            key = relay.streams[relay.turn]
            for kind, data in relay.waiting.pop(key, ()):
                self._touch()
                relay.send(b"O" if kind == Frame.OUT else b"E", data)
                relay.owed[key] = relay.owed.get(key, 0) + len(data)
                self._wake.set()
            if key not in relay.statuses:
                return
            relay.turn += 1
        self._finish(relay, united([relay.statuses[one] for one in relay.streams], relay.stage))

    # --- pieces that are joined ---

    def _prepare_join(self, pieces: int) -> None:
        last = self.relays[-1]
        if last.decision.join is not Split.NEVER:
            last.joining = Joining(last.stage, last.decision.join, pieces, self._write_joined, self._take_joined)

    def _join(self, relay: Relay, joining: Joining) -> None:
        """Pass on what came, whichever piece it is of."""
        if self._joined is None:
            if not self._all_began(relay):
                return
            self._joined = asyncio.create_task(self._run_join(relay, joining))
        for piece, key in enumerate(relay.streams):
            for kind, data in relay.waiting.pop(key, ()):
                if kind == Frame.OUT:
                    joining.feed(piece, data)
                else:
                    self._touch()
                    relay.send(b"E", data)
                    relay.owed[key] = relay.owed.get(key, 0) + len(data)
                    self._wake.set()
            if key in relay.statuses and key not in relay.fed:
                relay.fed.add(key)
                joining.feed(piece, b"")

    def _all_began(self, relay: Relay) -> bool:
        """Whether each piece has begun to write, or has ended: a `sort` that fails writes nothing, so neither must the
        merge. It then ends as the first piece that failed."""
        silent = [key for key in relay.streams if key not in relay.wrote]
        if not all(key in relay.statuses for key in silent):
            return False
        failed = next((key for key in silent if relay.statuses[key]), None)
        if failed is None:
            return True
        for kind, data in relay.waiting.pop(failed, ()):
            if kind == Frame.ERR:
                self._touch()
                relay.send(b"E", data)
        self._kill([key for key in relay.streams if key not in relay.statuses])
        self._finish(relay, relay.statuses[failed])
        return False

    async def _run_join(self, relay: Relay, joining: Joining) -> None:
        try:
            status = await joining.run()
        except Exception as error:
            log.exception("pieces could not be joined", error=str(error))
            self._give_up("here: the agent failed", lost=True)
            return
        ended = [relay.statuses[key] for key in relay.streams if key in relay.statuses]
        self._kill([key for key in relay.streams if key not in relay.statuses])
        whole = len(ended) == len(relay.streams) and relay.decision.join is not Split.AGAIN
        self._finish(relay, (united(ended, relay.stage) or status) if whole else status)

    async def _write_joined(self, kind: bytes, data: bytes) -> None:
        self._touch()
        self.relays[-1].send(kind, data)
        with contextlib.suppress(ConnectionError, OSError):
            await self.relays[-1].writer.drain()

    def _take_joined(self, piece: int, count: int) -> None:
        key = self.relays[-1].streams[piece]
        self._at[key].give(key & 0xFFFFFFFF, count)

    def credit(self, key: int, count: int) -> None:
        relay = self._of[key]
        if not relay.over:
            relay.send(b"S", struct.pack("=I", count))

    def ended(self, key: int, status: int, told: Mapping[str, Any]) -> None:
        relay = self._of[key]
        relay.statuses[key] = status
        relay.cpu_s += told["cpu_s"]
        relay.changed |= told["changed"]
        self._deliver(relay)

    def refused(self, why: str) -> None:
        self._give_up(f"here: {why}", lost=False)

    def lost(self, why: str) -> None:
        self._give_up(f"here: the connection was lost ({why})", lost=True)

    def _touch(self) -> None:
        if not self._touched:
            self._touched = True
            held, self._held = self._held, []
            for relay, status in held:
                self._end(relay, status)

    def _finish(self, relay: Relay, status: int) -> None:
        if any(one is relay for one, _ in self._held):
            return
        self._held.append((relay, status))
        if self._touched or len(self._held) == sum(not one.over for one in self.relays):
            self._touched = True
            held, self._held = self._held, []
            for one, code in held:
                self._end(one, code)

    def _end(self, relay: Relay, status: int) -> None:
        if relay.over:
            return
        if relay.changed:
            self._refreshing.append(asyncio.create_task(self._refresh(relay, status)))
            return
        relay.end(status)
        self._tell(relay, relay.decision.why, status)

    async def _refresh(self, relay: Relay, status: int) -> None:
        """What was changed over there is seen here before the command ends here."""
        await refresh(relay.changed)
        relay.changed = {}
        self._end(relay, status)

    def _tell(self, relay: Relay, why: str, status: int | None) -> None:
        kept = self._read if relay is self.relays[0] else 0
        away = relay.decision.site if not why.startswith("here") else ""
        self._ended(Ended(relay, away, why, status, time.monotonic() - relay.began, kept))

    def _give_up(self, why: str, *, lost: bool) -> None:
        if self._failed:
            return
        self._failed = True
        self._kill([key for relay in self.relays for key in relay.streams if key not in relay.statuses])
        again = not self._touched and not (lost and self._changes)
        for relay in self.relays:
            if relay.over:
                continue
            if again:
                relay.run_here()
                self._tell(relay, why, None)
                continue
            if relay is self.relays[-1]:
                relay.send(b"E", f"shoal: {relay.stage.call.argv[0]}: {why.removeprefix('here: ')}\n".encode())
            relay.end(LOST)
            self._tell(relay, why.removeprefix("here: "), LOST)

    # --- from here ---

    async def _listen(self, relay: Relay) -> None:
        """The stage's input, and its end."""
        try:
            while True:
                head = await relay.reader.readexactly(5)
                size = struct.unpack("=I", head[1:])[0]
                data = await relay.reader.readexactly(size) if size else b""
                key = relay.streams[0]
                if head[:1] == b"i":
                    self._touched = True
                    relay.moved += size
                    self._at[key].write(key & 0xFFFFFFFF, data)
                else:
                    self._at[key].end_input(key & 0xFFFFFFFF)
        except (EOFError, ConnectionError, OSError):
            pass
        if not relay.over:
            relay.over = True
            self._kill([one for one in relay.streams if one not in relay.statuses])
            self._tell(relay, relay.decision.why, None)
            if self._held and len(self._held) == sum(not one.over for one in self.relays):
                self._touch()
        relay.writer.close()

    def _kill(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._at[key].kill(key & 0xFFFFFFFF)

    async def _repay(self) -> None:
        """Give credit for what the stages took."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            for relay in self.relays:
                if not relay.owed or relay.over:
                    continue
                try:
                    await relay.writer.drain()
                except (ConnectionError, OSError):
                    continue
                owed, relay.owed = relay.owed, {}
                for key, count in owed.items():
                    self._at[key].give(key & 0xFFFFFFFF, count)


async def _accepts(relay: Relay) -> bool:
    try:
        async with asyncio.timeout(ACCEPT_S):
            return await relay.reader.readexactly(5) == b"g\0\0\0\0"
    except (TimeoutError, EOFError, OSError):
        return False


class _Keyed:
    """A connection's streams, told to the group by keys that differ between connections."""

    def __init__(self, group: Group, connection: Connection) -> None:
        self._group, self._connection = group, connection

    def started(self, stream: int, size: int) -> None:
        self._group.started(size, self._group._key(self._connection, stream))

    def refused(self, why: str) -> None:
        self._group.refused(why)

    def output(self, stream: int, kind: int, data: bytes) -> None:
        self._group.output(self._group._key(self._connection, stream), kind, data)

    def credit(self, stream: int, count: int) -> None:
        self._group.credit(self._group._key(self._connection, stream), count)

    def ended(self, stream: int, status: int, told: Mapping[str, Any]) -> None:
        self._group.ended(self._group._key(self._connection, stream), status, told)

    def lost(self, why: str) -> None:
        self._group.lost(why)


def _translate(told: dict[str, Any], positions: Sequence[int], site: Site) -> None:
    """Without a namespace, names of the site are taken where the client's stand as paths."""

    def there(path: str) -> str:
        for mount, root in site.mounts.items():
            if path == mount or path.startswith(mount + "/"):
                return root + path[len(mount) :]
        return path

    for at in positions:
        word = told["argv"][at]
        for mount, root in site.mounts.items():
            if mount in word:
                word = word.replace(mount, root, 1)
                break
        told["argv"][at] = word
    told["cwd"] = there(told["cwd"])
    for slot in ("reads", "writes"):
        told[slot] = [there(one) for one in told[slot]]
    if "file" in told["stdin"]:
        told["stdin"]["file"] = there(told["stdin"]["file"])
