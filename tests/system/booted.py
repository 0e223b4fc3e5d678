"""A machine of its own for a test: systemd as process 1 in new namespaces, over a copy-on-write view of this machine.

It has its own files (an overlay in memory), processes, network and control groups, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

_READY_S = 90.0
_BOOT = r"""
set -e
M="$1/root"
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$M"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$M"
rm -rf "$M"/etc/systemd/system/* "$M"/lib/systemd/system/*.wants "$M"/etc/shoal "$M"/var/lib/shoal
chmod 711 "$M/root"
mount -t proc proc "$M/proc"
mount -t sysfs sysfs "$M/sys"
for one in run tmp dev; do mount -t tmpfs tmpfs "$M/$one"; done
mkdir "$M/dev/pts" "$M/dev/shm"
for one in null zero full random urandom tty; do touch "$M/dev/$one"; mount --bind "/dev/$one" "$M/dev/$one"; done
mount -t devpts -o newinstance,ptmxmode=666 devpts "$M/dev/pts"
ln -s pts/ptmx "$M/dev/ptmx"
mount -t tmpfs tmpfs "$M/dev/shm"
mount -t tmpfs tmpfs "$M/sys/fs/cgroup"
mkdir "$M/sys/fs/cgroup/systemd"
mount -t cgroup -o none,name=systemd cgroup "$M/sys/fs/cgroup/systemd"
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$M" \
    /lib/systemd/systemd --unit=multi-user.target --log-target=console
"""
_GROUPS = Path("/sys/fs/cgroup")


class Booted:
    def __init__(self, pid: int) -> None:
        self.pid = pid

    def run(self, *words: str, check: bool = True, **env: str) -> subprocess.CompletedProcess[str]:
        """A command there, by root."""
        line = ["nsenter", "-t", str(self.pid), "-m", "-p", "-i", "-u", "-n", "-C", "-r", "-w", "--", *words]
        path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        done = subprocess.run(
            line, env={"PATH": path, "HOME": "/root", **env}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 or not check, f"{words}: {done.stdout}{done.stderr}"
        return done

    def until(self, *words: str, says: str) -> None:
        """A command says this."""
        ends_at, told = time.monotonic() + _READY_S, ""
        while says not in told.split():
            assert time.monotonic() < ends_at, f"{words}: {told}; {self.run('journalctl', '-n50', check=False).stdout}"
            done = self.run(*words, check=False)
            told = done.stdout + done.stderr
            time.sleep(0.1)


def missing() -> str:
    """Why none can be had here; empty where it can."""
    if os.geteuid():
        return "needs root"
    absent = [one for one in ("unshare", "nsenter", "/lib/systemd/systemd") if shutil.which(one) is None]
    if absent:
        return f"there is no {absent[0]}"
    controllers = [one for one in _GROUPS.iterdir() if (one / "cgroup.procs").exists()] if _GROUPS.is_dir() else []
    return (
        "" if (_GROUPS / "systemd").is_dir() and controllers else "needs the hierarchy of systemd's control groups (v1)"
    )


@contextlib.contextmanager
def booted(folder: Path) -> Iterator[Booted]:
    at = folder / "machine"
    at.mkdir()
    name = f"shoal-booted-{os.getpid()}"
    groups = [one / name for one in _GROUPS.iterdir() if (one / "cgroup.procs").exists() and one.name != "cpuset"]
    for one in groups:
        one.mkdir()

    def enter() -> None:
        for one in groups:
            (one / "cgroup.procs").write_text(str(os.getpid()))

    words = ["unshare", "-m", "-p", "-u", "-i", "-n", "-C", "-f", "--kill-child", "sh", "-c", _BOOT, "boot", str(at)]
    with (folder / "console").open("wb") as console:
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=console, stderr=console, preexec_fn=enter, start_new_session=True
        )
    try:
        ends_at = time.monotonic() + _READY_S
        while not (found := _children(process.pid)) or Path(f"/proc/{found[0]}/comm").read_text() != "systemd\n":
            assert process.poll() is None, (folder / "console").read_text(errors="replace")
            assert time.monotonic() < ends_at, (folder / "console").read_text(errors="replace")
            time.sleep(0.05)
        machine = Booted(found[0])
        machine.until("systemctl", "is-system-running", says="running")
        yield machine
    finally:
        for pid in _children(process.pid):
            os.kill(pid, signal.SIGKILL)
        process.kill()
        process.wait()
        for one in groups:
            _remove(one)


def _children(pid: int) -> Sequence[int]:
    try:
        return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def _remove(group: Path) -> None:
    ends_at = time.monotonic() + _READY_S
    for inner in [*sorted(group.rglob("*/"), key=lambda one: -len(one.parts)), group]:
        while inner.is_dir():
            try:
                inner.rmdir()
            except OSError:  # a process is still being ended
                assert time.monotonic() < ends_at
                time.sleep(0.05)
