"""The attacks: a program that a hostile tenant's process runs, and the table of what it tries.

`python3 within.py FACTS` (or its text by `-c`), FACTS being a JSON object. It needs nothing but the standard library.
Each attack runs in a child of its own and tells a JSON line: how often it tried, and what it reached. An attempt that
raises OSError or ValueError failed; so did one whose `check` found nothing. Everything else counts as reached.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import json
import os
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

Attempts = Iterator[tuple[str, Callable[[], Any]]]
LIMIT_S = 20
"""An attack that takes longer hangs, and counts as reached."""


class Attack(NamedTuple):
    """`open_at`: the levels at which it succeeds by design; the page about sandboxes says so in the row `told`.
    `harmless` ones change nothing, also with root's rights."""

    name: str
    area: str
    run: Callable[[Facts], Attempts]
    open_at: frozenset[str]
    told: str
    harmless: bool


class Facts(NamedTuple):
    """What an attacker may know: guessing is no protection."""

    home: str
    port: int
    door: str
    """The server's socket for users of the machine."""
    victim: int
    supervisor: int
    server: int
    victim_uid: int
    victim_paths: list[str]
    victim_port: int
    marks: str
    """What the victim left open or closed by name carries this in it."""
    key: int
    """Of the victim's System V shared memory that is open to all; the next one is closed."""
    setuid: str
    canary: str
    """A file that only root may reach."""

    @property
    def others(self) -> tuple[int, int, int]:
        return self.victim, self.supervisor, self.server


ATTACKS: list[Attack] = []


def attack(
    area: str, name: str, *, open_at: tuple[str, ...] = (), told: str = "", harmless: bool = False
) -> Callable[[Callable[[Facts], Attempts]], Callable[[Facts], Attempts]]:
    def note(run: Callable[[Facts], Attempts]) -> Callable[[Facts], Attempts]:
        ATTACKS.append(Attack(name, area, run, frozenset(open_at), told, harmless))
        return run

    return note


# --- what attacks are made of ---

libc = ctypes.CDLL(None, use_errno=True)
_X86 = {
    "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "bpf": 321, "perf_event_open": 298,
    "ioprio_set": 251, "init_module": 175, "finit_module": 313, "kexec_load": 246, "reboot": 169, "syslog": 103,
    "tgkill": 234, "rt_sigqueueinfo": 129, "capset": 126, "pivot_root": 155, "swapon": 167, "acct": 163,
    "open_by_handle_at": 304, "add_key": 248, "keyctl": 250, "quotactl": 179, "migrate_pages": 256, "move_pages": 279,
    "settimeofday": 164, "adjtimex": 159, "vhangup": 153, "get_robust_list": 274, "sched_setattr": 314,
}  # fmt: skip
_ARM = {
    "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "bpf": 280, "perf_event_open": 241,
    "ioprio_set": 30, "init_module": 105, "finit_module": 273, "kexec_load": 104, "reboot": 142, "syslog": 116,
    "tgkill": 131, "rt_sigqueueinfo": 138, "capset": 91, "pivot_root": 41, "swapon": 224, "acct": 89,
    "open_by_handle_at": 265, "add_key": 217, "keyctl": 219, "quotactl": 60, "migrate_pages": 238, "move_pages": 239,
    "settimeofday": 170, "adjtimex": 171, "vhangup": 58, "get_robust_list": 100, "sched_setattr": 274,
}  # fmt: skip
_CALLS = {
    **(_ARM if os.uname().machine == "aarch64" else _X86),
    "pidfd_send_signal": 424, "open_tree": 428, "move_mount": 429, "fsopen": 430, "pidfd_open": 434,
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "process_mrelease": 448,
}  # fmt: skip


def system(name: str, *given: Any) -> int:
    """A system call by name: its result, or OSError."""
    ctypes.set_errno(0)
    result = int(libc.syscall(_CALLS[name], *given))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def call(function: str, *given: Any) -> int:
    """A function of the C library that answers -1 where it fails."""
    ctypes.set_errno(0)
    result = int(getattr(libc, function)(*given))
    if result == -1:
        raise OSError(ctypes.get_errno(), function)
    return result


def check(reached: object) -> None:
    if not reached:
        raise PermissionError


