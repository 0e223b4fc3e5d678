"""Settings by environment variables: `SHOAL_OFFLOAD__NAME`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path

from shoal.core import Invalid

PREFIX = "SHOAL_OFFLOAD__"

BACKENDS = ("chunks", "torch", "compiled", "device", "polars", "sklearnex")
"""In the order in which they are explained. The plain library needs no name: it is always there."""


class Fallback(StrEnum):
    """What happens when a call that could be captured stays with the plain library."""

    ALLOW = "allow"
    WARN = "warn"
    RAISE = "raise"


class CompileMode(StrEnum):
    """When PyTorch is imported and kernels are compiled: `background` where that is expected to gain."""

    BACKGROUND = "background"
    WAIT = "wait"
    NEVER = "never"


def _cores() -> int:
    return len(os.sched_getaffinity(0))


@dataclass(frozen=True, slots=True)
class OffloadSettings:
    """`threshold`: elements below which an array is left alone. `strict`: the plain libraries' own functions and order
    of summation only. `threads`: 0 for all cores that this process may use. `fallback`: for operations of large arrays
    that are not captured. `compile`: when kernels are made; `wait` is for measurements. `report`: a folder where each
    process writes its profile. `home`: where calibration, history and kernels are kept, in place of the user's cache.
    `everywhere`: capture within installed libraries too, as their own tests need it. `program`: beginnings of paths, by
    commas, that count as the program's own though they are installed. `explain`: FILE:LINE whose decisions are kept.
    `summary`: one line on stderr as the program ends. `device`: the name of an entry point of the group
    `shoal.offload.devices`; without it, the GPU that PyTorch sees. `device_memory`: bytes of it that this process may
    take; 0 for all that is free."""

    threshold: int = 65536
    strict: bool = False
    threads: int = 0
    backends: str = ",".join(BACKENDS)
    fallback: Fallback = Fallback.ALLOW
    compile: CompileMode = CompileMode.BACKGROUND
    report: str = ""
    home: str = ""
    everywhere: bool = False
    program: str = ""
    explain: str = ""
    summary: bool = False
    device: str = ""
    device_memory: int = 0

    @property
    def cores(self) -> int:
        return min(self.threads or _cores(), _cores())

    @property
    def allowed(self) -> frozenset[str]:
        return frozenset(filter(None, self.backends.split(",")))

    @property
    def folder(self) -> Path:
        """Where calibration and history are kept for this machine."""
        return Path(self.home or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal" / "offload"


def read_settings(environ: Mapping[str, str]) -> OffloadSettings:
    """Raises Invalid for an unknown name, and for a value that does not fit."""
    known = {each.name: each for each in fields(OffloadSettings)}
    given: dict[str, object] = {}
    for variable, text in environ.items():
        if not variable.startswith(PREFIX):
            continue
        name = variable.removeprefix(PREFIX).lower()
        if name not in known:
            raise Invalid("there is no such setting", where=variable, hint=f"one of {', '.join(sorted(known))}")
        given[name] = _value(variable, text, type(known[name].default))
    found = OffloadSettings(**given)  # type: ignore[arg-type]
    if unknown := sorted(found.allowed - set(BACKENDS)):
        raise Invalid(f"unknown: {', '.join(unknown)}", where=PREFIX + "BACKENDS", hint=f"of {','.join(BACKENDS)}")
    return found


def _value(variable: str, text: str, kind: type) -> object:
    if kind is bool:
        if text.lower() not in ("true", "false", "1", "0"):
            raise Invalid(f"{text!r} is neither true nor false", where=variable)
        return text.lower() in ("true", "1")
    try:
        value = kind(text)
    except ValueError:
        allowed = f"one of {', '.join(kind)}" if issubclass(kind, StrEnum) else "a whole number"
        raise Invalid(f"{text!r} is not {allowed}", where=variable) from None
    if kind is int and value < 0:
        raise Invalid(f"{value} is below 0", where=variable)
    return value
