"""Processes that use an NVIDIA device without a seat: nothing keeps their kernels from slowing down guaranteed work."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_NODE = re.compile(r"/dev/nvidia(\d+)")


@dataclass(frozen=True, slots=True)
class Unseated:
    device: str
    """Its UUID; where the driver does not say, the path of its node."""
    pid: int
    name: str


def unseated(seated: Iterable[int], proc: Path = Path("/proc")) -> list[Unseated]:
    """The processes that hold a device open and are not `seated`, which are pids, each in its own namespace.

    Only processes whose open files this user may see are found.
    """
    known, devices = set(seated), _devices(proc)
    found = []
    for folder in sorted((one for one in proc.glob("[0-9]*") if one.name.isdigit()), key=lambda one: int(one.name)):
        with suppress(OSError):
            minors = {int(match[1]) for one in _files(folder) if (match := _NODE.fullmatch(one)) is not None}
            if minors and not known & _pids(folder):
                name = (folder / "comm").read_text(errors="replace").strip()
                names = (devices.get(minor, f"/dev/nvidia{minor}") for minor in sorted(minors))
                found += [Unseated(device, int(folder.name), name) for device in names]
    return found


def _files(folder: Path) -> Iterator[str]:
    for one in (folder / "fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            yield str(one.readlink())


def _pids(folder: Path) -> set[int]:
    """The process's pid in each of the namespaces that it is in."""
    lines = (folder / "status").read_text(errors="replace").splitlines()
    inner = next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])
    return {int(folder.name), *map(int, inner)}


def _devices(proc: Path) -> dict[int, str]:
    """UUIDs by the number of the device's node."""
    found = {}
    for path in (proc / "driver/nvidia/gpus").glob("*/information"):
        parted = (line.partition(":") for line in _lines(path))
        fields = {key.strip(): value.strip() for key, _, value in parted}
        if fields.get("Device Minor", "").isdigit() and "GPU UUID" in fields:
            found[int(fields["Device Minor"])] = fields["GPU UUID"]
    return found


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []
