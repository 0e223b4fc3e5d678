"""Runs PTX on a processor, to compare what two programs do.

All threads of a block that stand at the same instruction execute it together; of several such groups the one furthest
back comes first, and blocks run one after another. Given a source of chance, groups and blocks take turns as it comes,
each for a few instructions, which shows what only a lucky order hides. Approximate
instructions (`ex2.approx`) and fused ones are rounded as numpy rounds them, so results can be compared with each
other, but not bit for bit with a device's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from random import Random

import numpy as np
import numpy.typing as npt

from shoal.device.ptx.launch import Grid
from shoal.device.ptx.tree import Declaration, Module
from tests.device.ptx.operations import Barrier, Operation, compile_program
from tests.device.ptx.program import LOCAL_WINDOW, SHARED_WINDOW, InterpreterError, Program, link

Array = npt.NDArray[np.generic]

WARP = 32
_RUNNING, _AT_BARRIER, _DONE = 0, 1, 2


class BadAddress(InterpreterError):
    """An access outside all memory, or to an address that its size does not divide."""


class Stuck(InterpreterError):
    """No thread can go on, or the threads go on forever."""


class Interpreter:
    """A device with one module on it."""

    def __init__(self, module: Module, *, memory_bytes: int = 1 << 18, max_steps: int = 2_000_000) -> None:
        self._module = module
        self._max_steps = max_steps
        self.memory = np.zeros(memory_bytes, np.uint8)
        self._top = 256  # address 0 is nothing's
        self._programs: dict[str, tuple[Program, list[Operation], list[str]]] = {}
        self._symbols: dict[str, int] = {}
        for item in module.items:
            if isinstance(item, Declaration) and item.space in ("global", "const"):
                for declarator in item.declarators:
                    place = self.allocate(max(1, item.bytes_of(declarator)))
                    values = [int(word, 0) for word in declarator.initial if word[0].isdigit()]
                    size = item.element_bytes
                    self.write(place, b"".join(value.to_bytes(size, "little") for value in values))
                    self._symbols[declarator.name] = place

    def allocate(self, bytes_: int) -> int:
        place, self._top = self._top, -(-(self._top + bytes_) // 256) * 256
        if self._top > len(self.memory):
            raise InterpreterError("the device's memory is full")
        return place

    def write(self, address: int, data: bytes) -> None:
        self.memory[address : address + len(data)] = np.frombuffer(data, np.uint8)

    def read(self, address: int, bytes_: int) -> bytes:
        return self.memory[address : address + bytes_].tobytes()

    def launch(
        self,
        entry: str,
        grid: Grid,
        block: Grid,
        parameters: bytes,
        *,
        shared_bytes: int = 0,
        resident: int = 1,
        random: Random | None = None,
        before_block: Callable[[int], None] = lambda _started: None,
    ) -> None:
        """Run a grid to its end; `before_block` is called before each block with the number of those before it."""
        if entry not in self._programs:
            program = link(self._module, entry)
            self._programs[entry] = (program, *compile_program(program, self._symbols))
        program, operations, registers = self._programs[entry]
        if len(parameters) != program.parameter_bytes:
            raise InterpreterError(f"{entry} takes {program.parameter_bytes} bytes, not {len(parameters)}")
        numbers = [(x, y, z) for z in range(grid[2]) for y in range(grid[1]) for x in range(grid[0])]
        if random is not None:
            random.shuffle(numbers)
        steps = [self._max_steps]
        running: list[Iterator[None]] = []
        started = 0
        while running or started < len(numbers):
            while len(running) < resident and started < len(numbers):
                before_block(started)
                state = BlockState(
                    self.memory, program, registers, grid, block, numbers[started], parameters, shared_bytes
                )
                running.append(state.run(operations, steps, random))
                started += 1
            one = running[0 if random is None else random.randrange(len(running))]
            with np.errstate(all="ignore"):
                if next(one, "end") == "end":
                    running.remove(one)


class BlockState:
    """Registers, memory and program counters of one block's threads."""

    def __init__(
        self,
        memory: npt.NDArray[np.uint8],
        program: Program,
        registers: list[str],
        grid: Grid,
        block: Grid,
        number: Grid,
        parameters: bytes,
        shared_bytes: int,
    ) -> None:
        self.threads = block[0] * block[1] * block[2]
        self.memory = memory
        self.parameters = np.frombuffer(parameters + bytes(8), np.uint8)
        self.shared = np.zeros(-(-(program.shared_bytes + shared_bytes) // 16) * 16, np.uint8)
        self.local = np.zeros((self.threads, -(-program.local_bytes // 16) * 16), np.uint8)
        self.registers = np.zeros((len(registers), self.threads), np.uint64)
        self._everyone = np.arange(self.threads)
        special = _special(self._everyone, grid, block, number)
        for slot, name in enumerate(registers):
            if name in special:
                self.registers[slot] = special[name]
        self._pc = np.zeros(self.threads, np.int64)
        self._state = np.zeros(self.threads, np.int8)
        self._apart = np.zeros(self.threads, bool)
        self._barriers: dict[int, list[tuple[Barrier, npt.NDArray[np.int64], int]]] = defaultdict(list)

    def run(self, operations: list[Operation], steps: list[int], random: Random | None) -> Iterator[None]:
        while (self._state != _DONE).any():
            running = self._state == _RUNNING
            ahead = running & ~self._apart
            if not ahead.any():
                raise Stuck("threads wait for threads that never come")
            at = int(self._pc[ahead].min() if random is None else random.choice(np.unique(self._pc[ahead]).tolist()))
            group = np.flatnonzero(running & (self._pc == at))
            others = self._pc[running & (self._pc > at)]
            end = int(others.min()) if len(others) else len(operations)
            self._execute(operations, at, end if random is None else min(end, at + random.randint(1, 24)), group, steps)
            yield

    def _execute(
        self, operations: list[Operation], at: int, end: int, group: npt.NDArray[np.int64], steps: list[int]
    ) -> None:
        """Execute for a group up to the next branch, barrier, or other group."""
        while at < end:
            operation = operations[at]
            steps[0] -= 1
            if steps[0] < 0:
                raise Stuck("the launch does not end")
            active = group
            if operation.guard is not None:
                slot, negated = operation.guard
                active = group[(self.registers[slot][group] != 0) ^ negated]
            at += 1
            if operation.warp is not None:
                ready = self._together(active, operation.warp(self, active))
                operation.run(self, ready)
                self._pc[group] = at
                late = np.setdiff1d(active, ready)
                self._pc[late] = at - 1
                self._apart[group], self._apart[late] = False, True
                return
            if len(active):
                operation.run(self, active)
            if operation.jumps is not None:
                self._pc[group] = at
                self._pc[active] = operation.jumps(self, active)
                return
            if operation.ends:
                self._pc[group] = at
                self._leave(active)
                return
            if operation.barrier is not None and len(active):
                self._pc[group] = at
                self._arrive(operation.barrier, active)
                return
        self._pc[group] = at
        if at == len(operations):
            self._leave(group)

    def _together(self, active: npt.NDArray[np.int64], masks: Array) -> npt.NDArray[np.int64]:
        """Those of the threads whose whole company, as their mask names it, stands here."""
        here = np.zeros(self.threads, bool)
        here[active] = True
        missing = (self._state != _DONE) & ~here
        if not missing.any():
            return active
        lanes = np.uint64(1) << (self._everyone % WARP).astype(np.uint64)
        ready = []
        for thread, mask in zip(active.tolist(), masks.tolist(), strict=True):
            warp = slice(thread // WARP * WARP, (thread // WARP + 1) * WARP)
            if not (missing[warp] & ((lanes[warp] & np.uint64(mask)) != 0)).any():
                ready.append(thread)
        return np.array(ready, np.int64)

    def _leave(self, group: npt.NDArray[np.int64]) -> None:
        self._state[group] = _DONE
        self._apart[:] = False
        for identity in list(self._barriers):
            self._release(identity)

    def _arrive(self, barrier: Barrier, group: npt.NDArray[np.int64]) -> None:
        identity, count = barrier.of(self, group)
        self._barriers[identity].append((barrier, group, count))
        if barrier.waits:
            self._state[group] = _AT_BARRIER
        self._release(identity)

    def _release(self, identity: int) -> None:
        arrived = self._barriers[identity]
        number = sum(len(group) for _, group, _ in arrived)
        counts = [count for _, _, count in arrived if count]
        if arrived and number >= (counts[0] if counts else int((self._state != _DONE).sum())):
            everyone = np.concatenate([group for _, group, _ in arrived])
            for barrier, group, _ in arrived:
                barrier.finish(self, group, everyone)
                if barrier.waits:
                    self._state[group] = _RUNNING
            del self._barriers[identity]

    # Memory

    def load(self, space: str, addresses: Array, bytes_: int, lanes: npt.NDArray[np.int64]) -> Array:
        values = np.zeros(len(lanes), f"u{bytes_}")
        for part, where, offsets in self._parts(space, addresses, bytes_):
            table = self._table(part).view(f"u{bytes_}")
            values[where] = table[lanes[where], offsets] if part == "local" else table[offsets]
        return values

    def store(self, space: str, addresses: Array, values: Array, lanes: npt.NDArray[np.int64]) -> None:
        for part, where, offsets in self._parts(space, addresses, values.itemsize):
            table = self._table(part).view(values.dtype)
            if part == "local":
                table[lanes[where], offsets] = values[where]
            else:
                table[offsets] = values[where]

    def _table(self, space: str) -> npt.NDArray[np.uint8]:
        if space == "local":
            return self.local
        return self.shared if space == "shared" else self.memory

    def _parts(self, space: str, addresses: Array, bytes_: int) -> Iterator[tuple[str, Array, Array]]:
        """Which of the accesses go to which memory, and to which element there."""
        wide = addresses.astype(np.int64)
        if space == "generic":
            shared = (wide >= SHARED_WINDOW) & (wide < LOCAL_WINDOW)
            local = wide >= LOCAL_WINDOW
            split = [("global", ~shared & ~local, 0), ("shared", shared, SHARED_WINDOW), ("local", local, LOCAL_WINDOW)]
        else:
            split = [(space, np.ones(len(wide), bool), 0)]
        for part, where, base in split:
            if not where.any():
                continue
            offsets = wide[where] - base
            size = self._table(part).shape[-1]
            wrong = (offsets < (256 if part == "global" else 0)) | (offsets + bytes_ > size) | (offsets % bytes_ != 0)
            if wrong.any():
                raise BadAddress(f"{part} memory at {int(offsets[wrong][0]):#x}, {bytes_} bytes")
            yield part, where, offsets // bytes_


def _special(threads: npt.NDArray[np.int64], grid: Grid, block: Grid, number: Grid) -> dict[str, Array]:
    lane = (threads % WARP).astype(np.uint64)
    bit = np.uint64(1) << lane
    below = bit - np.uint64(1)
    full = np.uint64(0xFFFFFFFF)
    found: dict[str, Array] = {
        "%laneid": lane,
        "%warpid": threads // WARP,
        "%lanemask_eq": bit,
        "%lanemask_lt": below,
        "%lanemask_le": below | bit,
        "%lanemask_gt": full & ~(below | bit),
        "%lanemask_ge": full & ~below,
    }
    position = (threads % block[0], threads // block[0] % block[1], threads // (block[0] * block[1]))
    for axis, name in enumerate("xyz"):
        found[f"%tid.{name}"] = position[axis]
        found[f"%ntid.{name}"] = np.full(len(threads), block[axis])
        found[f"%ctaid.{name}"] = np.full(len(threads), number[axis])
        found[f"%nctaid.{name}"] = np.full(len(threads), grid[axis])
    return found
