"""Joins stages into pipelines by the inodes of their pipes. A pipeline is whole when each of its pipes has both ends,
or when no other command can come to the missing end."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from shoal.shell.agent.neighbours import may_come
from shoal.shell.calls import Call

LOOK_S = 0.001
LOOKS = 2
"""That must find nothing: while a process becomes another program, one look may find neither."""
PATIENCE_S = 3.0
"""Until a pipeline is taken as it is, whatever may still come: the stages wait for 10 s at most."""
_MOST_DECIDED = 4096


@dataclass(eq=False)
class Pending:
    """A stage that waits for its decision; `reader` and `writer` lead to the process that stands for it."""

    call: Call
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Collector:
    """Calls `whole` with the stages of each pipeline, in their order."""

    def __init__(
        self, whole: Callable[[list[Pending]], Awaitable[None]], stage_program: str,
        comes: Callable[[int, int, int, str], bool] = may_come,
    ) -> None:  # fmt: skip
        self._whole = whole
        self._program = stage_program
        self._comes = comes
        self._readers: dict[int, Pending] = {}
        self._writers: dict[int, Pending] = {}
        self._decided: OrderedDict[int, None] = OrderedDict()
        self._tasks = set[asyncio.Task[None]]()
        self._watched = set[int]()

    def add(self, one: Pending) -> None:
        if inode := one.call.stdin.joint:
            self._readers[inode] = one
        if inode := one.call.stdout.joint:
            self._writers[inode] = one
        chain = self._chain(one)
        if not self._open_ends(chain):
            self._decide(chain)
        elif not any(id(each) in self._watched for each in chain):
            self._watched.add(id(one))
            self._task(self._watch(one))

    def _chain(self, one: Pending) -> list[Pending]:
        chain, seen = [one], {id(one)}
        while (before := self._writers.get(chain[0].call.stdin.joint)) is not None and id(before) not in seen:
            chain.insert(0, before)
            seen.add(id(before))
        while (after := self._readers.get(chain[-1].call.stdout.joint)) is not None and id(after) not in seen:
            chain.append(after)
            seen.add(id(after))
        return chain

    def _open_ends(self, chain: list[Pending]) -> list[tuple[int, Call]]:
        """Pipes of which one end is missing."""
        ends = ((chain[0].call.stdin.joint, chain[0].call), (chain[-1].call.stdout.joint, chain[-1].call))
        return [(inode, call) for inode, call in ends if inode and inode not in self._decided]

    async def _watch(self, one: Pending) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + PATIENCE_S
        pause, quiet = LOOK_S, 0
        while self._is_waiting(one):
            await asyncio.sleep(pause)
            pause = min(2 * pause, 0.02)
            if not self._is_waiting(one):
                break
            chain = self._chain(one)
            missing = self._open_ends(chain)
            if loop.time() < until and any(
                self._comes(inode, call.pid, call.parent, self._program) for inode, call in missing
            ):
                quiet = 0
                continue
            quiet += 1
            if quiet == LOOKS:
                self._decide(chain)
        self._watched.discard(id(one))

    def _is_waiting(self, one: Pending) -> bool:
        call = one.call
        return one in (self._readers.get(call.stdin.joint), self._writers.get(call.stdout.joint))

    def _decide(self, chain: list[Pending]) -> None:
        for one in chain:
            for ends, inode in ((self._readers, one.call.stdin.joint), (self._writers, one.call.stdout.joint)):
                if inode:
                    ends.pop(inode, None)
                    self._decided[inode] = None
        self._task(self._whole(chain))

    def _task(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