def read(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read(64)


def write(path: str, text: str) -> None:
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def listed(path: str) -> set[str]:
    """What can be seen of a directory."""
    try:
        return set(os.listdir(path))
    except OSError:
        return set()


def child(act: Callable[[], Any]) -> None:
    """Done in a child, since it cannot be undone."""
    pid = os.fork()
    if pid == 0:
        try:
            act()
        except (OSError, ValueError):
            os._exit(0)
        except BaseException:
            os._exit(2)
        os._exit(1)
    check(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


# --- the server's home ---

SERVERS_OWN = (
    "shoal.db", "shoal.db-wal", "secret.key", "admin.token", "sandbox-users.json", "engine.lock", "bundles",
    "server.json", "server.log", "config.yaml", "lock", "artifacts", "environment", "backups", "deleted",
)  # fmt: skip


@attack("paths", "read the server's files", harmless=True)
def _(facts: Facts) -> Attempts:
    for name in SERVERS_OWN:
        yield f"stat {name}", lambda: os.stat(f"{facts.home}/{name}")
        yield f"read {name}", lambda: read(f"{facts.home}/{name}")
    for name in ("secret.key", "admin.token"):
        yield name, lambda: read(f"/proc/self/root{facts.home}/{name}")
        yield f"{name} from here", lambda: read(os.path.relpath(f"{facts.home}/{name}"))
    for name in listed(facts.home) - {"runs", "gangs", "checkpoints", "planes", "serve"}:
        yield f"see {name}", lambda: True
    for name in listed(f"{facts.home}/serve") - {"replicas"}:
        yield f"see serve/{name}", lambda: True
    for name in ("runs", "checkpoints", "planes"):
        yield f"list {name}", lambda: check(len(os.listdir(f"{facts.home}/{name}")) > 1)
    for plane in glob.glob(f"{facts.home}/planes/*"):
        for name in ("shoal.db", "secret.key", "admin.token"):
            yield f"{plane}/{name}", lambda: os.stat(f"{plane}/{name}")


@attack("paths", "change the server's home")
def _(facts: Facts) -> Attempts:
    for place in ("", "/runs", "/gangs", "/checkpoints", "/planes", "/bundles"):
        yield f"mkdir {place}", lambda: os.mkdir(f"{facts.home}{place}/mine")
        yield f"symlink {place}", lambda: os.symlink("/", f"{facts.home}{place}/link")
        yield f"rename {place}", lambda: os.rename(f"{facts.home}{place}", f"{facts.home}{place}.old")
        yield f"chmod {place}", lambda: os.chmod(f"{facts.home}{place}", 0o777)
    for name in ("admin.token", "shoal.db", "secret.key"):
        yield f"write {name}", lambda: write(f"{facts.home}/{name}", "mine")
        yield f"make {name}", lambda: os.close(os.open(f"{facts.home}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))


@attack("paths", "the way of replicas to their gateway")
def _(facts: Facts) -> Attempts:
    folder = f"{facts.home}/serve/replicas"
    yield "remove", lambda: os.unlink(f"{folder}/gateway.sock")
    yield "rename", lambda: os.rename(f"{folder}/gateway.sock", f"{folder}/mine")
    yield "mode", lambda: os.chmod(f"{folder}/gateway.sock", 0o777)
    yield "beside", lambda: socket.socket(socket.AF_UNIX).bind(f"{folder}/mine")
    yield "a file", lambda: os.close(os.open(f"{folder}/mine", os.O_CREAT | os.O_WRONLY))

    def join() -> None:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(5)
            asking.connect(f"{folder}/gateway.sock")
            asking.sendall(bytes(64))
            check(asking.recv(4096))

    yield "join without a token", join


@attack("paths", "descriptors that were left open", harmless=True)
def _(facts: Facts) -> Attempts:
    for fd in range(3, 256):
        try:
            where = os.readlink(f"/proc/self/fd/{fd}")
        except OSError:
            continue
        if where.startswith("/") and fd > 2:
            yield where, lambda: check(where.startswith((facts.home, facts.canary, "/root")))
    for fd in (0, 1, 2):
        yield f"the directory of {fd}", lambda: os.close(os.open("..", os.O_RDONLY, dir_fd=fd))
    yield (
        "the parents of here",
        lambda: check(set(os.listdir("../..")) - {os.path.basename(os.path.dirname(os.getcwd()))}),
    )
    handle = struct.pack("Ii", 8, 1) + bytes(8)
    yield "by handle", lambda: system("open_by_handle_at", os.open(".", os.O_RDONLY), handle, 0)


@attack("paths", "another tenant's files", harmless=True)
def _(facts: Facts) -> Attempts:
    for path in facts.victim_paths:
        yield f"list {path}", lambda: os.listdir(path)
        yield f"enter {path}", lambda: child(lambda: os.chdir(path))
        for name in ("secret.txt", "model", "log", "record", "metrics.jsonl"):
            yield f"read {path}/{name}", lambda: read(f"{path}/{name}")
            yield f"stat {path}/{name}", lambda: os.stat(f"{path}/{name}")
            yield f"hold {path}/{name}", lambda: os.open(f"{path}/{name}", os.O_PATH)
        yield f"watch {path}", lambda: call("inotify_add_watch", libc.inotify_init(), path.encode(), 0xFFF)


@attack("paths", "change another tenant's files")
def _(facts: Facts) -> Attempts:
    for path in facts.victim_paths:
        yield f"make in {path}", lambda: os.mkdir(f"{path}/mine")
        yield f"rename {path}", lambda: os.rename(path, f"{path}.old")
        yield f"give {path}", lambda: os.chown(path, os.getuid(), -1)
        for name in ("secret.txt", "model", "log"):
            yield f"write {path}/{name}", lambda: write(f"{path}/{name}", "mine")
            yield f"cut {path}/{name}", lambda: os.truncate(f"{path}/{name}", 0)
            yield f"remove {path}/{name}", lambda: os.unlink(f"{path}/{name}")
            yield f"open {path}/{name} to all", lambda: os.chmod(f"{path}/{name}", 0o666)
            yield f"link {path}/{name}", lambda: os.link(f"{path}/{name}", "linked")


@attack("paths", "files of root", harmless=True)
def _(facts: Facts) -> Attempts:
    for path in (facts.canary, "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/proc/kcore", "/proc/1/environ"):
        yield path, lambda: read(path)
    for path in (os.path.dirname(facts.canary), "/root/.ssh", "/var/spool/cron/crontabs", "/etc/ssl/private"):
        yield f"list {path}", lambda: os.listdir(path)


@attack("paths", "write to the system")
def _(facts: Facts) -> Attempts:
    for path in (
        "/etc/passwd",
        "/etc/ld.so.preload",
        "/etc/cron.d",
        "/usr/local/bin",
        "/usr/lib",
        "/root",
        "/run",
        "/opt",
    ):
        yield f"make in {path}", lambda: os.close(os.open(f"{path}/shoal-mine", os.O_CREAT | os.O_WRONLY, 0o666))
    yield "/etc/passwd", lambda: write("/etc/passwd", "")
    yield "/etc/ld.so.preload", lambda: os.close(os.open("/etc/ld.so.preload", os.O_CREAT | os.O_WRONLY, 0o666))
    yield "the interpreter", lambda: write(os.path.realpath(sys.executable), "")
    yield "its library", lambda: os.close(os.open(f"{os.path.dirname(os.__file__)}/mine.py", os.O_CREAT | os.O_WRONLY))


@attack("paths", "hard links to files of others")
def _(facts: Facts) -> Attempts:
    mine = os.environ["SHOAL_RUN"] + "/record"
    for number, path in enumerate(("/etc/passwd", "/etc/shadow", f"{facts.home}/secret.key", mine, facts.door)):
        yield path, lambda: os.link(path, f"link{number}")
        yield (
            f"{path} by its descriptor",
            lambda: os.link(f"/proc/self/fd/{os.open(path, os.O_PATH)}", f"held{number}", follow_symlinks=True),
        )


@attack("paths", "the server's records of the own job")
def _(facts: Facts) -> Attempts:
    run = os.environ["SHOAL_RUN"]
    above = os.path.dirname(run)
    for name in ("record", "log"):
        yield f"unlink {name}", lambda: os.unlink(f"{run}/{name}")
        yield f"rename {name}", lambda: os.rename(f"{run}/{name}", f"{run}/other")
        yield (
            f"over {name}",
            lambda: (os.symlink("/etc/passwd", f"{run}/s{name}"), os.rename(f"{run}/s{name}", f"{run}/{name}")),
        )
        yield f"chmod {name}", lambda: os.chmod(f"{run}/{name}", 0o666)
    yield "write the record", lambda: write(f"{run}/record", "mine")
    yield "read the record", lambda: read(f"{run}/record")
    yield "rename the directory", lambda: os.rename(run, f"{run}.old")
    yield "rename the run directory", lambda: os.rename(os.getcwd(), f"{os.getcwd()}.old")
    for name in (
        "rank-1",
        "decision",
        "decision.new",
        "stop",
        "go",
        "gang.json",
        "past.json",
        "beside-0",
        "beside-0/x",
    ):
        yield f"make {name}", lambda: os.close(os.open(f"{above}/{name}", os.O_CREAT | os.O_WRONLY, 0o666))
        yield f"link {name}", lambda: os.symlink("/etc", f"{above}/{name}")
        yield f"read {name}", lambda: read(f"{above}/{name}")
    yield "the others of the gang", lambda: check(set(os.listdir(above)) - {"rank-0"})
    yield "the engine's hints", lambda: os.open(f"{facts.home}/engine.fifo", os.O_WRONLY | os.O_NONBLOCK)


# --- other processes ---

_READ = (
    "environ", "mem", "maps", "smaps", "auxv", "stack", "syscall", "io", "personality", "pagemap", "numa_maps",
)  # fmt: skip
_WRITE = {
    "oom_score_adj": "1000", "oom_adj": "15", "clear_refs": "1", "coredump_filter": "0", "timerslack_ns": "1",
    "comm": "mine", "autogroup": "19", "sched": "0", "loginuid": "0", "uid_map": "0 0 1", "gid_map": "0 0 1",
    "setgroups": "deny", "make-it-fail": "1", "attr/current": "mine", "mem": "mine",
}  # fmt: skip


@attack("processes", "read /proc of others", harmless=True)
def _(facts: Facts) -> Attempts:
    for pid in facts.others:
        for name in _READ:
            yield f"{pid} {name}", lambda: read(f"/proc/{pid}/{name}")
            yield f"{pid} task {name}", lambda: read(f"/proc/{pid}/task/{pid}/{name}")
        for name in ("fd", "fdinfo", "map_files", "cwd/", "root/"):
            yield f"{pid} {name}", lambda: check(os.listdir(f"/proc/{pid}/{name}"))
        for name in ("cwd", "root", "exe", "fd/0", "ns/mnt", "ns/user", "ns/pid"):
            yield f"{pid} {name}", lambda: os.readlink(f"/proc/{pid}/{name}")
        for path in facts.victim_paths:
            yield f"{pid} root{path}", lambda: os.listdir(f"/proc/{pid}/root{path}")


@attack("processes", "write /proc of others")
def _(facts: Facts) -> Attempts:
    for pid in facts.others:
        for name, text in _WRITE.items():
            yield f"{pid} {name}", lambda: write(f"/proc/{pid}/{name}", text)
        for fd in range(20):
            yield f"{pid} fd {fd}", lambda: os.open(f"/proc/{pid}/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)


@attack(
    "processes", "command lines of others", open_at=("user",), told="see the names and command lines", harmless=True
)
def _(facts: Facts) -> Attempts:
    yield "the server's", lambda: check(b"shoal" in read(f"/proc/{facts.server}/cmdline"))


@attack("processes", "signals")
def _(facts: Facts) -> Attempts:
    numbers = (0, signal.SIGCONT, signal.SIGUSR1, signal.SIGTERM, signal.SIGSTOP, signal.SIGKILL)
    for pid in facts.others:
        for number in numbers:
            yield f"kill {pid} {number}", lambda: os.kill(pid, number)
            yield f"kill the group of {pid} {number}", lambda: os.killpg(pid, number)
            yield f"tgkill {pid} {number}", lambda: system("tgkill", pid, pid, number)
            yield (
                f"pidfd {pid} {number}",
                lambda: system("pidfd_send_signal", system("pidfd_open", pid, 0), number, 0, 0),
            )
        info = struct.pack("iii", signal.SIGTERM, 0, -1).ljust(128, b"\0")
        yield f"queue for {pid}", lambda: system("rt_sigqueueinfo", pid, signal.SIGTERM, info)


@attack("processes", "trace")
def _(facts: Facts) -> Attempts:
    buffer = ctypes.create_string_buffer(16)
    near = struct.pack("qq", ctypes.addressof(buffer), 16)
    far = struct.pack("qq", 0, 16)

    def moved(name: str, pid: int) -> None:
        """A wrong address is told only to those who may."""
        try:
            system(name, pid, near, 1, far, 1, 0)
        except OSError as error:
            if error.errno != errno.EFAULT:
                raise

    for pid in facts.others:
        for request, what in ((16, "attach"), (0x4206, "seize")):
            yield f"{what} {pid}", lambda: call("ptrace", request, pid, 0, 0)
        yield f"read {pid}", lambda: moved("process_vm_readv", pid)
        yield f"write {pid}", lambda: moved("process_vm_writev", pid)
        yield f"compare {pid}", lambda: system("kcmp", os.getpid(), pid, 0, 0, 0)
        for fd in range(12):
            yield f"take descriptor {fd} of {pid}", lambda: system("pidfd_getfd", system("pidfd_open", pid, 0), fd, 0)
        yield f"advise {pid}", lambda: system("process_madvise", system("pidfd_open", pid, 0), near, 1, 20, 0)
        yield f"release {pid}", lambda: system("process_mrelease", system("pidfd_open", pid, 0), 0)
        event = struct.pack("IIQ", 1, 128, 0).ljust(128, b"\0")
        yield f"count {pid}", lambda: system("perf_event_open", event, pid, -1, -1, 0)
        yield (
            f"locks of {pid}",
            lambda: system("get_robust_list", pid, ctypes.byref(ctypes.c_void_p()), ctypes.byref(ctypes.c_size_t())),
        )
        yield f"pages of {pid}", lambda: system("move_pages", pid, 1, near, near, buffer, 0)
        for kind in ("mnt", "pid", "net", "ipc", "uts", "user", "cgroup"):
            yield f"join {kind} of {pid}", lambda: call("setns", os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY), 0)
        yield f"join {pid}", lambda: call("setns", system("pidfd_open", pid, 0), 0x20000)


@attack("processes", "limits and priorities")
def _(facts: Facts) -> Attempts:
    for pid in facts.others:
        for kind in (os.PRIO_PROCESS, os.PRIO_PGRP):
            yield f"nice {pid}", lambda: os.setpriority(kind, pid, 19)
        yield f"affinity {pid}", lambda: os.sched_setaffinity(pid, {0})
        yield f"scheduler {pid}", lambda: os.sched_setscheduler(pid, os.SCHED_IDLE, os.sched_param(0))
        yield f"files {pid}", lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0))
        yield f"limits {pid}", lambda: resource.prlimit(pid, resource.RLIMIT_CPU)
        yield f"io {pid}", lambda: system("ioprio_set", 1, pid, 3 << 13)
    yield "nice a user", lambda: os.setpriority(os.PRIO_USER, facts.victim_uid, 19)
    yield "io of a user", lambda: system("ioprio_set", 3, facts.victim_uid, 3 << 13)
    yield "be quicker", lambda: os.nice(-5)
    yield "be first", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    yield "io before all", lambda: system("ioprio_set", 1, 0, 1 << 13)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield "more files", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard + 1, hard + 1))
    yield "be spared", lambda: write("/proc/self/oom_score_adj", "-900")


