"""Kernels of recurrent layers through LLVM: text to object code, and object code into this process."""

from __future__ import annotations

import ctypes
from typing import Any

from shoal.base.machine_code import VERSION as VERSION
from shoal.base.machine_code import LoadedCode, machine_for
from shoal.base.machine_code import optimised as _module
from shoal.recurrent.llvm.kernel import ENTRY
from shoal.recurrent.llvm.target import Target


def _machine(target: Target) -> Any:
    return machine_for(target.triple, target.cpu, target.features)


def compile_object(text: str, target: Target) -> bytes:
    """The module as an ELF object."""
    machine = _machine(target)
    return bytes(machine.emit_object(_module(text, machine)))


class Loaded:
    """Object code in this process. The engine and its machine live as long as this does."""

    def __init__(self, data: bytes, target: Target) -> None:
        self._code = LoadedCode(data, target.triple, _machine(target))
        self.run = self._code.function(ENTRY, None, ctypes.c_void_p)
        """Call it with the address of a `Call`. It lets other threads of Python run meanwhile."""
