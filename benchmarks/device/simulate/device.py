"""A simulated device: an event loop in nanoseconds, and two ways in which processes share what does not preempt.

`TimeSliced` runs the kernels of one process at a time, as devices do for processes that know nothing of each other.
`Shared` runs the blocks of all at once, as under MPS: a block that has begun ends.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from device.simulate.workloads import DeviceSpec, SimulatedKernel


class Loop:
    """Runs callbacks in the order of their times, and of their making where times are equal."""

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[[], None]]] = []
        self._made = 0

    def at(self, when: int, then: Callable[[], None]) -> None:
        self._made += 1
        heapq.heappush(self._heap, (when if when > self.now else self.now, self._made, then))

    def run(self, until: int) -> None:
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until:
            self.now, _, then = pop(heap)
            then()
        self.now = until


@dataclass(slots=True, eq=False)
class Piece:
    """`blocks` of a kernel, launched at once. `done` is told how many have run: fewer than all after a stop."""

    owner: int
    kernel: SimulatedKernel
    blocks: int
    done: Callable[[Piece, int], None]
    cost_ns: int = 0
    ticket: bool = False
    """Can be stopped between its blocks."""
    left_ns: int = 0
    began: int = -1
    ran_ns: int = 0
    stopped_at: int = -1
    pending: int = field(init=False)
    running: int = 0

    def __post_init__(self) -> None:
        self.pending = self.blocks


class TimeSliced:
    def __init__(self, loop: Loop, spec: DeviceSpec) -> None:
        self._loop, self._spec = loop, spec
        self._queues: dict[int, deque[Piece]] = {}
        self._current = -1
        self._since = 0
        self._running: Piece | None = None
        self._ends = 0
        self._turn = 0
        """Events of an earlier turn are void."""
        self._switching = self._timed = False

    def put(self, piece: Piece) -> None:
        piece.left_ns = self._spec.start_ns + piece.kernel.takes(piece.blocks)
        self._queues.setdefault(piece.owner, deque()).append(piece)
        if self._running is None:
            if not self._switching:
                self._next()
        elif piece.owner != self._current:
            self._watch()

    def stop(self, owner: int) -> None:
        """The ticket kernels of `owner` begin no more blocks: those of this wave end, the rest is handed back."""
        for piece in self._queues.get(owner, ()):
            if piece.ticket:
                self._cut(piece, piece.ran_ns)
        running = self._running
        if running is not None and running.owner == owner and running.ticket:
            self._cut(running, running.ran_ns + self._loop.now - running.began)
            if running.began + running.left_ns < self._ends:
                self._start(running)

    def _cut(self, piece: Piece, ran: int) -> None:
        kernel = piece.kernel
        waves = max(-(-(ran - self._spec.start_ns) // kernel.block_ns), 0)
        blocks = min(waves * kernel.wave, piece.blocks)
        if piece.stopped_at < 0:
            piece.stopped_at = self._loop.now
            piece.pending = blocks
            piece.left_ns = max(self._spec.start_ns + waves * kernel.block_ns - piece.ran_ns, 0)

    def _watch(self) -> None:
        """Ends the time slice when it is over, now that another process waits."""
        if self._timed:
            return
        self._timed = True
        turn, length = self._turn, self._spec.timeslice_ns
        slices = -(-max(self._loop.now - self._since, 1) // length)  # a slice that none waited for begins anew
        self._loop.at(self._since + slices * length, lambda: self._over(turn))

    def _over(self, turn: int) -> None:
        if turn != self._turn or self._running is None:
            return
        piece = self._running
        piece.ran_ns += self._loop.now - piece.began
        piece.left_ns -= self._loop.now - piece.began
        self._queues[piece.owner].appendleft(piece)
        self._running = None
        self._change(self._waiting(), self._spec.preempt_ns)

    def _waiting(self) -> int:
        others = [owner for owner, queue in self._queues.items() if queue and owner != self._current]
        after = [owner for owner in others if owner > self._current]
        return min(after or others)

    def _next(self) -> None:
        if self._queues.get(self._current):
            self._start(self._queues[self._current].popleft())
            if any(queue for owner, queue in self._queues.items() if owner != self._current):
                self._watch()
        elif any(self._queues.values()):
            self._change(self._waiting(), self._spec.switch_ns if self._current >= 0 else 0)

    def _change(self, owner: int, cost: int) -> None:
        self._turn += 1
        self._timed = False
        self._switching = True

        def changed() -> None:
            self._switching = False
            self._current, self._since = owner, self._loop.now
            self._next()

        self._loop.at(self._loop.now + cost, changed)

    def _start(self, piece: Piece) -> None:
        if self._running is not piece:
            self._running, piece.began = piece, self._loop.now
        self._ends = ends = piece.began + piece.left_ns

        def end() -> None:
            if self._running is piece and self._ends == ends:
                self._running = None
                ran = piece.pending if piece.stopped_at >= 0 else piece.blocks
                piece.ran_ns += self._loop.now - piece.began
                piece.done(piece, ran)
                if self._running is None and not self._switching:
                    self._next()

        self._loop.at(ends, end)


class Shared:
    """`priority`: pending blocks of the lowest owner begin first; else those of the kernel that came first."""

    def __init__(self, loop: Loop, spec: DeviceSpec, *, priority: bool) -> None:
        self._loop, self._spec, self._priority = loop, spec, priority
        self._queues: dict[int, deque[Piece]] = {}
        self._free = 1.0
        self._held: dict[int, float] = {}
        self._came = 0
        self._order: dict[int, int] = {}

    def put(self, piece: Piece) -> None:
        queue = self._queues.setdefault(piece.owner, deque())
        queue.append(piece)
        if len(queue) == 1:
            self._head(piece)

    def stop(self, owner: int) -> None:
        raise NotImplementedError("only a gated system stops a piece")

    def _head(self, piece: Piece) -> None:
        def ready() -> None:
            self._came += 1
            self._order[piece.owner] = self._came
            piece.began = self._loop.now
            self._fill()

        self._loop.at(self._loop.now + self._spec.start_ns, ready)

    def _fill(self) -> None:
        heads = [queue[0] for queue in self._queues.values() if queue and queue[0].began >= 0 and queue[0].pending]
        heads.sort(key=lambda one: one.owner if self._priority else self._order[one.owner])
        for piece in heads:
            fits = min(int((self._free + 1e-9) * piece.kernel.wave), piece.pending)
            if fits:
                self._begin(piece, fits)
            if piece.pending:
                return  # a kernel begins after all blocks of the one before it

    def _begin(self, piece: Piece, blocks: int) -> None:
        owner, part = piece.owner, blocks / piece.kernel.wave
        piece.pending -= blocks
        piece.running += blocks
        self._free -= part
        beside = any(held > 1e-9 for other, held in self._held.items() if other != owner)
        self._held[owner] = self._held.get(owner, 0.0) + part
        took = round(piece.kernel.block_ns * (1 + self._spec.interference * beside))

        def end() -> None:
            piece.running -= blocks
            self._free = min(self._free + part, 1.0)
            self._held[owner] -= part
            if not piece.pending and not piece.running:
                queue = self._queues[owner]
                queue.popleft()
                if queue:
                    self._head(queue[0])
                piece.done(piece, piece.blocks)
            self._fill()

        self._loop.at(self._loop.now + took, end)
