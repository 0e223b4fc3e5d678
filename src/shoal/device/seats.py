"""A process's seat at a shared device: where the device's page is, and what the process finds in its environment."""

from __future__ import annotations

import functools
import os
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.core import Capability, PriorityClass, Unavailable
from shoal.device import cuda, native, opencl
from shoal.device.page import Page
from shoal.device.policy import Rules

_MEMORY = Path("/dev/shm")  # noqa: S108  (a directory of our own in it, which only its owner may write)
_PRIVATE = 0o700
_CLASSES = {PriorityClass.GUARANTEED: "guaranteed", PriorityClass.BEST_EFFORT: "best-effort"}


@dataclass(frozen=True, slots=True)
class Seat:
    """How a process uses a device. `weight` is its share among best-effort ones, `memory_bytes` the most that it may
    allocate (0: no limit), `transform` whether its kernels may be launched in slices."""

    device: str
    cls: PriorityClass
    name: str
    weight: int = 1
    memory_bytes: int = 0
    transform: bool = True


def rank_name(job_id: str, rank: int) -> str:
    """What the process of a job's rank is called on a page."""
    return f"{job_id}.{rank}"


def folder() -> Path:
    """Where this user's pages and kernel profiles are: in memory where that is possible, or where SHOAL_DEVICE_FOLDER
    says. Raises Unavailable."""
    parent = _MEMORY if os.access(_MEMORY, os.W_OK) else Path(os.environ.get("XDG_RUNTIME_DIR") or "/tmp")  # noqa: S108
    made = Path(os.environ.get("SHOAL_DEVICE_FOLDER") or parent / f"shoal-device-{os.geteuid()}")
    try:
        made.mkdir(mode=_PRIVATE, exist_ok=True)
        status = made.lstat()
    except OSError as error:
        raise Unavailable(f"no page can be kept: {error}", where=str(made)) from None
    if not made.is_dir() or made.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise Unavailable("it belongs to others, or others may write to it", where=str(made), hint="remove it")
    return made


def page_path(device: str) -> Path:
    return folder() / f"{_file_name(device)}.page"


def open_page(device: str, rules: Rules | None = None, *, memory_bytes: int = 0) -> Page:
    """The page of a device, made if there is none yet. `rules` hold from then on for all that use it; None leaves those
    that it has. Raises Unavailable."""
    path = page_path(device)
    _remove_outdated(path)
    page = Page.create(path, device=device, memory_total=memory_bytes, rules=rules)
    if rules is not None and page.rules() != rules:
        page.set_rules(rules)
    return page


def _remove_outdated(path: Path) -> None:
    """A page that another version of Shoal left, and that no process here maps; one in use is refused by `Page`."""
    try:
        with path.open("rb") as file:
            magic, version = struct.unpack("<II", file.read(8))
    except (OSError, struct.error):
        return
    if magic == native.PAGE_MAGIC and version != native.PAGE_VERSION and not _is_mapped(path):
        path.unlink(missing_ok=True)


def _is_mapped(path: Path) -> bool:
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if any(line.endswith(f" {path}") for line in maps.read_text(errors="replace").splitlines()):
                return True
        except OSError:  # gone, or another user's, who cannot open a page in this folder
            continue
    return False


def pages() -> list[Page]:
    """Of all devices that were shared here since the machine started; those that cannot be read are left out."""
    found = []
    for path in sorted(folder().glob("*.page")):
        try:
            found.append(Page.open(path))
        except Unavailable:
            continue
    return found


def environment(seat: Seat, base: Mapping[str, str]) -> dict[str, str]:
    """What to add to `base` so that an unmodified program takes this seat. Raises Unavailable when no program could:
    nothing that intercepts launches works here."""
    fronts = _front_ends(base, variants=seat.transform and seat.cls is PriorityClass.BEST_EFFORT)
    found = {
        **fronts,
        "SHOAL_DEVICE_PAGE": str(page_path(seat.device)),
        "SHOAL_DEVICE_PROFILE": str(page_path(seat.device).with_suffix(".profile")),
        "SHOAL_DEVICE_CLASS": _CLASSES[seat.cls],
        "SHOAL_DEVICE_NAME": seat.name,
        "SHOAL_DEVICE_WEIGHT": str(seat.weight),
    }
    if seat.memory_bytes:
        found["SHOAL_DEVICE_MEMORY"] = str(seat.memory_bytes)
    if not seat.transform:
        found["SHOAL_DEVICE_WAYS"] = "whole"
    return found


def capabilities() -> tuple[Capability, ...]:
    """What isolates processes on a device here. Asks drivers, which may take seconds."""
    return (native.capability(), cuda.capability(), opencl.capability())


def problem(*, accelerator: bool) -> str | None:
    """Why programs on an accelerator, or on the CPU, cannot be kept to their share here; None when they can."""
    try:
        native.library()
        folder()
        if not accelerator:
            opencl.environment(base={})
    except Unavailable as found:
        return str(found)
    if accelerator:
        if not (shim := cuda.shim()).available:
            return shim.detail
        if _driver() is None:
            return f"no {cuda.LIBRARY} on this machine"
    return None


def _front_ends(base: Mapping[str, str], *, variants: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    problems = []
    if cuda.shim().available and (driver := _driver()) is not None:
        found |= cuda.environment(base, driver, variants=variants)
    else:
        problems.append(f"no {cuda.LIBRARY} on this machine")
    try:
        found |= opencl.environment(base=base)
    except Unavailable as missing:
        problems.append(str(missing))
    if not found:
        raise Unavailable(f"no program can be kept to its share: {'; '.join(problems)}")
    return found


@functools.cache
def _driver() -> Path | None:
    """Looked for once: it asks the loader's cache by a process."""
    return cuda.find_driver()


def _file_name(device: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "-", device) or "device"
