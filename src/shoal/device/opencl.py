"""OpenCL programs at the gate: what must be in a program's environment, and what this machine has.

The layer (`native/device/opencl`) is loaded by the program's own OpenCL loader, which `OPENCL_LAYERS` tells to: the
system's `libOpenCL.so.1` and the one that wheels of pyopencl bring both follow it. Nothing of the program is changed.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from shoal.core import Capability, Unavailable

DIRECTORY = Path(__file__).parent / "_native"
LAYER = "libshoal_opencl.so"
LOADER = "libOpenCL.so.1"
_PROBE_S = 60.0
"""A driver's first look at its devices may build what it keeps; one that hangs must not hold up who asks."""
_CONSEQUENCE = "OpenCL programs run without a gate"
_INSTALL = "apt-get install ocl-icd-opencl-dev opencl-headers"
_KINDS = {2: "cpu", 4: "gpu", 8: "accelerator"}


@dataclass(frozen=True, slots=True)
class OpenCLDevice:
    """`name` tells it from all others of the machine: its UUID, or its model and its place among those of its platform
    that have the same, `model#0`."""

    name: str
    model: str
    platform: str
    kind: str
    memory: int


def environment(device: str | None = None, *, base: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a program needs besides the variables of the gate. `device`: the name of the one that the page is for; None
    is all of them. Other layers that `base` names stay, and are the outer ones. Raises Unavailable."""
    path = str(_built())
    layers = [layer for layer in base.get("OPENCL_LAYERS", "").split(":") if layer and layer != path]
    # From binaries, which pyopencl keeps between runs, no kernel can be built for slices.
    found = {"OPENCL_LAYERS": ":".join([*layers, path]), "PYOPENCL_NO_CACHE": "1"}
    if device is not None:
        found["SHOAL_DEVICE_OPENCL"] = device
    return found


def devices() -> list[OpenCLDevice]:
    """What the system's drivers have. Drivers are loaded by a process of their own: they start threads, and may crash.
    Raises Unavailable."""
    quiet = {name: value for name, value in os.environ.items() if name != "OPENCL_LAYERS"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "shoal.device.opencl", LOADER],
            env=quiet, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PROBE_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise Unavailable(f"the OpenCL drivers did not tell their devices in {_PROBE_S:g} s") from None
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
        raise Unavailable(f"the OpenCL drivers did not tell their devices: {last}")
    told = json.loads(done.stdout.splitlines()[-1])
    if isinstance(told, str):
        raise Unavailable(told)
    return [OpenCLDevice(**one) for one in told]


def refusal(source: str, options: str = "") -> str | None:
    """Why kernels of a program in OpenCL C cannot be launched in slices, as far as its text tells; None when they can.
    Raises Unavailable."""
    path = _built()
    library = ctypes.CDLL(str(path))
    out = ctypes.create_string_buffer(512)
    library.shoal_opencl_refusal(source.encode(), options.encode(), out, ctypes.c_size_t(len(out)))
    return out.value.decode(errors="replace") or None


def capability() -> Capability:
    """Whether OpenCL programs can share a device here. Asks the drivers, which may take seconds."""
    try:
        _built()
        found = devices()
    except Unavailable as problem:
        return Capability("opencl", False, str(problem), _CONSEQUENCE)
    if not found:
        detail = "there is no OpenCL device (for CPUs: apt-get install pocl-opencl-icd)"
        return Capability("opencl", False, detail, "there is nothing for OpenCL programs to share")
    return Capability("opencl", True, ", ".join(f"{one.model} ({one.kind})" for one in found))


def _built() -> Path:
    path = DIRECTORY / LAYER
    if not path.exists():
        raise Unavailable(f"{LAYER} was not built: {_INSTALL}, then install Shoal again")
    return path


class _Drivers:
    """The few calls that it takes, through the system's loader."""

    def __init__(self, loader: str) -> None:
        self._library = ctypes.CDLL(loader)

    def handles(self, function: str, *arguments: object) -> list[int]:
        found, count = (ctypes.c_void_p * 64)(), ctypes.c_uint32()
        # Errors are those of "there is none".
        if getattr(self._library, function)(*arguments, 64, found, ctypes.byref(count)):
            return []
        return [handle for handle in found[: min(count.value, 64)] if handle]

    def info(self, function: str, handle: int, name: int) -> bytes:
        size, call = ctypes.c_size_t(), getattr(self._library, function)
        if call(ctypes.c_void_p(handle), name, ctypes.c_size_t(0), None, ctypes.byref(size)):
            return b""
        value = ctypes.create_string_buffer(size.value)
        call(ctypes.c_void_p(handle), name, size, value, None)
        return value.raw


def _text(raw: bytes) -> str:
    return raw.rstrip(b"\0").decode(errors="replace")


def _probe(loader: str) -> Iterator[OpenCLDevice]:
    drivers = _Drivers(loader)
    type_, global_memory, name_, extensions, uuid, all_types = 0x1000, 0x101F, 0x102B, 0x1030, 0x106A, 0xFFFFFFFF
    for platform in drivers.handles("clGetPlatformIDs"):
        seen: dict[str, int] = {}
        handles = drivers.handles("clGetDeviceIDs", ctypes.c_void_p(platform), ctypes.c_uint64(all_types))
        for device in handles:
            model = _text(drivers.info("clGetDeviceInfo", device, name_))
            place = seen[model] = seen.get(model, -1) + 1
            told = _text(drivers.info("clGetDeviceInfo", device, extensions)).split()
            identity = drivers.info("clGetDeviceInfo", device, uuid) if "cl_khr_device_uuid" in told else b""
            kind = int.from_bytes(drivers.info("clGetDeviceInfo", device, type_), sys.byteorder)
            yield OpenCLDevice(
                name=identity.hex() or f"{model}#{place}",
                model=model,
                platform=_text(drivers.info("clGetPlatformInfo", platform, 0x0902)),
                kind=next((word for bit, word in _KINDS.items() if kind & bit), "other"),
                memory=int.from_bytes(drivers.info("clGetDeviceInfo", device, global_memory), sys.byteorder),
            )


if __name__ == "__main__":
    _loader = sys.argv[1]
    try:
        print(json.dumps([asdict(one) for one in _probe(_loader)]))
    except OSError:
        print(json.dumps(f"there is no OpenCL loader, {_loader} ({_INSTALL})"))
