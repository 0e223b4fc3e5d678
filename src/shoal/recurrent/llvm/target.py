"""Targets of code: the vector width, the registers, and the instructions for short numbers."""

from __future__ import annotations

import functools
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Int8Dot(StrEnum):
    """How four products of 8-bit integers are summed in a 32-bit lane."""

    VNNI_512 = "vpdpbusd zmm"
    VNNI_256 = "vpdpbusd ymm"
    """AVX-512 VNNI on short vectors, or AVX-VNNI."""
    PAIRS = "vpmaddubsw"
    """AVX2: pairs in 16 bits, which the sign trick keeps from saturating, then pairs of those."""
    NEON = "sdot"
    PLAIN = "plain"


class Bf16Dot(StrEnum):
    NATIVE = "vdpbf16ps"
    WIDEN = "widen"
    """Halves become fp32 by a shift; products and sums are fp32."""


@dataclass(frozen=True, slots=True)
class Target:
    """`features` is LLVM's list; it is part of what names a kernel in the cache, so that no kernel runs on a machine
    without them."""

    name: str
    triple: str
    cpu: str
    features: str
    lanes: int
    registers: int
    int8: Int8Dot
    bf16: Bf16Dot

    @property
    def unsigned(self) -> bool:
        """Whether the vector's 8-bit integers are stored with 128 added."""
        return self.int8 in (Int8Dot.VNNI_512, Int8Dot.VNNI_256)

    @property
    def fused(self) -> bool:
        """Whether it multiplies and adds in one instruction."""
        return not self.x86 or "+fma" in self.features

    @property
    def x86(self) -> bool:
        return self.triple.startswith("x86_64")


_X86, _ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"
_AVX2 = "+avx,+avx2,+fma,+f16c,+bmi,+bmi2,+sse4.2,+popcnt"
_AVX512 = f"{_AVX2},+avx512f,+avx512bw,+avx512vl,+avx512dq,-prefer-256-bit"

TARGETS: Mapping[str, Target] = {
    one.name: one
    for one in (
        Target("avx512-bf16", _X86, "x86-64-v4", f"{_AVX512},+avx512vnni,+avx512bf16", 16, 32, Int8Dot.VNNI_512,
               Bf16Dot.NATIVE),
        Target("avx512-vnni", _X86, "x86-64-v4", f"{_AVX512},+avx512vnni", 16, 32, Int8Dot.VNNI_512, Bf16Dot.WIDEN),
        Target("avx-vnni", _X86, "x86-64-v3", f"{_AVX2},+avxvnni", 8, 16, Int8Dot.VNNI_256, Bf16Dot.WIDEN),
        Target("avx2", _X86, "x86-64-v3", _AVX2, 8, 16, Int8Dot.PAIRS, Bf16Dot.WIDEN),
        Target("sse2", _X86, "x86-64", "", 4, 16, Int8Dot.PLAIN, Bf16Dot.WIDEN),
        Target("neon-dot", _ARM, "generic", "+neon,+dotprod", 4, 32, Int8Dot.NEON, Bf16Dot.WIDEN),
        Target("neon", _ARM, "generic", "+neon", 4, 32, Int8Dot.PLAIN, Bf16Dot.WIDEN),
    )
}  # fmt: skip
"""Best first for each architecture. "sse2" is what every x86-64 has: plain vectors."""

_NEEDS: Mapping[str, frozenset[str]] = {
    name: frozenset(one[1:] for one in target.features.split(",") if one.startswith("+"))
    for name, target in TARGETS.items()
}


def fitting(machine: str, features: frozenset[str]) -> list[Target]:
    """The targets that a machine with these features can run, best first."""
    arm = machine in ("aarch64", "arm64")
    return [one for one in TARGETS.values() if one.x86 is not arm and _NEEDS[one.name] <= features]


@functools.cache
def host_features() -> frozenset[str]:
    """The features of this processor, by LLVM's names, as the operating system lets them be used."""
    import llvmlite.binding as llvm

    return frozenset(name for name, there in llvm.get_host_cpu_features().items() if there)


@functools.cache
def host_target() -> Target | None:
    """The best target of this machine; None for an architecture that there is no code for."""
    machine = platform.machine()
    if machine not in ("x86_64", "aarch64", "arm64"):
        return None
    return next(iter(fitting(machine, host_features())), None)