# --- rights ---


@attack("rights", "become root")
def _(facts: Facts) -> Attempts:
    yield "setuid", lambda: os.setuid(0)
    yield "setgid", lambda: os.setgid(0)
    yield "setresuid", lambda: os.setresuid(0, 0, 0)
    yield "setresgid", lambda: os.setresgid(0, 0, 0)
    yield "setgroups", lambda: os.setgroups([0])
    yield "be the victim", lambda: os.setresuid(-1, facts.victim_uid, -1)
    yield "the victim's group", lambda: os.setresgid(-1, facts.victim_uid, -1)

    def by_file_system() -> None:
        libc.setfsuid(0)
        check(libc.setfsuid(-1) == 0)

    yield "setfsuid", by_file_system
    yield "the ids", lambda: check(0 in (*os.getresuid(), *os.getresgid(), *os.getgroups()))
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    yield "new privileges", lambda: check(status["NoNewPrivs"].strip() != "1")
    for name in ("CapPrm", "CapEff", "CapAmb", "CapInh"):
        yield name, lambda: check(int(status[name], 16))
    yield (
        "capset",
        lambda: system(
            "capset", struct.pack("Ii", 0x20080522, 0), struct.pack("IIIIII", 1 << 21, 1 << 21, 1 << 21, 0, 0, 0)
        ),
    )
    yield "ambient", lambda: call("prctl", 47, 2, 21, 0, 0)
    yield "no new privileges off", lambda: call("prctl", 38, 0, 0, 0, 0)
    yield "bits", lambda: call("prctl", 28, 1, 0, 0, 0)


