"""Capabilities of offload on this machine, and the cost of what is missing."""

from __future__ import annotations

import importlib.util
import os
import sys

from shoal.core import Capability
from shoal.offload.calibration import read_calibration
from shoal.offload.settings import OffloadSettings


def capabilities(settings: OffloadSettings) -> list[Capability]:
    """In the order in which a user would care."""
    return [
        *(_installed(*each) for each in _LIBRARIES),
        _functions(),
        _buffers(),
        _pandas(),
        _calibration(settings),
        _cache(settings),
    ]


_LIBRARIES = (
    ("arrays in blocks on all cores", "numpy", "nothing is captured"),
    ("compiled kernels", "llvmlite", "chains run in blocks of NumPy's operations, one after the other"),
    ("vectorised functions without kernels", "torch", "blocks use SciPy's scalar functions"),
    ("nearest neighbours of scikit-learn-intelex", "sklearnex", "they are scikit-learn's own"),
)


def _installed(name: str, module: str, cost: str) -> Capability:
    if importlib.util.find_spec(module) is not None:
        return Capability(name, True, f"{module} is installed")
    return Capability(name, False, f"{module} is not installed", cost)


def _functions() -> Capability:
    from shoal.offload.arrays.recipe import address, symbol

    name = "functions within kernels"
    if address(symbol("erf", "d", 2)):
        return Capability(name, True, "libmvec of the C library")
    lost = "kernels do arithmetic only; chains with functions run in blocks"
    return Capability(name, False, "the C library has no libmvec with all functions (glibc 2.35, x86-64)", lost)


def _buffers() -> Capability:
    from shoal.offload.arrays.exports import NATIVE

    name = "errors of refused buffers"
    if sys.version_info >= (3, 12):
        return Capability(name, True, "Python's own")
    if NATIVE.exists():
        return Capability(name, True, str(NATIVE))
    return Capability(name, False, "the native part was not built", "such a request raises SystemError")


def _pandas() -> Capability:
    if importlib.util.find_spec("pandas") is None:
        return Capability(
            "expressions of pandas", False, "pandas is not installed", "nothing, where no program uses it"
        )
    from importlib.metadata import version

    number = version("pandas")
    if int(number.partition(".")[0]) >= 3:
        return Capability("expressions of pandas", True, f"pandas {number}")
    lost = "expressions of Series stay with pandas unless pandas.options.mode.copy_on_write is True"
    return Capability("expressions of pandas", False, f"pandas {number} writes in place", lost)


def _calibration(settings: OffloadSettings) -> Capability:
    found = read_calibration(settings.folder)
    if found is None:
        lost = "choices rest on the rates of another machine until a program was run"
        return Capability(
            "calibration",
            False,
            "this machine is measured after some seconds of captured work, or by `shoal offload calibrate`",
            lost,
        )
    return Capability("calibration", True, found.machine)


def _cache(settings: OffloadSettings) -> Capability:
    folder = settings.folder
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if os.access(existing, os.W_OK):
        return Capability("cache", True, str(folder))
    return Capability("cache", False, f"{existing} cannot be written", "kernels and calibration are made for each run")
