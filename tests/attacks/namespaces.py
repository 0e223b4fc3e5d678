"""A job whose own process lies in namespaces of its making, in which `/etc` has every program load a library: a trap
for a program with rights that enters them."""

from __future__ import annotations

import ctypes
import os
import sys
import time

USERS, MOUNTS = 1 << 28, 1 << 17
REC, PRIVATE = 1 << 14, 1 << 18
libc = ctypes.CDLL(None, use_errno=True)
uid, gid = os.getuid(), os.getgid()


def done(result: int) -> None:
    if result:
        print(f"cannot: {os.strerror(ctypes.get_errno())}", flush=True)
        sys.exit(0)


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


done(libc.unshare(USERS | MOUNTS))
write("/proc/self/setgroups", "deny")
write("/proc/self/uid_map", f"{uid} {uid} 1")
write("/proc/self/gid_map", f"{gid} {gid} 1")
done(libc.mount(b"none", b"/", None, REC | PRIVATE, None))
for place in ("/etc", "/tmp"):
    done(libc.mount(b"none", place.encode(), b"tmpfs", 0, None))
write("/etc/ld.so.preload", sys.argv[1])
print("ready", flush=True)
while True:
    time.sleep(60)