@attack("rights", "setuid programs")
def _(facts: Facts) -> Attempts:
    def says_root(*line: str) -> None:
        done = subprocess.run(line, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=10, check=False)
        check(done.stdout.strip() == "0")

    yield "the one there", lambda: says_root(facts.setuid, "-u")
    yield (
        "by the loader",
        lambda: says_root(
            glob.glob("/lib64/ld-linux*")[0] if glob.glob("/lib64/ld-linux*") else "/x", facts.setuid, "-u"
        ),
    )
    shutil.copy("/usr/bin/id", "id")
    yield "one's own", lambda: os.chown("id", 0, 0)
    yield (
        "by capabilities",
        lambda: os.setxattr("id", "security.capability", struct.pack("IIIII", 0x2000001, 1 << 7, 0, 0, 0)),
    )
    yield "by an attribute of trust", lambda: os.setxattr("id", "trusted.mine", b"1")
    for line in (("su", "-c", "id -u"), ("sudo", "-n", "id", "-u"), ("pkexec", "id", "-u")):
        yield line[0], lambda: says_root(*line)


@attack("rights", "mounts")
def _(facts: Facts) -> Attempts:
    home = facts.home.encode()
    yield "uncover", lambda: call("umount2", home, 2)
    yield "cover", lambda: call("mount", b"none", home, b"tmpfs", 0, None)
    yield "bind", lambda: call("mount", b"/", b".", None, 4096 | 16384, None)
    yield "remount", lambda: call("mount", b"none", b"/", None, 32, None)
    yield "a disk", lambda: call("mount", b"/dev/vda", b".", b"ext4", 0, None)
    yield "spread", lambda: call("mount", b"none", b"/", None, 1 << 20, None)
    yield "fsopen", lambda: system("fsopen", b"tmpfs", 0)
    yield "open_tree", lambda: system("open_tree", -100, b"/", 1)
    yield "mount_setattr", lambda: system("mount_setattr", -100, b"/", 0, bytes(32), 32)
    yield "pivot_root", lambda: system("pivot_root", b".", b".")
    yield "chroot", lambda: os.chroot(".")
    yield "unshare", lambda: call("unshare", 1 << 17)
    yield "in the home", lambda: os.mkdir(f"{facts.home}/mine")
    yield "swap", lambda: system("swapon", b"id", 0)


