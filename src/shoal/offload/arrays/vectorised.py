"""PyTorch's vectorised functions in place of scalar ones of SciPy, within the blocks of a program.

PyTorch takes a second or more to import. It is imported in the background, and only after the scalar functions have
taken longer than that in this process or in one before.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from shoal.offload.arrays.program import INPUT, OUTPUT, SCRATCH, Operation, Program
from shoal.offload.trust import Trust

Function = Callable[..., Any]

_NAMES: Mapping[str, str] = {"erf": "erf", "erfc": "erfc", "expit": "sigmoid"}
"""SciPy's name and PyTorch's. They raise no floating point warning in either."""

_TOLERANCE: Mapping[str, float] = {"d": 4e-15, "f": 2e-6}
"""Relative, by type of element."""

_BLOCK = 32768
"""PyTorch works on larger arrays in threads of its own, which the blocks have already."""


class Vectorised:
    """The functions that can be replaced, as soon as PyTorch is there."""

    def __init__(self, trust: Trust, *, allowed: bool, wait: bool) -> None:
        self._trust, self._wait = trust, wait
        self.installed = allowed and importlib.util.find_spec("torch") is not None
        self._loading: threading.Thread | None = None
        self._made: dict[str, Function] = {}

    @property
    def ready(self) -> bool:
        """Whether PyTorch is imported, wholly."""
        if self._loading is not None and not self._loading.is_alive():
            self._loading = None
        return self.installed and self._loading is None and "torch" in sys.modules

    def load(self) -> None:
        """Begin to import it."""
        if not self.installed or self.ready or self._loading is not None:
            return
        if self._wait:
            importlib.import_module("torch")
            return
        self._loading = threading.Thread(target=importlib.import_module, args=("torch",), daemon=True)
        self._loading.start()

    def candidates(self, program: Program) -> list[Operation]:
        """The operations that would be faster."""
        if not self.installed:
            return []
        return [one for one in program.operations if one.ufunc.__name__ in _NAMES and _floating(program, one)]

    def replacements(self, program: Program) -> dict[Any, Function]:
        """Functions in place of ufuncs, for those whose results were compared."""
        if not self.ready:
            return {}
        found: dict[Any, Function] = {}
        refused: set[Any] = set()
        candidates = {id(one) for one in self.candidates(program)}
        for one in program.operations:
            if id(one) not in candidates or not self._trusted(one.ufunc, one.dtype.char):
                refused.add(one.ufunc)
            else:
                found[one.ufunc] = self._function(one.ufunc)
        return {ufunc: function for ufunc, function in found.items() if ufunc not in refused}

    def _trusted(self, ufunc: Any, char: str) -> bool:
        def mine(values: np.ndarray) -> np.ndarray:
            out = np.empty_like(values)
            self._function(ufunc)(values, out=out)  # an old PyTorch may not have it
            return out

        name = ufunc.__name__
        return self._trust.of("torch", name, char, lambda: (ufunc, mine), _TOLERANCE[char])

    def _function(self, ufunc: Any) -> Function:
        name = ufunc.__name__
        if name not in self._made:
            import torch

            fast = getattr(torch, _NAMES[name])

            def call(values: np.ndarray, out: np.ndarray) -> None:
                if not values.flags.c_contiguous or not values.flags.writeable or values.size > _BLOCK:
                    ufunc(values, out=out)
                else:
                    fast(torch.from_numpy(values), out=torch.from_numpy(out))

            self._made[name] = call
        return self._made[name]


def _floating(program: Program, operation: Operation) -> bool:
    """Whether it takes and gives the same floating point type."""
    where, value = operation.arguments[0]
    types = {INPUT: lambda: program.inputs[value].dtype, SCRATCH: lambda: program.scratch[value],
             OUTPUT: lambda: program.outputs[value].dtype}  # fmt: skip
    return operation.dtype.char in _TOLERANCE and where in types and types[where]() == operation.dtype
