"""A command line at a shared device of this machine, without a server: `shoal run --local -- python train.py`."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from shoal.core import Invalid, NotFound, PriorityClass, Unavailable
from shoal.device import cuda, opencl, seats


@dataclass(frozen=True, slots=True)
class SharedDevice:
    """A device that programs of this machine can share. `by`: what intercepts their launches."""

    name: str
    model: str
    by: str
    memory_bytes: int


def devices() -> list[SharedDevice]:
    """Those of this machine, accelerators before CPUs. Asks drivers, which may take seconds."""
    found: list[SharedDevice] = []
    if cuda.shim().available:
        with contextlib.suppress(Unavailable):
            found += [SharedDevice(one.uuid, one.name, "CUDA", one.memory_bytes) for one in cuda.probe().devices]
    with contextlib.suppress(Unavailable):
        others = sorted(opencl.devices(), key=lambda one: one.kind == "cpu")
        found += [SharedDevice(one.name, one.model, "OpenCL", one.memory) for one in others]
    return found


def run(
    argv: Sequence[str],
    *,
    cls: PriorityClass,
    memory_bytes: int = 0,
    device: str | None = None,
    note: Callable[[str], None],
) -> NoReturn:
    """Become the program, with a seat at `device` (default: the first of `devices`). Where there is nothing to share or
    no way to, `note` is told, and the program runs as it is. Raises NotFound for an unknown device or program, Invalid
    for more memory than the device has."""
    program = shutil.which(argv[0])
    if program is None:
        raise NotFound(f"there is no program {argv[0]!r}", where=argv[0], hint="is it on PATH, and executable?")
    env = dict(os.environ)
    found = devices()
    chosen = _chosen(found, device)
    if chosen is None:
        note("no accelerator that can be shared was found: the program runs without a gate (see `shoal device doctor`)")
    else:
        if memory_bytes > chosen.memory_bytes > 0:
            what = f"{chosen.model} has {chosen.memory_bytes >> 20} MiB"
            raise Invalid(what, where="--device-memory", hint="ask for less")
        env |= _seated(chosen, cls, memory_bytes, [program, *argv[1:]], env, note)
    os.execve(program, list(argv), env)  # noqa: S606  (no shell: the user's own command, as it was given)


def _chosen(found: Sequence[SharedDevice], wanted: str | None) -> SharedDevice | None:
    if wanted is None:
        return next(iter(found), None)
    for one in found:
        if one.name == wanted:
            return one
    names = ", ".join(one.name for one in found) or "none"
    raise NotFound(f"there is no device {wanted!r}", where="--device", hint=f"there are: {names}")


def _seated(
    device: SharedDevice,
    cls: PriorityClass,
    memory_bytes: int,
    argv: Sequence[str],
    env: dict[str, str],
    note: Callable[[str], None],
) -> dict[str, str]:
    name = os.path.basename(argv[1] if len(argv) > 1 and not argv[1].startswith("-") else argv[0])  # noqa: PTH119
    seat = seats.Seat(device.name, cls, name, memory_bytes=memory_bytes)
    try:
        added = seats.environment(seat, env)
        seats.open_page(device.name, memory_bytes=device.memory_bytes).close()
    except Unavailable as problem:
        note(f"{problem}: the program runs without a gate")
        return {}
    note(f"{cls.value} on {device.model} ({device.by})")
    if device.by == "CUDA":
        added["CUDA_VISIBLE_DEVICES"] = device.name  # the others have no seat for it
        if cls is PriorityClass.BEST_EFFORT:
            added |= _assembled(argv[0], env, note)
    elif device.by == "OpenCL":
        added["SHOAL_DEVICE_OPENCL"] = device.name
    return added


def _assembled(program: str, env: dict[str, str], note: Callable[[str], None]) -> dict[str, str]:
    """The real assembler for `shoal-ptxas`, which runs in Shoal's Python and cannot see the program's Triton."""
    found = cuda.assembler(env, program)
    if found is None:
        note("no ptxas was found: kernels that Triton compiles go whole (name one in SHOAL_PTXAS)")
        return {}
    blackwell = found.with_name("ptxas-blackwell")
    named = {"SHOAL_PTXAS": str(found)}
    return {**named, "SHOAL_PTXAS_BLACKWELL": str(blackwell)} if blackwell.exists() else named