USERS, MOUNTS, PROCESSES, NETWORK, GROUPS, IPC = 1 << 28, 1 << 17, 1 << 29, 1 << 30, 1 << 25, 1 << 27


@attack("rights", "namespaces of one's own", harmless=True)
def _(facts: Facts) -> Attempts:
    uid = os.getuid()
    secret = f"{facts.home}/secret.key"

    def within(flags: int, act: Callable[[], Any]) -> Callable[[], None]:
        def enter() -> None:
            call("unshare", flags)
            write("/proc/self/setgroups", "deny")
            write("/proc/self/uid_map", f"0 {uid} 1")
            act()

        return lambda: child(enter)

    def uncover() -> None:
        libc.umount2(facts.home.encode(), 2)
        read(secret)

    def bind_over() -> None:
        os.makedirs("seen", exist_ok=True)
        libc.mount(facts.home.encode(), b"seen", None, 4096 | 16384, None)
        read("seen/secret.key")

    def overlay() -> None:
        for name in ("upper", "work", "merged"):
            os.makedirs(name, exist_ok=True)
        options = f"lowerdir={facts.home},upperdir=upper,workdir=work".encode()
        libc.mount(b"overlay", b"merged", b"overlay", 0, options)
        read("merged/secret.key")

    def fresh_proc() -> None:
        def look() -> None:
            os.makedirs("proc", exist_ok=True)
            libc.mount(b"proc", b"proc", b"proc", 0, None)
            os.stat(f"proc/{facts.server}/root/etc")

        child(look)

    def detach_all() -> None:
        libc.mount(b"none", b"/", None, 16384 | (1 << 18), None)
        tree = system("open_tree", -100, facts.home.encode(), 1 | 0x8000)
        read(f"/proc/self/fd/{tree}/secret.key")

    def groups() -> None:
        os.makedirs("groups", exist_ok=True)
        call("mount", b"cgroup", b"groups", b"cgroup2", 0, None)
        write("groups/cgroup.procs", "0")

    def more_users() -> None:
        write("/proc/self/uid_map", f"0 {uid} 1\n1 {facts.victim_uid} 1")

    def raw() -> None:
        check({name for _, name in socket.if_nameindex()} - {"lo"})

    for act in (lambda: read(secret), uncover, bind_over, overlay, detach_all):
        yield act.__name__, within(USERS | MOUNTS, act)
    yield "fresh proc", within(USERS | MOUNTS | PROCESSES, fresh_proc)
    yield "control groups", within(USERS | MOUNTS | GROUPS, groups)
    yield "the machine's network", within(USERS | NETWORK, raw)
    yield "chroot", within(USERS, lambda: (os.chroot("/"), read(secret)))
    yield "root's files", within(USERS, lambda: read(facts.canary))
    yield "signals", within(USERS, lambda: os.kill(facts.victim, 0))
    yield "trace", within(USERS, lambda: call("ptrace", 0x4206, facts.victim, 0, 0))
    yield "setuid", within(USERS, lambda: os.setuid(facts.victim_uid))
    yield "a device", within(USERS, lambda: os.mknod("null", 0o20666, os.makedev(1, 1)))
    yield "the clock", within(USERS, lambda: time.clock_settime(time.CLOCK_REALTIME, time.time()))

    def map_others() -> None:
        call("unshare", USERS)
        more_users()

    yield "other users", lambda: child(map_others)
    yield "without users", lambda: child(lambda: (call("unshare", MOUNTS), uncover()))


