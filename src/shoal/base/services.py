"""The files by which a machine keeps a server running: for systemd, its users and directories, and logrotate."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from shoal.base import beneath
from shoal.base.home import SYSTEM_SOCKET
from shoal.core import Conflict, Invalid

MARK = "# Written by `shoal install`. Changes belong into a drop-in: `systemctl edit shoal`.\n"
_OWN = "# Written by `shoal install`"

NEXT = (
    "systemd-sysusers && systemd-tmpfiles --create",
    "systemctl daemon-reload",
    "systemctl enable --now shoal",
)
"""What an admin types once the files are there."""

_USER = re.compile(r"[a-z_][a-z0-9_-]{0,30}")
_PLAIN = re.compile(r"/[A-Za-z0-9/._+@-]*")


@dataclass(frozen=True, slots=True)
class Installation:
    """`python` is the interpreter that has Shoal. Raises Invalid for what a unit's file cannot name."""

    python: Path
    home: Path
    config: Path
    user: str

    def __post_init__(self) -> None:
        if not _USER.fullmatch(self.user):
            raise Invalid(f"{self.user!r} is no user's name", where="--user", hint="such as shoal")
        for path in (self.python, self.home, self.config):
            if not _PLAIN.fullmatch(str(path)) or ".." in path.parts:
                raise Invalid(
                    f"{str(path)!r} cannot stand in a unit", where="path",
                    hint="an absolute path of letters, digits and . _ + @ - is needed",
                )  # fmt: skip


@dataclass(frozen=True, slots=True)
class File:
    """`keep`: one that is there stays as it is."""

    path: Path
    text: str
    keep: bool = False

    def as_json(self) -> dict[str, str]:
        return {"path": str(self.path), "text": self.text}

    def shown(self) -> str:
        return f"==> {self.path} <==\n{self.text}"


def files(one: Installation) -> list[File]:
    """All of them."""
    found = [
        File(Path("/etc/systemd/system/shoal.service"), _unit(one)),
        File(Path("/etc/tmpfiles.d/shoal.conf"), _directories(one)),
        File(Path("/etc/logrotate.d/shoal"), _rotation(one)),
        File(one.config, _CONFIG if one.user != "root" else f"{_CONFIG}socket: {SYSTEM_SOCKET}\n", keep=True),
    ]
    if one.user == "root":
        found.append(File(Path("/etc/pam.d/shoal"), f"{MARK}session required pam_limits.so\n", keep=True))
    else:
        found.insert(1, File(Path("/etc/sysusers.d/shoal.conf"), f'{MARK}u {one.user} - "Shoal" {one.home}\n'))
    return found


def _unit(one: Installation) -> str:
    # Jobs outlive the server, as its supervisors hold them: only the server itself is ended, and its cgroup is its own.
    return f"""{MARK}[Unit]
Description=Shoal: many tenants share a few accelerators
Wants=network-online.target
After=network-online.target time-sync.target nss-user-lookup.target

[Service]
Type=exec
User={one.user}
ExecStart={one.python} -m shoal.cli up --home {one.home} --config {one.config}
KillMode=process
KillSignal=SIGTERM
TimeoutStopSec=60
Restart=on-failure
RestartSec=2
Delegate=yes
LimitNOFILE=1048576
TasksMax=infinity
RuntimeDirectory=shoal
RuntimeDirectoryMode=0755
RuntimeDirectoryPreserve=yes
WorkingDirectory={one.home}

[Install]
WantedBy=multi-user.target
"""


def _directories(one: Installation) -> str:
    group = one.user
    mode = "0711" if one.user == "root" else "0750"  # tenants' users pass through to their jobs
    return (
        f"{MARK}d {one.home} {mode} {one.user} {group} -\nd {one.config.parent} 0750 root {group} -\n"
        f"z {one.config} 0640 root {group} -\n"
    )


def _rotation(one: Installation) -> str:
    # By copying: the server and what it starts hold these files open. `su`, for the directory is the user's.
    return f"""{MARK}{one.home}/*.log {{
    su {one.user} {one.user}
    weekly
    rotate 8
    size 10M
    missingok
    notifempty
    compress
    copytruncate
}}
"""


_CONFIG = """# Settings of the server: `shoal settings` lists all. `systemctl restart shoal` reads them; jobs go on.
host: 127.0.0.1
port: 7070
"""


def put(root: Path, file: File, *, force: bool = False) -> bool:
    """Write a file beneath `root`, whole or not at all, and by no link. False where it stays as it was. Raises Conflict
    for one that Shoal did not write, unless `force` says so, and OSError."""
    parts = file.path.parts[1:]
    _make_folders(root, parts[:-1])
    with beneath.directory(root, parts[:-1]) as folder:
        before = _read(folder, parts[-1], str(root / file.path.relative_to("/")))
        if before is not None and file.keep:
            return False
        if before is not None and not before.startswith(_OWN) and not force:
            raise Conflict(
                "the file is not Shoal's", where=str(root / file.path.relative_to("/")),
                hint="look at it; --force replaces it",
            )  # fmt: skip
        part = f".{parts[-1]}.part"
        with contextlib.suppress(FileNotFoundError):
            os.unlink(part, dir_fd=folder)
        made = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder)
        with os.fdopen(made, "w") as writer:
            os.fchmod(writer.fileno(), 0o644)
            writer.write(file.text)
            writer.flush()
            os.fsync(writer.fileno())
        os.replace(part, parts[-1], src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _make_folders(root: Path, parts: tuple[str, ...]) -> None:
    """Those that are missing, for all to read."""
    root.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(parts):
        with beneath.directory(root, parts[:number]) as at, contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=at)


def _read(folder: int, name: str, where: str) -> str | None:
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise Conflict(f"it is no plain file: {error.strerror}", where=where, hint="remove it") from error
    with os.fdopen(descriptor, "r", errors="replace") as reader:
        if not stat.S_ISREG(os.fstat(reader.fileno()).st_mode):
            raise Conflict("it is no plain file", where=where, hint="remove it")
        return reader.read(1 << 20)
