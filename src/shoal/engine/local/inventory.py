"""Inventory of this machine: NVIDIA accelerators by NVML, else declared CPU slots; usable cores and memory."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.base import extras
from shoal.core import CPU_SLOT, Capability, Device, Node

"""The type of a declared slot that stands for no accelerator."""


@dataclass(frozen=True, slots=True)
class Accelerators:
    """The accelerators found, and in words how, or why there are none. Not `answered` when that could not be asked."""

    devices: tuple[Device, ...]
    detail: str
    answered: bool = True


Probe = Callable[[], Accelerators]


def nvidia_accelerators() -> Accelerators:
    """All NVIDIA devices by NVML; their id is the UUID, which CUDA_VISIBLE_DEVICES takes."""
    try:
        import pynvml
    except ImportError:
        return Accelerators((), f"NVML bindings are not installed ({extras.install('nvidia')})", answered=False)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as problem:
        return Accelerators((), f"NVML: {problem}", answered=False)
    try:
        found: list[Device | str] = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            found += _devices(pynvml, index, len(found))
        devices = tuple(device for device in found if isinstance(device, Device))
        driver = _text(pynvml.nvmlSystemGetDriverVersion())
        lost = "".join(f"; {problem}" for problem in found if isinstance(problem, str))
        return Accelerators(devices, f"{len(devices)} by NVML, driver {driver}{lost}")
    except pynvml.NVMLError as problem:
        return Accelerators((), f"NVML: {problem}", answered=False)
    finally:
        pynvml.nvmlShutdown()


def _devices(pynvml: Any, index: int, number: int) -> list[Device | str]:
    """One accelerator, or the slices that MIG has made of it, or what is wrong with it: one that fell off its bus must
    not hide the others. They are numbered from `number`."""
    try:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        parts = _slices(pynvml, handle) if _in_slices(pynvml, handle) else [handle]
        return [
            Device(
                _text(pynvml.nvmlDeviceGetUUID(part)),
                device_type(_text(pynvml.nvmlDeviceGetName(part))),
                number + at,
                int(pynvml.nvmlDeviceGetMemoryInfo(part).total),
            )
            for at, part in enumerate(parts)
        ]
    except pynvml.NVMLError as problem:
        return [f"device {index}: {problem}"]


def _in_slices(pynvml: Any, handle: Any) -> bool:
    """Whether MIG is on: the accelerator itself then runs nothing."""
    try:
        current, _pending = pynvml.nvmlDeviceGetMigMode(handle)
    except pynvml.NVMLError:  # an accelerator that has no MIG, or an older driver
        return False
    return bool(current)


def _slices(pynvml: Any, handle: Any) -> list[Any]:
    found = []
    for at in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with contextlib.suppress(pynvml.NVMLError):  # nothing was made at this place
            found.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, at))
    return found


_NOISE = re.compile(r"nvidia|tesla|quadro|geforce|graphics|generation|device|pcie|nvl|sxm\d*|hbm\d*\w*|\d+gb")


def device_type(product: str) -> str:
    """The short type name of an NVIDIA product: `NVIDIA A100-SXM4-80GB` is an `a100`, and its slice
    `NVIDIA A100-SXM4-80GB MIG 1g.10gb` an `a100-1g.10gb`."""
    product, _, profile = product.partition(" MIG ")
    words = [word for word in re.split(r"[\s-]+", product.lower()) if word and not _NOISE.fullmatch(word)]
    if len(words) > 1 and words[0] == "rtx" and re.match(r"a\d", words[1]):
        words = words[1:]
    name = re.sub(r"[^a-z0-9.]", "", "".join(words)) or "nvidia"
    return f"{name}-{re.sub(r'[^a-z0-9.]', '-', profile.strip().lower())}" if profile else name


def local_node(slots: int | None, accelerators: Accelerators, *, memory_limit_bytes: int | None) -> Node:
    """This machine as a node. `slots` declares CPU slots where there is no accelerator (default: one per core)."""
    cores = len(os.sched_getaffinity(0))
    devices = accelerators.devices
    if not devices:
        count = cores if slots is None else slots
        devices = tuple(Device(f"cpu{index}", CPU_SLOT, index) for index in range(count))
    memory_bytes = physical_memory_bytes()
    if memory_limit_bytes is not None:
        memory_bytes = min(memory_bytes, memory_limit_bytes)
    return Node(socket.gethostname(), devices, cores * 1000, memory_bytes)


def accelerator_capability(accelerators: Accelerators) -> Capability:
    return Capability(
        "accelerators",
        bool(accelerators.devices),
        accelerators.detail,
        ""
        if accelerators.devices
        else "no NVIDIA accelerator is offered: jobs that ask for one by type wait for ever, and those that take `any` "
        "get CPU slots, which keep no job off another's cores",
    )


def physical_memory_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    for line in meminfo.read_text().splitlines():
        name, _, value = line.partition(":")
        if name == "MemTotal":
            return int(value.split()[0]) * 1024
    return 0


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