@attack("rights", "the kernel")
def _(facts: Facts) -> Attempts:
    yield "bpf", lambda: system("bpf", 0, struct.pack("IIII", 2, 4, 4, 1).ljust(128, b"\0"), 128)
    event = struct.pack("IIQ", 1, 128, 0).ljust(128, b"\0")
    yield "count all", lambda: system("perf_event_open", event, -1, 0, -1, 0)
    yield "module", lambda: system("init_module", bytes(16), 16, b"")
    yield "module file", lambda: system("finit_module", 0, b"", 0)
    yield "kexec", lambda: system("kexec_load", 0, 0, 0, 0)
    yield "reboot", lambda: system("reboot", 0xFEE1DEAD, 672274793, 0, 0)
    yield "accounting", lambda: system("acct", b"/proc/nothing")
    yield "clock", lambda: time.clock_settime(time.CLOCK_REALTIME, time.time())
    yield "time of day", lambda: system("settimeofday", struct.pack("qq", int(time.time()), 0), 0)
    yield "host name", lambda: socket.sethostname(os.uname().nodename)
    yield "hang up", lambda: system("vhangup")
    yield "clear the log", lambda: system("syslog", 5, 0, 0)
    yield "quota", lambda: system("quotactl", 0x80000800, b"/dev/vda", 0, 0)
    for name, device in (("disk", 0o60666), ("memory", 0o20666)):
        yield f"mknod {name}", lambda: os.mknod(name, device, os.makedev(1, 1))
    for path in (
        "/dev/mem", "/dev/kmsg", "/dev/port", "/dev/vda", "/dev/loop-control", "/dev/loop0",
        "/proc/kcore", "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/modprobe", "/proc/sys/vm/drop_caches", "/proc/sys/fs/protected_hardlinks",
        "/proc/sys/net/ipv4/ip_forward", "/sys/kernel/uevent_helper", "/sys/power/state",
        "/proc/sys/fs/binfmt_misc/register",
    ):  # fmt: skip
        yield path, lambda: os.close(os.open(path, os.O_WRONLY | os.O_NONBLOCK))


