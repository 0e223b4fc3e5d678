"""NEON kernels on this machine: each call is a program of its own under `qemu-aarch64`, in a copy of its memory."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from shoal.recurrent.cells import library
from shoal.recurrent.layers.compiled import CompiledLayer
from shoal.recurrent.layers.kernel import Kernel
from shoal.recurrent.layers.layer import Schedules
from shoal.recurrent.llvm.engine import compile_object
from shoal.recurrent.llvm.kernel import ENTRY, emit
from shoal.recurrent.llvm.layout import ROW_BYTES, Call, Layout, Row
from shoal.recurrent.llvm.target import TARGETS, Target
from shoal.recurrent.nest.ir import Sizes
from shoal.recurrent.nest.transform import Schedule, lower
from shoal.recurrent.numbers import NumberType
from tests.recurrent.support import distance, reference, spec_for, states_for

QEMU, ASSEMBLER, LINKER = "qemu-aarch64", "aarch64-linux-gnu-as", "aarch64-linux-gnu-ld"
ARENA = 0x1000_0000
WINDOW = 64 * 1024
"""More than any block of these small layers has."""
POINTERS = (Row.STATE, Row.NEXT, Row.X, Row.Y, Row.PROJECTED, Row.SCRATCH, Row.SOURCE)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (shutil.which(QEMU) and shutil.which(LINKER)),
        reason=f"no {QEMU} or no {LINKER}: apt-get install qemu-user binutils-aarch64-linux-gnu",
    ),
]


def start_of(call: int, count: int) -> str:
    """Assembly: call the kernel, write the arena to the standard output, and end."""

    def put(register: str, value: int) -> list[str]:
        low, high = value & 0xFFFF, value >> 16
        return [f"movz {register}, #{low}", f"movk {register}, #{high}, lsl #16"]

    lines = [
        ".text", ".globl _start", "_start:", *put("x0", call), f"bl {ENTRY}", "mov x0, #1", *put("x1", ARENA),
        *put("x2", count), "mov x8, #64", "svc #0", "mov x0, #0", "mov x8, #93", "svc #0",
    ]  # fmt: skip
    return "\n".join([*lines, ""])


def numbers_at(address: int, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.frombuffer((ctypes.c_char * (8 * count)).from_address(address), np.int64)


def windows(addresses: list[int]) -> Iterator[tuple[int, int]]:
    """(start, end) of what this process has mapped around the addresses, none overlapping."""
    maps = [line.split()[:2] for line in Path("/proc/self/maps").read_text().splitlines()]
    known = [(*(int(side, 16) for side in span.split("-")), rights) for span, rights in maps]
    found: list[list[int]] = []
    for one in sorted(addresses):
        low = min(start for start, end, rights in known if rights.startswith("rw") and start <= one < end)
        high = max(end for start, end, rights in known if rights.startswith("rw") and start <= one < end)
        start, end = max(low, one - 4096), min(high, one + WINDOW)
        if found and start <= found[-1][1]:
            found[-1][1] = max(end, found[-1][1])
        else:
            found.append([start, end])
    return ((start, end) for start, end in found)


class Emulated:
    """A kernel for another machine, called as one of this."""

    def __init__(self, text: str, target: Target, folder: Path) -> None:
        self._text, self._target, self._folder = text, target, folder
        self.calls = 0

    def __call__(self, address: int) -> None:
        self.calls += 1
        call = numbers_at(address, len(Call))
        rows = int(call[Call.ROWS])
        records = numbers_at(int(call[Call.RECORDS]), rows * ROW_BYTES // 8).reshape(rows, -1)
        pointed = {int(one) for one in records[:, POINTERS].flat if one}
        spans = list(windows([address, int(call[Call.RECORDS]), int(call[Call.CONSTANTS]), *pointed]))
        places, at = [], ARENA
        for start, end in spans:
            places.append((start, end, at - start))
            at += end - start
        before = bytearray().join(ctypes.string_at(start, end - start) for start, end in spans)
        image = np.frombuffer(before, np.uint8).copy()

        def moved(host: int) -> int:
            return next((host + by for start, end, by in places if start <= host < end), host)

        def field(host: int) -> slice:
            return slice(moved(host) - ARENA, moved(host) - ARENA + 8)

        fields = [address + 8 * one for one in (Call.RECORDS, Call.CONSTANTS)]
        fields += [int(call[Call.RECORDS]) + ROW_BYTES * row + 8 * one for row in range(rows) for one in POINTERS]
        for one in fields:
            image[field(one)].view(np.int64)[0] = moved(int(numbers_at(one, 1)[0]))
        after = self._run(moved(address), image)
        for one in fields:  # as they are here: a step moves them on
            there = int(after[field(one)].view(np.int64)[0])
            numbers_at(one, 1)[0] = next((there - by for start, end, by in places if start <= there - by < end), there)
        own = np.zeros(len(image), bool)
        for one in fields:
            own[field(one)] = True
        for changed in np.flatnonzero((image != after) & ~own):
            host = next(
                s + changed - (s + by - ARENA) for s, e, by in places if 0 <= changed - (s + by - ARENA) < e - s
            )
            ctypes.c_uint8.from_address(int(host)).value = int(after[changed])

    def _run(
        self, call: int, image: np.ndarray[tuple[int], np.dtype[np.uint8]]
    ) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
        code, start, arena, program = (self._folder / name for name in ("kernel.o", "start.o", "arena.bin", "program"))
        code.write_bytes(compile_object(self._text, self._target))
        arena.write_bytes(image.tobytes())
        subprocess.run([ASSEMBLER, "-o", start, "-"], input=start_of(call, len(image)), text=True, check=True)
        objects = ["-b", "binary", arena, "-b", "elf64-littleaarch64", start, code]
        subprocess.run([LINKER, "-static", "-o", program, *objects, f"-Tdata={ARENA:#x}"], check=True)
        done = subprocess.run([QEMU, program], check=True, capture_output=True)
        return np.frombuffer(done.stdout, np.uint8)


@pytest.mark.parametrize("kind", NumberType)
@pytest.mark.parametrize("name", ["neon-dot", "neon"])
def test_kernels_give_the_numbers_of_the_reference(name: str, kind: NumberType, tmp_path: Path) -> None:
    target, noise = TARGETS[name], np.random.default_rng(0)
    spec = spec_for(library.gru(reset_after=False), Sizes(11, 37), kind=kind)
    x, states = noise.uniform(-1, 1, (3, 2, 11)).astype(np.float32), states_for(spec, 2, noise)
    made: list[Emulated] = []

    def compile_(one: Schedule) -> Kernel:
        nest = lower(spec.cell, spec.sizes, one, target.lanes)
        layout = Layout(nest, kind, target)
        made.append(Emulated(emit(layout), target, tmp_path))
        return Kernel(one, nest, layout, made[-1], None)

    schedule = Schedule(2, 2, 2, True, 2)
    out = np.empty((3, 2, 37), np.float32)
    CompiledLayer(spec, Schedules(schedule, schedule), compile_).run(x, states, None, out)
    assert sum(one.calls for one in made) == 1
    wanted, _ = reference(spec, x, states, kind)
    assert distance(out, wanted) < 2e-6
