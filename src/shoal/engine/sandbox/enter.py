"""Entering a sandbox: what the forked child of a supervisor does just before it becomes the rank's process.

Imported by the supervisor's isolated interpreter from its own directory, so it needs nothing of Shoal and only light
parts of the standard library. Run as a script it tries for `probe` whether a level can be had here.
"""

# ruff: noqa: PTH103, PTH116, PTH123, S606
from __future__ import annotations

import ctypes
import errno
import marshal
import os
import stat
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing `typing` would be most of what this takes
    from typing import Any

_CLONE_NEWNS = 0x0002_0000
_MS_RDONLY, _MS_REMOUNT = 0x1, 0x20
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x8, 0x1000, 0x4000, 0x4_0000
_PR_SET_NO_NEW_PRIVS = 38


def enter(sandbox: dict[str, Any]) -> list[str]:
    """Hide the home, then give up the server's rights for good. Raises OSError; the caller must then end. What is
    returned is to be put before the command: the program that does the rest."""
    if "pam" in sandbox:
        __import__("pam").open_session(*sandbox["pam"])
    if sandbox["wrapper"]:
        os.umask(sandbox["umask"])
        return list(sandbox["wrapper"])
    libc = ctypes.CDLL(None, use_errno=True)
    if "join" in sandbox:
        pid, start = sandbox["join"]
        _join(pid, start, libc)
    else:
        _arrange(sandbox["mounts"], sandbox.get("shown", ()), libc)
        if "devices" in sandbox:
            _devices(sandbox["devices"], libc)
    become(sandbox["uid"], sandbox["gid"], sandbox["groups"], libc)
    os.umask(sandbox["umask"])
    if "temporary" in sandbox:
        os.makedirs(sandbox["temporary"], exist_ok=True)
    return []


ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
"""Of every program that is started with rights that its rank does not have."""


def wrap(wrapper: list[str], argv: list[str], env: dict[str, str], run_dir: str) -> None:
    """Become the wrapper, which ends in `last.py` with the rank's own rights. It has neither the rank's environment nor
    its directory: the loader of each program on the way would obey them with root's rights. Raises OSError."""
    given = os.memfd_create("shoal-rank", 0)  # inherited by all that follow, and out of sight of `ps`
    with os.fdopen(given, "wb", closefd=False) as file:
        marshal.dump((argv, env, run_dir), file)
    os.lseek(given, 0, os.SEEK_SET)
    os.execve(wrapper[0], [*wrapper, str(given)], ENVIRONMENT)


def _arrange(mounts: list[tuple[str, str]], shown: list[tuple[str, str, bool]], libc: Any) -> None:
    """In a mount namespace of this process's own, hide directories and show others again, in this order; then show
    paths at others."""
    _check(libc.unshare(_CLONE_NEWNS))
    _mount(libc, "none", "/", None, _MS_REC | _MS_PRIVATE)
    opened = {path: os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for act, path in mounts if act == "show"}
    # Opened before anything is hidden, and not by way of a link.
    sources = [os.open(source, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC) for source, _, _ in shown]
    for act, path in mounts:
        os.makedirs(path, exist_ok=True)
        if act == "hide":
            _mount(libc, "shoal", path, "tmpfs", _MS_NOSUID | _MS_NODEV, b"mode=0755,size=64k")
        else:
            _mount(libc, f"/proc/self/fd/{opened[path]}", path, None, _MS_BIND)
            os.close(opened[path])

    for source, (_, target, read_only) in zip(sources, shown, strict=True):
        _make_place(target, directory=stat.S_ISDIR(os.fstat(source).st_mode))
        _mount(libc, f"/proc/self/fd/{source}", target, None, _MS_BIND)
        kept = _MS_BIND | _MS_REMOUNT | _MS_NOSUID | _MS_NODEV | (_MS_RDONLY if read_only else 0)
        _mount(libc, "none", target, None, kept)
        os.close(source)


def _devices(names: list[str], libc: Any) -> None:
    """A `/dev` of this process's own, with these entries of the machine's and terminals that no other can see."""
    opened = [(name, os.open(f"/dev/{name}", os.O_PATH | os.O_CLOEXEC)) for name in names]
    _mount(libc, "shoal", "/dev", "tmpfs", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC, b"mode=0755,size=64k")
    for name, fd in opened:
        _make_place(f"/dev/{name}", directory=stat.S_ISDIR(os.fstat(fd).st_mode))
        _mount(libc, f"/proc/self/fd/{fd}", f"/dev/{name}", None, _MS_BIND | _MS_REC)
        os.close(fd)
    os.mkdir("/dev/pts")  # noqa: PTH102
    _mount(libc, "devpts", "/dev/pts", "devpts", _MS_NOSUID | _MS_NOEXEC, b"newinstance,ptmxmode=0666,mode=0620,gid=5")
    links = {"ptmx": "pts/ptmx", "fd": "/proc/self/fd"}
    links |= {name: f"/proc/self/fd/{number}" for number, name in enumerate(("stdin", "stdout", "stderr"))}
    for name, target in links.items():
        os.symlink(target, f"/dev/{name}")  # noqa: PTH211


_NAMESPACES = ("user", "ipc", "uts", "net", "pid", "mnt")


def _join(pid: int, start: int, libc: Any) -> None:
    """Enter the namespaces of a process that is still the one that began then; of another's pids by a child, which goes
    on from here. No file is opened on the way but in /proc, and nothing is run."""
    found = []
    for name in _NAMESPACES:
        if os.stat(f"/proc/{pid}/ns/{name}").st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            found.append((name, os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)))
    with open(f"/proc/{pid}/stat", "rb") as stat_file:
        fields = stat_file.read().rpartition(b")")[2].split()
    if fields[0] in (b"Z", b"X") or int(fields[19]) != start:
        raise ProcessLookupError(errno.ESRCH, "the rank's process has ended")
    for _, fd in found:
        _check(libc.setns(fd, 0))
        os.close(fd)
    if any(name == "pid" for name, _ in found):
        child = os.fork()
        if child:
            os.closerange(0, 65536)
            _, status = os.waitpid(child, 0)
            os._exit(abs(os.waitstatus_to_exitcode(status)) & 0xFF)


def _make_place(target: str, *, directory: bool) -> None:
    """Something to mount on, where it is not there: in what hides the home, which is this process's own."""
    if directory:
        os.makedirs(target, exist_ok=True)
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH120
    if not os.path.lexists(target):
        os.close(os.open(target, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))


def become(uid: int, gid: int, groups: list[int], libc: Any) -> None:
    """Have the user's rights and no way to others: no other groups, no capabilities, none to be gained."""
    os.setgroups(groups)
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def _mount(libc: Any, source: str, target: str, kind: str | None, flags: int, options: bytes | None = None) -> None:
    kind_bytes = None if kind is None else kind.encode()
    _check(
        libc.mount(os.fsencode(source), os.fsencode(target), kind_bytes, ctypes.c_ulong(flags), options), where=target
    )


def _check(result: int, where: str | None = None) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), where)


def _try() -> int:
    """`enter.py INTERPRETER`, the plan on stdin: an exit code, and why not on stderr."""
    interpreter = sys.argv[1]
    try:
        enter(marshal.load(sys.stdin.buffer))  # noqa: S302 - written by the probe
    except OSError as problem:
        print(f"private mounts and users cannot be had: {problem.strerror}", file=sys.stderr)
        return 1
    if not os.access(interpreter, os.X_OK):
        print(f"other users cannot run the interpreter {interpreter}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(_try())
