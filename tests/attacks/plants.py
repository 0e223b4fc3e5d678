"""Traps for whoever reads and removes what a job leaves: links, pipes, sockets, junk and depth, under every name that
the server, the supervisor and sessions read. The last line says that all lie there."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable

kind, canary, bystander, home = sys.argv[1:5]
run, kept = os.environ["SHOAL_RUN"], os.environ["SHOAL_CHECKPOINT_DIR"]
NAMES = (
    "metrics.jsonl", "log.times", "cooperative", "notice", "in-effect", "1.ring", "x.ring.draft", "checkpoints.jsonl",
    "session-main.sock", "session-x.sock", f".notice-{os.getppid()}", "ssh", "usage", "progress", "record.new",
)  # fmt: skip
JUNK = {
    "metrics.jsonl": b"[" * 100_000 + b'\n{"loss": 1e400}\n{"\xff": 1}\n{"loss": "\x1b]0;owned\x07"}\n',
    "1.ring": b"\xff" * 4096,
}


def link(path: str) -> None:
    os.symlink(canary, path)


def folder_link(path: str) -> None:
    os.symlink(bystander, path)


def pipe(path: str) -> None:
    os.mkfifo(path, 0o666)


def door(path: str) -> None:
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)


def junk(path: str) -> None:
    with open(path, "wb") as file:
        file.write(JUNK.get(os.path.basename(path), b"\0" * 100))
        file.truncate(1 << 42)


def folder(path: str) -> None:
    os.makedirs(f"{path}/inside")


MADE: dict[str, Callable[[str], None]] = {
    "links": link, "folder links": folder_link, "pipes": pipe, "doors": door, "junk": junk, "folders": folder,
}  # fmt: skip

signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.umask(0)
for name in NAMES:
    with contextlib.suppress(OSError):
        MADE[kind](f"{run}/{name}")
for place in (".", kept):
    for name in ("result", "model", "latest"):
        with contextlib.suppress(OSError):
            MADE[kind](f"{place}/{name}")
    for name, target in (
        ("up", "../.."),
        ("home", home),
        ("self", "/proc/self"),
        ("loop", "loop"),
        ("zero", "/dev/zero"),
    ):
        os.symlink(target, f"{place}/{name}")
    open(f"{place}/\x1b[2Jname\nwith\tthese", "w").close()
    open(os.fsencode(place) + b"/\xff\xfe", "w").close()
    os.mkdir(f"{place}/closed", 0)
    here = os.getcwd()
    os.chdir(place)
    for _ in range(300):
        os.mkdir("deep")
        os.chdir("deep")
    os.chdir(here)
print("\x1b]0;owned\x07\x1b[2J", flush=True)
print(json.dumps({"planted": kind}), flush=True)
while sys.argv[5:] != ["ends"]:
    time.sleep(60)