@attack("rights", "control groups")
def _(facts: Facts) -> Attempts:
    own = [line.strip().split(":", 2) for line in open("/proc/self/cgroup")]
    roots = ["/sys/fs/cgroup", *glob.glob("/sys/fs/cgroup/*/")]
    places = {root.rstrip("/") for root in roots}
    places |= {root.rstrip("/") + path for root in roots for _, _, path in own}
    places |= {os.path.dirname(place) for place in set(places)}
    for place in sorted(places):
        for name in (
            "cgroup.procs", "tasks", "memory.limit_in_bytes", "memory.max", "pids.max", "cpu.shares", "cpu.weight",
            "freezer.state", "cgroup.freeze", "cgroup.kill", "devices.allow", "release_agent", "notify_on_release",
            "cgroup.subtree_control", "memory.oom_control", "cpu.cfs_quota_us",
        ):  # fmt: skip
            path = f"{place}/{name}"
            if os.path.lexists(path):
                yield path, lambda: write(path, "0")
        if place.startswith("/sys/fs/cgroup/"):
            yield f"mkdir {place}", lambda: os.mkdir(f"{place}/mine")
    yield "there is none", lambda: check(False)


# --- between processes ---


@attack("ipc", "what the victim closed to others")
def _(facts: Facts) -> Attempts:
    key, rt = facts.key + 1, ctypes.CDLL("librt.so.1", use_errno=True)
    yield "attach shared memory", lambda: call("shmget", key, 0, 0) and call("shmat", libc.shmget(key, 0, 0), None, 0)
    for kind in ("shm", "sem", "msg"):
        get = (
            (lambda: libc.shmget(key, 0, 0))
            if kind == "shm"
            else ((lambda: libc.semget(key, 0, 0)) if kind == "sem" else (lambda: libc.msgget(key, 0)))
        )
        control = {"shm": lambda: call("shmctl", get(), 0, None), "msg": lambda: call("msgctl", get(), 0, None),
                   "sem": lambda: call("semctl", get(), 0, 0)}[kind]  # fmt: skip
        yield f"remove {kind}", lambda: (check(get() >= 0), control())
    yield "posix memory", lambda: read(f"/dev/shm/closed-{facts.marks}")
    yield "remove posix memory", lambda: os.unlink(f"/dev/shm/closed-{facts.marks}")
    yield "remove open posix memory", lambda: os.unlink(f"/dev/shm/open-{facts.marks}")
    yield "queue", lambda: check(rt.mq_open(f"/closed-{facts.marks}".encode(), 0) >= 0)
    for path in facts.victim_paths:
        yield f"socket in {path}", lambda: socket.socket(socket.AF_UNIX).connect(f"{path}/door")
    yield "its keys", lambda: check(any(f" {facts.victim_uid} " in line for line in open("/proc/keys")))
    yield "remove what is open", lambda: call("shmctl", call("shmget", facts.key, 0, 0), 0, None)


@attack("ipc", "abstract sockets", open_at=("user", "bubblewrap"), told="abstract Unix sockets")
def _(facts: Facts) -> Attempts:
    yield "connect", lambda: socket.socket(socket.AF_UNIX).connect(f"\0open-{facts.marks}")


@attack("ipc", "memory and queues that are open to all", open_at=("user",), told="System V shared memory")
def _(facts: Facts) -> Attempts:
    yield "system V", lambda: call("shmget", facts.key, 0, 0)
    yield "posix memory", lambda: read(f"/dev/shm/open-{facts.marks}")


@attack("ipc", "common directories", open_at=("user",), told="leave files in the machine's `/tmp`", harmless=True)
def _(facts: Facts) -> Attempts:
    yield "/tmp", lambda: read(f"/tmp/open-{facts.marks}")
    yield "/dev/shm", lambda: read(f"/dev/shm/open-{facts.marks}")


# --- the network ---


def _asked(made: socket.socket, line: str, *headers: str) -> int:
    made.settimeout(10)
    made.sendall("\r\n".join([f"{line} HTTP/1.1", "Host: localhost", "Connection: close", *headers, "", ""]).encode())
    answer = b""
    while b"\r\n" not in answer and (part := made.recv(4096)):
        answer += part
    made.close()
    return int(answer.split()[1])


@attack("network", "the server without a token")
def _(facts: Facts) -> Attempts:
    paths = (
        "/v1/jobs", "/v1/tenants", "/v1/nodes", "/v1/events", "/metrics", "/v1/status", "/v1/planes", "/v1/services",
        "/planes/x/v1/jobs", "/v1/jobs/../tenants", "//v1/jobs", "/v1/users", "/v1/web/sessions",
    )  # fmt: skip
    for path in paths:
        for header in (
            "",
            "X-Forwarded-For: 127.0.0.1",
            "X-Remote-User: root",
            "Authorization: Bearer",
            "Cookie: shoal=1",
        ):
            yield (
                f"GET {path} {header}",
                lambda: check(
                    _asked(
                        socket.create_connection(("127.0.0.1", facts.port)),
                        f"GET {path}",
                        *([header] if header else []),
                    )
                    in range(200, 300)
                ),
            )
    for path in ("/v1/jobs", "/v1/tenants", "/v1/gc", "/v1/planes", "/v1/services", "/v1/bundles"):
        yield (
            f"POST {path}",
            lambda: check(
                _asked(socket.create_connection(("127.0.0.1", facts.port)), f"POST {path}", "Content-Length: 0")
                in range(200, 300)
            ),
        )


