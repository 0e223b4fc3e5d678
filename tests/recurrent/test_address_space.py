"""A kernel runs wherever its code and its constants were mapped."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes

from shoal.recurrent.llvm import engine
from shoal.recurrent.llvm.target import host_target

TEXT = '''
@numbers = internal constant [3 x double] [double 1.5, double 2.5, double 3.25], align 32
define void @%s(ptr %%place) {
  %%index = load i64, ptr %%place
  %%number = getelementptr [3 x double], ptr @numbers, i64 0, i64 %%index
  %%value = load double, ptr %%number
  %%sum = fadd double %%value, 4.125
  %%result = getelementptr i8, ptr %%place, i64 8
  store double %%sum, ptr %%result
  ret void
}
''' % engine.ENTRY

libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
PAGE, FAR = 4096, 3 << 30
RESERVED, ONLY_HERE = 0x4022, 0x100000  # private, anonymous, without a reservation of memory; MAP_FIXED_NOREPLACE


def fill_gaps_but_for_pages_far_apart():
    with open("/proc/self/maps") as maps:
        spans = [tuple(int(end, 16) for end in line.split()[0].split("-")) for line in maps]
    for (_, low), (high, _) in zip(spans, spans[1:]):
        if 0x7000_0000_0000 < low < high < 0x8000_0000_0000:
            libc.mmap(low, high - low, 0, RESERVED | ONLY_HERE, -1, 0)
    for _ in range(60):
        block = libc.mmap(None, FAR, 0, RESERVED, -1, 0)
        libc.munmap(block + FAR - PAGE, PAGE)


code = engine.compile_object(TEXT, host_target())
fill_gaps_but_for_pages_far_apart()
kept = []
for _ in range(40):
    kept.append(engine.Loaded(code, host_target()))
    memory = (ctypes.c_double * 2)()
    kept[-1].run(ctypes.addressof(memory))  # eight bytes of zero: the first number
    assert memory[1] == 5.625
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/self/maps")
def test_code_and_constants_may_lie_far_apart() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
