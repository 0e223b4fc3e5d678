"""CUDA: what an unmodified program needs in its environment to share a device, and which devices there are.

The shim (`native/device/cuda`) is a `libcuda.so.1` in a folder of its own. With that folder first on the library path,
a program that names the driver's library loads the shim, which passes everything on to the driver's. A preloaded
library does the same for a program that opens the driver by a path.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.core import Capability, Unavailable

LIBRARY = "libcuda.so.1"
FOLDER = Path(__file__).parent / "_native" / "cuda"
"""Where the shim is."""
PRELOAD = FOLDER.parent / "libshoal_preload.so"

_USUAL = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib", "/usr/lib/wsl/lib", "/run/opengl-driver/lib",
)  # fmt: skip
_CONSEQUENCE = "programs that use CUDA run without a gate, and share no device"

# In a process of its own: a process that has used CUDA cannot fork workers that do.
_PROBE = """
import ctypes, json, sys
cuda = ctypes.CDLL(sys.argv[1])
def ask(name, *arguments):
    result = getattr(cuda, name)(*arguments)
    if result != 0:
        raise SystemExit(f"{name} failed with error {result}")
ask("cuInit", 0)
version, count = ctypes.c_int(), ctypes.c_int()
ask("cuDriverGetVersion", ctypes.byref(version))
ask("cuDeviceGetCount", ctypes.byref(count))
devices = []
for index in range(count.value):
    device, memory = ctypes.c_int(), ctypes.c_size_t()
    name, uuid = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16)
    ask("cuDeviceGet", ctypes.byref(device), index)
    ask("cuDeviceGetName", name, 256, device)
    ask("cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid", uuid, device)
    ask("cuDeviceTotalMem_v2", ctypes.byref(memory), device)
    devices.append([uuid.raw.hex(), name.value.decode(), memory.value])
print(json.dumps([version.value, devices]))
"""


@dataclass(frozen=True, slots=True)
class CudaDevice:
    uuid: str
    """As nvidia-smi prints it, `GPU-` and 32 digits in groups; of a MIG slice the driver's own."""
    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class Driver:
    path: Path
    version: tuple[int, int]
    """The newest CUDA that it supports."""
    devices: tuple[CudaDevice, ...]


def shim(glibc: tuple[int, int] | None = None) -> Capability:
    """Is the shim built, and can programs on this machine, whose C library is `glibc`, load it?"""
    path = FOLDER / LIBRARY
    if path.exists():
        needed, found = glibc_needed(path), glibc or _glibc()
        if found < needed:
            detail = f"{path} needs glibc {needed[0]}.{needed[1]}, and this machine has {found[0]}.{found[1]}"
            return Capability(
                "CUDA shim", False, f"{detail}; build Shoal here: pip install --no-binary :all:", _CONSEQUENCE
            )
        return Capability("CUDA shim", True, str(path))
    return Capability(
        "CUDA shim", False,
        f"{path} was not built; install a C++17 compiler (apt-get install g++), then install Shoal again", _CONSEQUENCE,
    )  # fmt: skip


@functools.cache
def glibc_needed(library: Path) -> tuple[int, int]:
    """The newest version of the C library that a library asks for: on an older one no program could load it."""
    asked = re.findall(rb"\0GLIBC_(\d+)\.(\d+)(?=[.\0])", library.read_bytes())
    return max(((int(major), int(minor)) for major, minor in asked), default=(0, 0))


def _glibc() -> tuple[int, int]:
    """Of this machine; of another kind of C library, 0."""
    try:
        _, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
    except (ValueError, OSError):
        version = ""
    major, _, minor = version.partition(".")
    return (int(major), int(minor.partition(".")[0])) if major.isdigit() and minor[:1].isdigit() else (0, 0)


def find_driver(environ: Mapping[str, str] | None = None) -> Path | None:
    """The driver's library, as the loader would find it without the shim."""
    for path in _candidates(os.environ if environ is None else environ):
        if path.exists() and path.resolve().parent != FOLDER.resolve():
            return path
    return None


