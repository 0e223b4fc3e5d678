"""Plan of a rank's sandbox, for `enter`. Reads the modes of directories, changes nothing."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import shoal
from shoal.core import Sandbox
from shoal.engine.protocol import Account, HomeShown, Mount


@dataclass(frozen=True, slots=True)
class Rights:
    """What a rank has: its user, its first group, its other groups, and what is taken from the modes of its files.
    `own` is the user's home, where the rank is a user of the machine, and `shown` whether bubblewrap shows it."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    umask: int = 0o077
    own: Path | None = None
    shown: HomeShown = HomeShown.NO

    @classmethod
    def of_tenant(cls, uid: int) -> Rights:
        """Those of a user that belongs to a tenant."""
        return cls(uid, uid)

    @classmethod
    def of(cls, account: Account, guard: int, shown: HomeShown) -> Rights:
        """Those of a user of the machine, and of a group that nobody else is in: the server's files for this user."""
        groups = tuple(sorted({*account.groups, account.gid, guard}))
        own = account.home if owns(account.uid, account.home) else None
        return cls(account.uid, account.gid, groups, account.umask, own, shown)


def owns(uid: int, home: Path) -> bool:
    """Whether this directory is the user's: that of a system's own account may be `/`, or of many."""
    try:
        found = home.lstat()
    except OSError:
        return False
    return home.is_absolute() and stat.S_ISDIR(found.st_mode) and found.st_uid == uid


def opens(home: Path) -> bool:
    """Whether the server's rights open this directory: not on NFS where root is squashed, unless all may."""
    try:
        os.close(os.open(home, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except PermissionError:
        return False
    except OSError:
        return True
    return True


def plan(
    level: Sandbox, rights: Rights, home: Path, keep: Sequence[Path], *, network: bool = True,
    mounts: Sequence[Mount] = (),
) -> dict[str, Any]:  # fmt: skip
    """In types that `marshal` takes. `keep` are the directories that the rank has of the home."""
    runtime = [path for path in runtime_folders() if path.is_dir()]
    private = sorted({str(folder) for path in (home, *runtime) if (folder := _private(path)) is not None})
    shown = [str(path) for path in runtime if any(path.is_relative_to(folder) for folder in private)]
    if rights.own is not None and any(map(rights.own.is_relative_to, private)):
        shown.append(str(rights.own))
    mine = [str(path) for path in keep if path.is_relative_to(home)]
    mine += [str(path) for path in keep if not path.is_relative_to(home) and any(map(path.is_relative_to, private))]
    return {
        "level": level.value,
        "uid": rights.uid,
        "gid": rights.gid,
        "groups": list(rights.groups),
        "umask": rights.umask,
        # An empty directory hides what others may not enter: so the way to what is shown behind it is open.
        "mounts": [
            *(("hide", folder) for folder in private),
            *(("show", path) for path in shown),
            ("hide", str(home)),
            *(("show", path) for path in dict.fromkeys(mine)),
        ],
        "shown": [(str(one.source), str(one.target), one.read_only) for one in mounts],
        "wrapper": wrapper(rights, home, keep, network=network, mounts=mounts) if level is Sandbox.BUBBLEWRAP else [],
        "module_dir": str(Path(__file__).parent),
    }


_SYSTEM = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_DEVICES = "nvidia*"
_SHOWN = ("null", "zero", "full", "random", "urandom", "tty", "shm", "mqueue", "hugepages")
_COMPUTE = (_DEVICES, "kfd", "dri", "dxg", "infiniband")


def wrapper(
    rights: Rights, home: Path, keep: Sequence[Path], *, network: bool = True, mounts: Sequence[Mount] = ()
) -> list[str]:
    """The command line of bubblewrap up to what `last.py` is given: the system and the interpreter read-only, the kept
    directories, and nothing else. It runs as root, since the way to the home is closed to the tenant's user, and keeps
    two capabilities until that user is taken on."""
    line = [
        _program("bwrap"), "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--die-with-parent",
        "--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", "--ro-bind", "/usr", "/usr",
        "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/dev/shm",  # noqa: S108
        "--perms", "1777", "--tmpfs", "/tmp", *([] if network else ["--unshare-net"]),  # noqa: S108
    ]  # fmt: skip
    for name in _SYSTEM:
        path = Path("/", name)
        if path.is_symlink():
            line += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            line += ["--ro-bind", str(path), str(path)]
    for path in sorted(Path("/dev").glob(_DEVICES)):
        line += ["--dev-bind", str(path), str(path)]
    for path in runtime_folders():
        line += [*_way(path), "--ro-bind-try", str(path), str(path)]
    if rights.own is not None and rights.shown is not HomeShown.NO:
        bind = "--bind" if rights.shown is HomeShown.WRITE else "--ro-bind"
        line += [*_way(rights.own), bind, str(rights.own), str(rights.own)]
    line += [*_way(home), "--tmpfs", str(home)]
    for path in keep:
        line += [*_way(path), "--bind", str(path), str(path)]
    for one in mounts:
        line += [*_way(one.target), "--ro-bind" if one.read_only else "--bind", str(one.source), str(one.target)]
    groups = ["--groups", ",".join(map(str, rights.groups))] if rights.groups else ["--clear-groups"]
    user = ["--reuid", str(rights.uid), "--regid", str(rights.gid), *groups, "--no-new-privs", "--inh-caps=-all"]
    end = [str(Path(sys.executable).resolve()), "-I", "-S", str(Path(__file__).with_name("last.py"))]
    return [*line, "--", _program("setpriv"), *user, "--", *end]


def devices() -> list[str]:
    """What a rank with a `/dev` of its own has of the machine's: no disk, no other user's terminal."""
    found = [name for name in _SHOWN if Path("/dev", name).exists()]
    return [*found, *sorted(path.name for pattern in _COMPUTE for path in Path("/dev").glob(pattern))]


PAM_SERVICE = Path("/etc/pam.d/shoal")
"""Where it is there, jobs of users of the machine begin with what its session modules do."""


def session_of(user: str) -> list[str] | None:
    """PAM's service and the user; None where the machine has no such service."""
    return [PAM_SERVICE.name, user] if PAM_SERVICE.exists() else None


def _program(name: str) -> str:
    """Its absolute path, also where the server's PATH has a relative one: it is started in another directory."""
    return str(Path(shutil.which(name) or f"/usr/bin/{name}").absolute())


def _way(path: Path) -> list[str]:
    """The directories above a path, open to all: by itself bubblewrap makes them for root alone."""
    return [word for folder in reversed(path.parents[:-1]) for word in ("--perms", "0755", "--dir", str(folder))]


def runtime_folders() -> list[Path]:
    """Where the interpreter, its packages and this one are."""
    package = Path(shoal.__file__).parent
    return sorted({Path(sys.base_prefix).resolve(), Path(sys.prefix), Path(sys.prefix).resolve(), package})


def _private(path: Path) -> Path | None:
    """The first directory on the way to a path that others may not enter."""
    return next((folder for folder in reversed(path.parents) if not folder.stat().st_mode & 0o001), None)
