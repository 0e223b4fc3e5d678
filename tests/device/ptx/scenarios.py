"""Launches of the corpus's entries: what each one is given, and what its memory holds afterwards."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

import numpy as np

from shoal.device.ptx.launch import Grid, blocks_in, control_bytes, launch_parameter, slices, with_launch_parameter
from shoal.device.ptx.parser import parse
from shoal.device.ptx.transform import Transformed, transform
from shoal.device.ptx.tree import Module
from tests.device.ptx.interpreter import Interpreter

CORPUS = Path(__file__).parent / "corpus"

Give = Callable[["Arguments"], None]


class Arguments:
    """Parameters in order, and the buffers that some point to."""

    def __init__(self, device: Interpreter) -> None:
        self._device = device
        self._random = np.random.default_rng(1)
        self._packed = b""

    def pack(self, format_: str, *values: float) -> None:
        size = struct.calcsize("<" + format_[-1])
        self._packed += bytes(-len(self._packed) % size) + struct.pack("<" + format_, *values)

    def buffer(self, values: np.ndarray) -> None:
        place = self._device.allocate(values.nbytes)
        self._device.write(place, values.tobytes())
        self.pack("Q", place)

    def floats(self, count: int, kind: type = np.float32) -> None:
        self.buffer(self._random.uniform(-1, 1, count).astype(kind))

    def integers(self, count: int, below: int, kind: type = np.int32) -> None:
        self.buffer(self._random.integers(0, below, count).astype(kind))

    def zeros(self, count: int, kind: type = np.int32) -> None:
        self.buffer(np.zeros(count, kind))

    @property
    def bytes(self) -> bytes:
        return self._packed


@dataclass(frozen=True)
class Scenario:
    file: str
    entry: str
    grid: Grid
    block: Grid
    give: Give
    shared_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.file.removesuffix('.ptx')}-{self.entry}"


@cache
def original(file: str) -> Module:
    return parse((CORPUS / file).read_text())


@cache
def transformed(file: str) -> Transformed:
    return transform((CORPUS / file).read_text())


@cache
def transformed_module(file: str) -> Module:
    return parse(transformed(file).text)


class Run:
    """One device with the scenario's buffers on it."""

    def __init__(self, scenario: Scenario, module: Module, grid: Grid | None = None) -> None:
        self.scenario = scenario
        self.grid = grid or scenario.grid
        self.device = Interpreter(module, memory_bytes=1 << 17, max_steps=50_000)
        arguments = Arguments(self.device)
        scenario.give(arguments)
        self.parameters = arguments.bytes
        self._control = self.device.allocate(control_bytes(self.grid))

    @property
    def result(self) -> bytes:
        """All memory but the control block, which lies behind the buffers."""
        return self.device.read(0, self._control)

    def whole(self, random: Random | None = None) -> Run:
        self.device.launch(
            self.scenario.entry,
            self.grid,
            self.scenario.block,
            self.parameters,
            shared_bytes=self.scenario.shared_bytes, random=random,
        )  # fmt: skip
        return self

    def sliced(self, blocks: int) -> Run:
        for base, count in slices(self.grid, blocks):
            self._launch("slice", count, launch_parameter(self.grid, base=base))
        return self

    def ticketed(self, stops: tuple[int, ...] = (), *, random: Random | None = None, resident: int = 1) -> Run:
        """Launch until all blocks are done; each launch but the last is told to stop before its n-th block."""
        for stop in (*stops, None):
            if self.claimed < blocks_in(self.grid):
                self.stop_before(stop, random=random, resident=resident)
        return self

    def stop_before(
        self, stop: int | None, *, random: Random | None = None, resident: int = 1, too_many: int = 0
    ) -> None:
        """One launch of what is left."""
        self._write_stop(0)

        def before_block(started: int) -> None:
            if started == stop:
                self._write_stop(1)

        launch = launch_parameter(self.grid, control=self._control)
        left = blocks_in(self.grid) - self.claimed + too_many
        self._launch("ticket", left, launch, random=random, resident=resident, before_block=before_block)

    @property
    def beyond(self) -> bytes:
        """What lies behind the control block, which nothing may write."""
        return self.device.read(self._control + control_bytes(self.grid), 64)

    @property
    def claimed(self) -> int:
        return int.from_bytes(self.device.read(self._control + 4, 4), "little")

    def _write_stop(self, stop: int) -> None:
        self.device.write(self._control, struct.pack("<I", stop))

    def _launch(self, mode: str, blocks: int, launch: bytes, **how: object) -> None:
        self.device.launch(
            f"{self.scenario.entry}__shoal_{mode}", (blocks, 1, 1), self.scenario.block,
            with_launch_parameter(self.parameters, launch), shared_bytes=self.scenario.shared_bytes, **how,
        )  # fmt: skip


