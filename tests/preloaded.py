"""`python -m shoal.cli ...` in a test, as the gateway and the shell's agent: a fork of a process with their imports.

Such a fork is a child of the process of the tests, with the streams, files, folder, environment and session that were
asked for. It differs in what `/proc` tells of its command and environment. Where this or the imports themselves matter
(the marker `cold`), and where the interpreter or its libraries are told anything, the program is started as it is.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
import pickle
import platform
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

_IMPORTED = ("shoal.cli.up", "shoal.control.server", "shoal.control.settings")  # it learns of more
_PROGRAMS = (["shoal.cli"], ["shoal.serve.gateway"], ["shoal.shell.agent"])
_STARTS_THREADS = "numpy"  # a process that has several cannot be forked
_READ_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_", "OPENBLAS_", "OMP_")
_SYS_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE_PARENT = 0x8000
_PR_GET_TID_ADDRESS = 40
_LARGEST = 100_000  # bytes of a message


@dataclass(frozen=True)
class _Wish:
    words: Sequence[str]
    folder: str
    environ: Mapping[str, str]
    fds: Sequence[int]  # the numbers that the files sent along get
    session: bool  # of its own
    deaf: bool  # to Ctrl-C
    umask: int


class Preloaded:
    """Its process is started when it is first wanted, one for each process of the tests."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner, self.off, self.refused = 0, False, False

    def start(self, wish: _Wish, fds: Sequence[int]) -> int | None:
        """The new process's id; None where it is not to be had."""
        message = pickle.dumps(wish)
        with self.lock:
            if self.refused or len(message) > _LARGEST:
                return None
            if self.owner != os.getpid():
                self._open()
            socket.send_fds(self.socket, [message], fds)
            pid = int.from_bytes(self.socket.recv(8), "big")
            self.refused = pid == 0
            return pid or None

    def _open(self) -> None:
        self.owner = os.getpid()
        self.socket, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            words = [sys.executable, "-m", "tests.preloaded", str(its.fileno())]
            self.process = subprocess.Popen(
                words, cwd=Path(__file__).parents[1], stdin=subprocess.DEVNULL, pass_fds=[its.fileno()]
            )
        atexit.register(self.close)

    def close(self) -> None:
        if self.owner == os.getpid():
            self.socket.close()
            self.process.wait()
            self.owner = 0

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Meanwhile what starts such programs in this process gets forks."""
        start = subprocess.Popen._execute_child  # type: ignore[attr-defined]

        def execute_child(popen: Any, *args: Any) -> None:
            wished = None if self.off else _wished(*args)
            pid = None if wished is None else self.start(*wished)
            if pid is None:
                start(popen, *args)
            else:
                popen.pid, popen._child_created = pid, True
                popen._close_pipe_fds(*args[10:16])

        subprocess.Popen._execute_child = execute_child  # type: ignore[attr-defined]
        try:
            yield
        finally:
            subprocess.Popen._execute_child = start  # type: ignore[attr-defined]
            self.close()


PRELOADED = Preloaded()


def _wished(
    words: Any, executable: Any, preexec_fn: Any, close_fds: bool, pass_fds: Sequence[int], cwd: Any, env: Any,
    _startup: Any, _flags: Any, shell: bool, child_in: int, _in: int, _out: int, child_out: int, _err: int,
    child_err: int, restore_signals: bool, gid: Any, gids: Any, uid: Any, umask: int, session: bool, group: int,
) -> tuple[_Wish, list[int]] | None:  # fmt: skip
    """Popen's own arguments, and the files to send along; None for what is to be started as it is."""
    if isinstance(words, (str, bytes)) or shell or executable or preexec_fn or not close_fds or not restore_signals:
        return None
    words = [os.fspath(word) for word in words]
    if words[:2] != [sys.executable, "-m"] or words[2:3] not in _PROGRAMS:
        return None
    if (gid, gids, uid) != (None,) * 3 or umask >= 0 or group >= 0:
        return None
    environ = dict(os.environ if env is None else env)
    changed = {name for name in {*os.environ, *environ} if os.environ.get(name) != environ.get(name)}
    folder = Path() if cwd is None else Path(os.fsdecode(cwd))
    if not all(isinstance(text, str) for text in (*words, *environ, *environ.values())) or not folder.is_dir():
        return None
    if any(name.startswith(_READ_AT_START) for name in changed) or os.getuid() != os.geteuid():
        return None
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
    wish = _Wish(
        words, str(folder.resolve()), environ, (0, 1, 2, *pass_fds), session,
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN, int(status["Umask"], 8),
    )  # fmt: skip
    streams = [own if given < 0 else given for own, given in enumerate((child_in, child_out, child_err))]
    return wish, [*streams, *pass_fds]


