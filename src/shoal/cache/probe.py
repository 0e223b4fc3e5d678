"""Probe of this machine: what a cache can do here, and what is missing and costs."""

from __future__ import annotations

import fcntl
import os
import subprocess
import tempfile
import time
from pathlib import Path

from shoal.base.files import free_bytes
from shoal.core import Capability

_WITHOUT_FUSE = "jobs copy what is not cached before they start, and `shoal cache mount` does not work"
_MEASURED_MIB = 64


def probe(root: Path) -> list[Capability]:
    return [_directory(root), _leases(root), _users(), _links_protected(), _fuse()]


def _directory(root: Path) -> Capability:
    there = next(one for one in (root, *root.parents) if one.exists())
    good = os.access(there, os.W_OK | os.X_OK) and there.is_dir()
    detail = f"{root}, {free_bytes(there) / 2**30:.1f} GiB free" if good else f"{there} cannot be written"
    return Capability("directory", good, detail, "no cache can be kept there")


def _leases(root: Path) -> Capability:
    """Whether the kernel tells when the last reader of a file has closed it."""
    there = next(one for one in (root, *root.parents) if one.is_dir())
    try:
        with tempfile.NamedTemporaryFile(dir=there) as file:
            descriptor = os.open(file.name, os.O_RDONLY | os.O_CLOEXEC)
            try:
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except BlockingIOError:
                pass  # the file is open, as the kernel says rightly
            finally:
                os.close(descriptor)
    except OSError as error:
        return Capability(
            "leases", False, f"no leases on {there}: {error.strerror}",
            "an evicted file that is still open is not counted against the limit",
        )  # fmt: skip
    return Capability("leases", True, "open files are counted until they are closed")


def _users() -> Capability:
    root = os.geteuid() == 0
    detail = "each tenant has a user of its own" if root else "the cache has no user but its own"
    return Capability("users", root, detail, "tenants of one user are kept apart by their sandbox alone")


def _links_protected() -> Capability:
    path = Path("/proc/sys/fs/protected_hardlinks")
    good = path.exists() and path.read_text().strip() == "1"
    return Capability(
        "protected links", good, f"{path} is {'1' if good else 'not 1'}",
        "a tenant may keep a hard link to a file that it could read, and its bytes count no more",
    )  # fmt: skip


def can_mount() -> str | None:
    """Why not, or None where FUSE is here."""
    try:
        import mfusepy
    except (ImportError, OSError) as error:
        return str(error)
    del mfusepy
    return None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "/dev/fuse cannot be opened"


def _fuse() -> Capability:
    """Measured: a file of the source is read through a mount and as it is."""
    why = can_mount()
    rates = None if why else _rates()
    if rates is None:
        return Capability("fuse", False, why or "a mount did not come up", _WITHOUT_FUSE)
    mounted, plain = (rate / 2**30 for rate in rates)
    return Capability("fuse", True, f"reads {mounted:.2f} GiB/s through a mount here, where a file gives {plain:.2f}")


def _rates() -> tuple[float, float] | None:
    """Bytes a second through a mount, and without; the best of three, from the page cache."""
    from shoal.cache.daemon.mounts import start_mount
    from shoal.cache.store.views import Views

    with tempfile.TemporaryDirectory(prefix="shoal-doctor-") as name:
        root, source = Path(name), Path(name) / "source"
        source.mkdir()
        (source / "file").write_bytes(os.urandom(1 << 20) * _MEASURED_MIB)
        views = Views(root / "views")
        view = views.make("doctor", "doctor", "file://", os.geteuid(), {})
        try:
            if not start_mount(view, root, f"file://{source}", {}, os.geteuid(), "", subprocess.DEVNULL):
                return None
            return _rate(view.rest / "file"), _rate(source / "file")
        finally:
            views.release("doctor", "doctor")


def _rate(path: Path) -> float:
    best = 0.0
    for _ in range(3):
        began, count = time.monotonic(), 0
        with path.open("rb", buffering=0) as file:
            while part := file.read(1 << 20):
                count += len(part)
        best = max(best, count / (time.monotonic() - began))
    return best