def probe(path: Path | None = None, *, timeout_s: float = 60) -> Driver:
    """Asks the driver, in a process of its own. Raises Unavailable, with the reason."""
    path = path or find_driver()
    if path is None:
        raise Unavailable(f"no {LIBRARY} on this machine", hint="install NVIDIA's driver; in a container, its runtime")
    try:
        told = subprocess.run(
            [sys.executable, "-I", "-c", _PROBE, str(path)],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{path} did not answer within {timeout_s:g} s", hint="see nvidia-smi and dmesg") from None
    if told.returncode != 0:
        last = (told.stderr.strip().splitlines() or [f"exit status {told.returncode}"])[-1]
        raise Unavailable(f"{path} cannot be used: {last}", hint="see nvidia-smi and dmesg")
    version, devices = json.loads(told.stdout)
    return Driver(
        path, (version // 1000, version % 1000 // 10), tuple(CudaDevice(_uuid(uuid), *rest) for uuid, *rest in devices)
    )


def capability() -> Capability:
    """Can programs that use CUDA share a device here?"""
    built = shim()
    if not built.available:
        return built
    try:
        driver = probe()
    except Unavailable as problem:
        return Capability("CUDA", False, str(problem), _CONSEQUENCE)
    if not driver.devices:
        return Capability("CUDA", False, f"{driver.path} knows no device", _CONSEQUENCE)
    names = ", ".join(device.name for device in driver.devices)
    return Capability("CUDA", True, f"driver for CUDA {driver.version[0]}.{driver.version[1]}: {names}")


def environment(environ: Mapping[str, str], driver: Path, *, variants: bool = False) -> dict[str, str]:
    """What a program's environment `environ` must have besides, so that it goes through the shim to `driver`.

    With `variants`, kernels that the program has as PTX, or compiles by Triton, get the variants by which they can be
    launched in parts.
    """
    rest = [one for one in environ.get("LD_LIBRARY_PATH", "").split(":") if one and Path(one) != FOLDER]
    preloaded = [one for one in environ.get("LD_PRELOAD", "").replace(":", " ").split() if one != str(PRELOAD)]
    found = {
        "LD_LIBRARY_PATH": ":".join([str(FOLDER), *rest]),
        "LD_PRELOAD": " ".join([*preloaded, str(PRELOAD)]),
        "SHOAL_REAL_LIBCUDA": str(driver),
    }
    return {**found, **_variants(environ)} if variants else found


def _variants(environ: Mapping[str, str]) -> dict[str, str]:
    """Nothing where a tool was not installed, or a folder cannot be made: the program runs with whole kernels."""
    from shoal.device.ptx.triton_ptxas import fingerprint  # commands that start no program need not load it

    # `pip install --target` puts them beside the package, not beside Python.
    places = (Path(sys.executable).parent, Path(__file__).parents[2] / "bin")
    scripts = next((one for one in places if (one / "shoal-ptxas").exists()), places[0])
    found = {
        name: str(scripts / tool)
        for name, tool in (
            ("TRITON_PTXAS_PATH", "shoal-ptxas"),
            ("TRITON_PTXAS_BLACKWELL_PATH", "shoal-ptxas-blackwell"),
        )
        if (scripts / tool).exists() and name not in environ
    }
    home = environ.get("HOME", "")
    cache = Path(environ.get("XDG_CACHE_HOME") or Path(home) / ".cache") / "shoal" / f"ptx-{fingerprint()}"
    if (scripts / "shoal-ptx").exists() and cache.is_absolute():
        with contextlib.suppress(OSError):
            cache.mkdir(mode=0o700, parents=True, exist_ok=True)
            found |= {"SHOAL_DEVICE_TRANSFORM": str(scripts / "shoal-ptx"), "SHOAL_DEVICE_CACHE": str(cache)}
    return found


def assembler(environ: Mapping[str, str], program: str | None = None) -> Path | None:
    """The `ptxas` that assembles variants of Triton's kernels: the one that was named, that of the Triton beside
    `program`, Shoal's own Triton's, or the one on the path. Without one the kernels get none."""
    from shoal.device.ptx.triton_ptxas import real_assembler

    if program is not None and "SHOAL_PTXAS" not in environ:
        prefix = Path(program).absolute().parent.parent  # of a virtual environment: its links lead out of it
        beside = sorted(prefix.glob("lib*/python3*/site-packages/triton/backends/nvidia/bin/ptxas"))
        beside += sorted(prefix.glob("lib*/python3*/dist-packages/triton/backends/nvidia/bin/ptxas"))
        if beside:
            return beside[0]
    found = real_assembler("ptxas", environ)
    named = shutil.which(found, path=environ.get("PATH")) if found is not None else None
    return Path(named) if named is not None else None


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    if given := environ.get("SHOAL_REAL_LIBCUDA"):
        yield Path(given)
    yield from (Path(one) / LIBRARY for one in environ.get("LD_LIBRARY_PATH", "").split(":") if one)
    yield from _cached()
    yield from (Path(one) / LIBRARY for one in _USUAL)


def _cached() -> Iterator[Path]:
    """The paths that ldconfig's cache has for the library."""
    for program in ("/sbin/ldconfig", "/usr/sbin/ldconfig"):
        if Path(program).exists():
            told = subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout
            lines = (line.split() for line in told.splitlines() if line.strip().startswith(LIBRARY + " "))
            yield from (Path(words[-1]) for words in lines if words[-1].startswith("/"))
            return


def _uuid(digits: str) -> str:
    parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
    return "GPU-" + "-".join(parts)