def _fork() -> int:
    """As os.fork does, but the new process is a sibling: who started this one waits for it."""
    libc, python = ctypes.PyDLL(None), ctypes.pythonapi
    own = ctypes.c_void_p()
    libc.prctl(_PR_GET_TID_ADDRESS, ctypes.byref(own), 0, 0, 0)
    python.PyOS_BeforeFork()
    pid: int = libc.syscall(_SYS_CLONE[platform.machine()], _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        if own.value:
            ctypes.c_int.from_address(own.value).value = os.getpid()  # libc's own note of it
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def _become(wish: _Wish, given: Sequence[int]) -> None:
    top = max((*given, *wish.fds)) + 1
    for number, fd in enumerate(given):
        os.dup2(fd, top + number)
    for number, fd in enumerate(wish.fds):
        os.dup2(top + number, fd)
    for fd in {int(name) for name in os.listdir("/proc/self/fd")} - set(wish.fds):  # noqa: PTH208
        with suppress(OSError):  # of the listing itself
            os.close(fd)
    if wish.session:
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN if wish.deaf else signal.default_int_handler)
    os.umask(wish.umask)
    os.chdir(wish.folder)
    os.environ.clear()
    os.environ.update(wish.environ)
    time.tzset()
    sys.orig_argv[:], sys.argv[:], sys.path[0] = wish.words, [wish.words[2], *wish.words[3:]], wish.folder
    for name, mode, number in (("stdin", "r", 0), ("stdout", "w", 1), ("stderr", "w", 2)):
        old = getattr(sys, name)
        new = open(number, mode, encoding=old.encoding, errors=old.errors, closefd=False)  # noqa: SIM115
        if mode == "w":
            new.reconfigure(line_buffering=number == 2 or os.isatty(number))
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _teach(folder: Path) -> None:
    """As a fork ends: what it has imported the next one has from its start."""
    if _STARTS_THREADS not in sys.modules:
        (folder / f"{os.getpid()}.part").write_text("\n".join(sys.modules))
        (folder / f"{os.getpid()}.part").rename(folder / f"{os.getpid()}")


def _learn(folder: Path) -> None:
    for taught in folder.glob("*[0-9]"):
        for name in taught.read_text().splitlines():
            if name not in sys.modules:
                with suppress(Exception):  # some are made by others, under names of their own
                    import_module(name)
        taught.unlink()
        gc.collect()
        gc.freeze()


def _serve(asked: socket.socket, folder: Path) -> _Wish | None:
    """In a process that has become what was wished, that."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in _IMPORTED:
        import_module(name)
    while True:
        message, fds, _, _ = socket.recv_fds(asked, _LARGEST, 64)
        if not message:
            return None
        _learn(folder)
        alone = len(os.listdir("/proc/self/task")) == 1  # noqa: PTH208
        pid = _fork() if alone and platform.machine() in _SYS_CLONE else -1
        if pid == 0:
            asked.detach()
            wish: _Wish = pickle.loads(message)
            _become(wish, fds)
            return wish
        for fd in fds:
            os.close(fd)
        asked.send(max(pid, 0).to_bytes(8, "big"))


def _main() -> None:
    folder = Path(tempfile.mkdtemp())
    wish = _serve(socket.socket(fileno=int(sys.argv[1])), folder)
    if wish is None:
        shutil.rmtree(folder)
    else:
        atexit.register(_teach, folder)
        runpy.run_module(wish.words[2], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