def _saxpy(a: Arguments) -> None:
    a.pack("i", 100)
    a.pack("f", 2.5)
    a.floats(112)
    a.floats(112)


def _block_sum(a: Arguments) -> None:
    a.floats(700)
    a.zeros(8)
    a.pack("i", 700)


def _warp(a: Arguments) -> None:
    a.integers(192, 100)
    a.zeros(192)


def _histogram(a: Arguments) -> None:
    a.integers(200, 256, np.uint8)
    a.zeros(32)
    a.pack("i", 200)


def _last_block(a: Arguments) -> None:
    a.floats(6)
    a.zeros(6)
    a.zeros(1)
    a.zeros(1)


def _early(a: Arguments) -> None:
    a.floats(160)
    a.pack("i", 40)


def _float_max(a: Arguments) -> None:
    a.buffer(np.linspace(0, 1, 96).astype(np.float32)[::-1].copy())
    a.zeros(1)


def _structure(a: Arguments) -> None:
    a.pack("q", 16)
    a.pack("h", 2)
    a.pack("b", -3)
    a.pack("d", 1.5)
    a.zeros(80, np.float64)


def _vectors(a: Arguments) -> None:
    a.floats(4 * 64)
    a.floats(4 * 64)


def _local(a: Arguments) -> None:
    a.buffer(np.array([3, 1, 4, 0, 5, 7, 2, 6], np.int32))
    a.zeros(64)


def _halves(a: Arguments) -> None:
    a.floats(64, np.float16)
    a.zeros(64, np.float16)


def _add(a: Arguments) -> None:
    for _ in range(3):
        a.floats(1024)
    a.pack("i", 1000)
    a.pack("Q", 0)
    a.pack("Q", 0)


def _softmax(a: Arguments) -> None:
    a.floats(3 * 200)
    a.zeros(3 * 200)
    a.pack("i", 200)
    a.pack("Q", 0)
    a.pack("Q", 0)


def _matmul(a: Arguments) -> None:
    a.floats(32 * 32, np.float16)
    a.floats(32 * 32, np.float16)
    a.zeros(32 * 32)
    a.pack("3i", 32, 32, 32)
    a.pack("Q", 0)
    a.pack("Q", 0)


_CUDA: dict[str, tuple[Grid, Grid, Give, int]] = {
    "saxpy": ((7, 1, 1), (16, 1, 1), _saxpy, 0),
    "block_sum": ((5, 1, 1), (64, 1, 1), _block_sum, 0),
    "three_dimensions": ((3, 2, 2), (2, 3, 2), lambda a: a.zeros(144), 0),
    "early_exit": ((4, 1, 1), (64, 1, 1), _early, 0),
    "nothing": ((3, 1, 1), (32, 1, 1), lambda a: None, 0),
    "histogram": ((4, 1, 1), (64, 1, 1), _histogram, 0),
    "warp_sum": ((3, 1, 1), (64, 1, 1), _warp, 0),
    "votes": ((4, 1, 1), (48, 1, 1), _warp, 0),
    "last_block": ((6, 1, 1), (32, 1, 1), _last_block, 0),
    "float_max": ((3, 1, 1), (32, 1, 1), _float_max, 0),
    "calls": ((4, 1, 1), (16, 1, 1), lambda a: a.floats(64), 0),
    "jump_table": ((4, 1, 1), (16, 1, 1), lambda a: a.integers(64, 7), 0),
    "structure": ((4, 1, 1), (16, 1, 1), _structure, 0),
    "vectors": ((4, 1, 1), (16, 1, 1), _vectors, 0),
    "dynamic_shared": ((1, 4, 1), (16, 1, 1), lambda a: a.zeros(64), 64),
    "local_array": ((4, 1, 1), (16, 1, 1), _local, 0),
    "halves": ((4, 1, 1), (16, 1, 1), _halves, 0),
    "speaks": ((4, 1, 1), (16, 1, 1), lambda a: a.zeros(4), 0),
}


def _all() -> Iterator[Scenario]:
    for file in ("nvcc_sm80.ptx", "nvcc_sm100.ptx"):  # what cuobjdump extracts is the same tree
        for entry, (grid, block, give, shared) in _CUDA.items():
            yield Scenario(file, entry, grid, block, give, shared)
    for entry, threads in (("table", 16), ("scopes", 8), ("hand_over", 64), ("sides", 64), ("retry", 8)):
        yield Scenario("hand.ptx", entry, (3, 2, 1), (threads, 1, 1), lambda a: a.zeros(512))
    yield Scenario("triton_add.ptx", "add", (4, 1, 1), (128, 1, 1), _add)
    yield Scenario("triton_softmax.ptx", "softmax", (3, 1, 1), (128, 1, 1), _softmax, 64)
    yield Scenario("triton_matmul.ptx", "matmul", (2, 2, 1), (32, 1, 1), _matmul, 2048)


SCENARIOS = tuple(_all())
