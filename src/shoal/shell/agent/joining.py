"""Joins the outputs of a command's pieces by a process here, or by adding numbers."""

from __future__ import annotations

import asyncio
import contextlib
import os
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from shoal.shell.annotations import Split
from shoal.shell.pieces import added, joining_command
from shoal.shell.proxy import CHUNK
from shoal.shell.stages import Stage


class Joining:
    """Of one stage: what its pieces write goes in with `feed`, in any order of the pieces, and `run` writes what the
    command would have written for all of it. `taken` is told how many bytes of a piece were used up."""

    def __init__(
        self, stage: Stage, way: Split, pieces: int, write: Callable[[bytes, bytes], Awaitable[None]],
        taken: Callable[[int, int], None],
    ) -> None:  # fmt: skip
        self._stage, self._way = stage, way
        self._queues = [asyncio.Queue[bytes]() for _ in range(pieces)]
        self._write, self._taken = write, taken

    def feed(self, piece: int, data: bytes) -> None:
        """No bytes are the end of the piece."""
        self._queues[piece].put_nowait(data)

    async def run(self) -> int:
        """Returns the status of the process that joined."""
        if self._way is not Split.SUM:
            return await self._by_process()
        outputs = []
        for piece in range(len(self._queues)):
            parts = [data async for data in self._of(piece)]
            outputs.append(b"".join(parts))
        await self._write(b"O", added(outputs))
        return 0

    async def _of(self, piece: int) -> AsyncIterator[bytes]:
        while data := await self._queues[piece].get():
            yield data
            self._taken(piece, len(data))

    async def _by_process(self) -> int:
        pipes = [os.pipe() for _ in self._queues] if self._way is Split.MERGE else [os.pipe()]
        call, found = self._stage.call, self._stage.match
        assert found is not None
        readers = [one for one, _ in pipes]
        merges = self._way is Split.MERGE
        words = joining_command(self._way, call.argv, found.inputs, readers)
        try:
            process = await asyncio.create_subprocess_exec(
                *words, executable=call.path, env=dict(call.environ), cwd="/", stdin=DEVNULL if merges else readers[0],
                stdout=PIPE, stderr=PIPE, pass_fds=readers if merges else (),
            )  # fmt: skip
        finally:
            for one in readers:
                os.close(one)
        try:
            return await self._carry(process, [writer for _, writer in pipes])
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    async def _carry(self, process: Process, pipes: Sequence[int]) -> int:
        assert process.stdout is not None
        assert process.stderr is not None
        pieces = range(len(self._queues))
        shares = [(one,) for one in pieces] if self._way is Split.MERGE else [tuple(pieces)]
        async with asyncio.TaskGroup() as tasks:
            feeds = [tasks.create_task(self._send(pipe, mine)) for pipe, mine in zip(pipes, shares, strict=True)]
            await asyncio.gather(self._pass_on(b"O", process.stdout), self._pass_on(b"E", process.stderr))
            for one in feeds:  # `head` ends before its input
                one.cancel()
        return await process.wait()

    async def _send(self, pipe: int, pieces: Sequence[int]) -> None:
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.connect_write_pipe(
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(pipe, "wb", 0)
        )
        writer = asyncio.StreamWriter(transport, protocol, None, loop)
        try:
            for piece in pieces:
                async for data in self._of(piece):
                    writer.write(data)
                    await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def _pass_on(self, kind: bytes, source: asyncio.StreamReader) -> None:
        while data := await source.read(CHUNK):
            await self._write(kind, data)
