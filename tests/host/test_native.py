"""The native library, driven through its binding; what is said where it is missing."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from pathlib import Path

import pytest
from host.kernels import MemoryKernel, run_kernel

from shoal.host.linux.native import ABI, LatencyProbe, Memory, Native, capability, load
from shoal.host.types import Missing

CHUNK = 256 << 10


@pytest.fixture(scope="module")
def native() -> Native:
    found = load()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


def two_cpus() -> tuple[int, int]:
    ours = sorted(os.sched_getaffinity(0))
    if len(ours) < 2:
        pytest.skip("it takes two CPUs")
    return ours[0], ours[1]


def test_absent_library_is_missing_and_says_what_to_install(tmp_path: Path) -> None:
    found = load(tmp_path)
    assert isinstance(found, Missing)
    assert "g++" in found.reason
    said = capability(tmp_path)
    assert not said.available
    assert "no latency probe" in said.consequence


def test_broken_library_is_missing(tmp_path: Path) -> None:
    (tmp_path / "libshoalhost.so").write_bytes(b"not a library")
    found = load(tmp_path)
    assert isinstance(found, Missing)
    assert "cannot be loaded" in found.reason


def test_foreign_library_is_missing(tmp_path: Path) -> None:
    libc = next(Path("/").glob("lib*/*/libm.so.6"), None) or next(Path("/").glob("usr/lib*/libm.so.6"), None)
    if libc is None:
        pytest.skip("no library to take for another")
    (tmp_path / "libshoalhost.so").symlink_to(libc)
    assert isinstance(load(tmp_path), Missing)


def test_the_interface_is_the_one_bound(native: Native) -> None:
    assert native.library.shoal_host_abi() == ABI
    assert capability().available


def test_probe_walks_one_cycle_through_every_line(native: Native) -> None:
    with Memory(native, 64 << 10) as memory:
        assert memory.address
        assert native.library.shoal_probe_lay(memory.address, memory.size) == 0
        lines = memory.size // 64
        data = ctypes.string_at(memory.address, memory.size)
        at, seen = 0, set()
        for _ in range(lines):
            seen.add(at)
            at = struct.unpack_from("<Q", data, at)[0]
        assert at == 0
        assert len(seen) == lines


def test_probe_goes_on_where_it_ended(native: Native) -> None:
    probe = LatencyProbe(native, size=1 << 20)
    try:
        assert probe.shot() > 0
        cursor = probe._cursor.value
        assert cursor != 0
        probe.shot()
        assert probe._cursor.value != cursor
    finally:
        probe.close()
    with pytest.raises(ValueError, match="closed"):
        probe.shot()


def test_probe_needs_lines_to_walk(native: Native) -> None:
    with pytest.raises(OSError, match="latency probe") as raised:
        LatencyProbe(native, size=64)
    assert raised.value.errno == errno.EINVAL


def test_ping_pong_between_two_cpus(native: Native) -> None:
    took = native.ping_pong(*two_cpus(), limit_s=5)
    assert isinstance(took, float)
    assert took > 0


def test_ping_pong_says_why_not(native: Native) -> None:
    cpu, _ = two_cpus()
    for other in (cpu, 1023, -1, 99999):
        took = native.ping_pong(cpu, other)
        assert isinstance(took, Missing)
        assert str(other) in took.reason


def test_ping_pong_gives_up(native: Native) -> None:
    a, b = two_cpus()
    took = native.ping_pong(a, b, rounds=1_000_000_000, repeats=1, limit_s=0.01)
    assert isinstance(took, Missing)


@pytest.mark.parametrize("kernel", list(MemoryKernel))
def test_kernels_count_what_they_move(native: Native, kernel: MemoryKernel) -> None:
    moved = ctypes.c_uint64(5)
    with Memory(native, 6 * CHUNK) as memory:
        run_kernel(native, kernel, None if kernel is MemoryKernel.SPIN else memory, 0.01, moved)
        data = ctypes.string_at(memory.address, memory.size)
    assert moved.value > 5
    if kernel is not MemoryKernel.SPIN:
        assert (moved.value - 5) % CHUNK == 0
    if kernel is MemoryKernel.NT_STORE:
        assert data[:CHUNK] == b"\7\0\0\0" * (CHUNK // 4)
    if kernel is MemoryKernel.READ:
        assert set(data) == {1}


def test_kernels_refuse_memory_that_is_too_small(native: Native) -> None:
    with Memory(native, 4096) as memory, pytest.raises(OSError, match="READ"):
        run_kernel(native, MemoryKernel.READ, memory, 0.01, ctypes.c_uint64())