@attack("network", "the server's socket for users of the machine")
def _(facts: Facts) -> Attempts:
    def asked(line: str, *headers: str) -> None:
        made = socket.socket(socket.AF_UNIX)
        made.connect(facts.door)
        check(_asked(made, line, *headers) in range(200, 300))

    for line in ("GET /v1/jobs", "GET /v1/tenants", "GET /v1/users", "POST /v1/users/token", "GET /v1/users/me"):
        yield line, lambda: asked(line)
        yield f"{line}, as root", lambda: asked(line, "X-Remote-User: root")
    yield "replace it", lambda: os.unlink(facts.door)
    yield "beside it", lambda: socket.socket(socket.AF_UNIX).bind(f"{os.path.dirname(facts.door)}/mine.sock")
    for path in (
        "engine.sock",
        "guard.sock",
        "gateway.sock",
        "cache.sock",
        *glob.glob(f"{facts.home}/**/*.sock", recursive=True),
    ):
        full = os.path.join(facts.home, path)
        if not full.startswith(os.environ["SHOAL_RUN"]):
            yield full, lambda: socket.socket(socket.AF_UNIX).connect(full)


@attack("network", "the server's port")
def _(facts: Facts) -> Attempts:
    for family, host in (
        (socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::1"), (socket.AF_INET6, "::"),
    ):  # fmt: skip

        def bind() -> None:
            with socket.socket(family) as made:
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                made.bind((host, facts.port))
                made.listen()

        yield host, bind


@attack(
    "network",
    "its port at another loopback address",
    open_at=("user", "bubblewrap"),
    told="same port at an unused loopback",
)
def _(facts: Facts) -> Attempts:
    yield "127.0.0.2", lambda: socket.create_server(("127.0.0.2", facts.port)).close()


@attack("network", "ports of other tenants", open_at=("user", "bubblewrap"), told="connect to TCP ports", harmless=True)
def _(facts: Facts) -> Attempts:
    yield "the victim's", lambda: socket.create_connection(("127.0.0.1", facts.victim_port)).close()


@attack("network", "packets and addresses")
def _(facts: Facts) -> Attempts:
    for family, kind, protocol in (
        (socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_PACKET, socket.SOCK_RAW, 3),
        (socket.AF_PACKET, socket.SOCK_DGRAM, 3),
    ):  # fmt: skip
        yield f"raw {family}", lambda: socket.socket(family, kind, protocol)
    plain = socket.socket()
    for level, option in ((socket.SOL_SOCKET, 36), (socket.SOL_IP, 19), (socket.SOL_SOCKET, 33)):
        yield f"option {option}", lambda: plain.setsockopt(level, option, 1)
    yield "filter", lambda: plain.setsockopt(socket.SOL_IP, 64, bytes(96))

    def route() -> None:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as made:
            made.bind((0, 0))
            address = struct.pack("BBBBi", 2, 32, 0, 0, 1) + struct.pack("HH4B", 8, 2, 127, 9, 9, 9)
            made.send(struct.pack("IHHII", 16 + len(address), 20, 0x405, 1, 0) + address)
            made.settimeout(5)
            check(struct.unpack_from("i", made.recv(4096), 16)[0] == 0)

    yield "an address", route

    def tunnel() -> None:
        with open("/dev/net/tun", "r+b", buffering=0) as device:
            fcntl.ioctl(device, 0x400454CA, struct.pack("16sH22x", b"mine", 1))

    yield "an interface", tunnel


# --- the program ---


def run(one: Attack, facts: Facts) -> dict[str, Any]:
    """In a child; what it did, said over a pipe."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        tried, reached = 0, []
        try:
            os.close(reading)
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(LIMIT_S)
            for label, act in one.run(facts):
                tried += 1
                try:
                    act()
                except (OSError, ValueError, subprocess.SubprocessError):
                    continue
                reached.append(label)
            os.write(writing, json.dumps({"tried": tried, "reached": reached[:50]}).encode()[: 1 << 15])
        except BaseException as problem:
            os.write(writing, json.dumps({"tried": tried, "reached": [f"it broke off: {problem!r}"]}).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        told = file.read()
    os.waitpid(pid, 0)
    return json.loads(told) if told else {"tried": 0, "reached": ["it hung or ended the attacker"]}


def main() -> None:
    """All of the table, or the areas and names that are asked for; then what the server will read is planted."""
    asked = json.loads(sys.argv[1])
    facts = Facts(**asked["facts"])
    for one in ATTACKS:
        if not asked.get("only") or one.name in asked["only"]:
            print(json.dumps({"attack": one.name, **run(one, facts)}), flush=True)
    print(json.dumps({"end": os.getuid()}), flush=True)


if __name__ == "__main__":
    main()
