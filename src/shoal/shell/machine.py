"""The machine of a site: what of it commands see, and in what it may differ from the client's. A part of the one file
that is sent to a site (see `source`): the standard library alone, Python 3.8 or newer."""

from __future__ import annotations

import contextlib
import hashlib
import locale
import os
import shutil
import sys
from typing import Sequence  # noqa: UP035 - runs on Python 3.8

WORLD = "shoal-site"
MOST_NAMES = 50

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/opt")
_ETC = (
    "alternatives", "fonts", "gitconfig", "group", "ImageMagick-6", "ld.so.cache", "ld.so.conf", "ld.so.conf.d",
    "locale.alias", "localtime", "magic", "magic.mime", "mime.types", "nsswitch.conf", "passwd", "timezone",
)  # fmt: skip
"""Of the site's own system a command sees its programs and these files, and nothing of its users."""


def namespace(sites: dict[str, str], home: str, *, writes: bool) -> list[str] | None:
    """The command line that runs a program where each folder of the site has the client's name for it."""
    found = shutil.which("bwrap")
    if found is None:
        return None
    apart = ("--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts")
    line = [found, "--die-with-parent", *apart, "--hostname", WORLD]
    if os.geteuid() == 0:
        # As root reads through a mount, and nothing more.
        line += ["--cap-drop", "ALL"]
        for one in ("CAP_DAC_OVERRIDE", "CAP_DAC_READ_SEARCH", "CAP_FOWNER", "CAP_CHOWN"):
            line += ["--cap-add", one]
    for path in _SYSTEM:
        if os.path.islink(path):
            line += ["--symlink", os.readlink(path), path]
        elif os.path.isdir(path):
            line += ["--ro-bind", path, path]
    for name in _ETC:
        line += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    line += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--tmpfs", "/run", "--dir", home]
    python = interpreter()
    if not python.startswith(_SYSTEM):
        line += ["--ro-bind", sys.base_prefix, sys.base_prefix]
    for mount, root in sorted(sites.items()):
        line += ["--bind" if writes else "--ro-bind", root, mount]
    return [*line, "--chdir", "/", "--"]


def interpreter() -> str:
    """A Python that is there within the namespace too, if this machine's system has one."""
    own = os.path.realpath(sys.executable)
    return next((one for one in (own, "/usr/bin/python3") if one.startswith(_SYSTEM) and os.path.exists(one)), own)


def libc() -> str:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def working_locales(names: Sequence[str]) -> list[str]:
    """Those that this machine has."""
    found = []
    for name in names:
        with contextlib.suppress(locale.Error):
            locale.setlocale(locale.LC_ALL, name)
            found.append(name)
    locale.setlocale(locale.LC_ALL, "C")
    return found


def listing(folder: str) -> list[str] | None:
    """Some names in it, so that the client can see that its mount shows the same folder; None where there is none."""
    try:
        return sorted(os.fsencode(one).decode("utf-8", "surrogateescape") for one in os.listdir(folder))[:MOST_NAMES]
    except OSError:
        return None


def fingerprint(path: str) -> str | None:
    """The program's hash, which is equal on two machines that have the same build of it; None where there is none."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:32]
    except OSError:
        return None
