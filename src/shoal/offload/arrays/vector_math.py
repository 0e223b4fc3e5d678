"""The vectorised mathematical functions of the C library (glibc's libmvec), for compiled kernels.

Their names follow the vector function ABI of x86-64: `_ZGVdN4v_exp` takes four doubles in a register of AVX2. They are
within 4 units of the last place; special values are those of the scalar functions.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping

NAMES: Mapping[str, str] = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sin": "sin", "cos": "cos", "tan": "tan", "arcsin": "asin", "arccos": "acos", "arctan": "atan", "sinh": "sinh",
    "cosh": "cosh", "tanh": "tanh", "arcsinh": "asinh", "arccosh": "acosh", "arctanh": "atanh", "cbrt": "cbrt",
    "erf": "erf", "erfc": "erfc", "power": "pow", "arctan2": "atan2", "hypot": "hypot",
}  # fmt: skip
"""NumPy's and SciPy's names, and those of C."""

_REGISTERS = {128: "b", 256: "d", 512: "e"}


def symbol(name: str, char: str, lanes: int) -> str:
    """The name of a function for this number of values of a type; empty where the ABI has no register of that size."""
    register = _REGISTERS.get(lanes * (64 if char == "d" else 32))
    if register is None:
        return ""
    arguments = "vv" if name in ("power", "arctan2", "hypot") else "v"
    return f"_ZGV{register}N{lanes}{arguments}_{NAMES[name]}{'f' if char == 'f' else ''}"


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libmvec.so.1")
    except OSError:
        return None


@functools.cache
def address(name: str) -> int:
    """Where a function is in this process; 0 where the library does not have it."""
    library = _library()
    if not name or library is None:
        return 0
    try:
        return ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0
    except AttributeError:
        return 0
