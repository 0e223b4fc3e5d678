"""LLVM itself, through llvmlite: text to object code, and object code into this process."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import llvmlite
import llvmlite.binding as llvm

_CODE_MODEL = "large"
"""Code finds its constants at any distance: in a process with little free address space they may be mapped over 2 GiB
apart, where code of the small model ends the process."""

VERSION = f"llvmlite {llvmlite.__version__}, LLVM {'.'.join(map(str, llvm.llvm_version_info))}, {_CODE_MODEL} code"


@functools.cache
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def machine_for(triple: str, cpu: str, features: str) -> Any:
    """A target machine of its own for each use: engines that share one crash."""
    _initialise()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=2, reloc="pic", codemodel=_CODE_MODEL
    )


def optimised(text: str, machine: Any) -> Any:
    """The module of a text, verified, whose loops are left as they are written."""
    module = llvm.parse_assembly(text)
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=1)
    options.loop_vectorization = options.slp_vectorization = options.loop_unrolling = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module


class LoadedCode:
    """Object code in this process. The engine and its machine live as long as this does."""

    def __init__(self, data: bytes, triple: str, machine: Any) -> None:
        self._machine = machine
        module = llvm.parse_assembly("")
        module.triple = triple
        self._engine = llvm.create_mcjit_compiler(module, self._machine)
        self._engine.add_object_file(llvm.object_file.ObjectFileRef.from_data(data))
        self._engine.finalize_object()

    def function(self, name: str, result: Any, *arguments: Any) -> Callable[..., Any]:
        """The function of this name, of ctypes' types. It lets other threads of Python run meanwhile."""
        return ctypes.CFUNCTYPE(result, *arguments)(self._engine.get_function_address(name))
