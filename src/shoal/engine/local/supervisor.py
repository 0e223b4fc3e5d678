"""The small process beside every rank: starts it, waits for it, stops it, records how it ended. Outlives the server.

Run as a script by an isolated interpreter, with a marshalled `dict` on stdin (so that secrets never touch a disk). It
imports nothing but light parts of the standard library (and `shoal.base.trees`, later): its start is part of every
job's start.

The truth is in files. They were written in full size before the launch and are overwritten in place, so that a full
disk cannot lose an exit. Signals, and a line in the engine's fifo, are hints that a file changed:

- `rank-N/record`  what became of the rank; written by its supervisor alone while that lives.
- `decision`       a symbolic link to `go` or `abort`, made once, the first one wins: the launch's atomic commit.
- `stop`           the wish to end: grace and the notice to leave for cooperating ranks.
- `rank-N/log.times` lines of `SIZE TIME`: how long the log was, and when.
- `beside-N/`      requests for processes beside a rank's own, see `beside`.
- SIGUSR1          look at the files again. SIGTERM: stop with the gang's own grace. SIGUSR2: kill the rank now.
"""

# ruff: noqa: PTH103, PTH104, PTH106, PTH110, PTH112, PTH113, PTH115, PTH116, PTH118, PTH123, PTH208, PTH211, S606, SIM105
# pathlib and contextlib would each cost more than this whole file takes to start; so would the enums of `signal`, all
# of `typing`, and `ctypes` where a call of the C library needs none of its types.

from __future__ import annotations

import binascii
import errno
import marshal
import os
import resource
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from typing import Any, NoReturn
else:
    import _signal as signal

RECORD_BYTES = 4096
GO, ABORT = "go", "abort"
READY, RUNNING, EXITED, FAILED, ABORTED = "ready", "running", "exited", "failed", "aborted"

_PUNCH_HOLE_KEEP_SIZE = 0x03
PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_TERM_AT = 0.8
"""A cooperating rank that did not leave by itself gets SIGTERM at this part of its grace."""
_CHECK_S = 1.0
"""How often it is looked whether a rank's time is over, and at its use of what no cgroup limits: its log, its files on
disk, and what else the kernel does not hold here. What a rank takes within that time is had over the limit. Lines of
logs have times as exact."""
_MOST_TIMES, _FINENESS = 8192, 512  # of more, those stay that are 1/512 of their age apart: 6,200 in a year
_SERVER_STOPS_S = 2.0
"""So long after its time a rank may run on: a server that is there has asked it to stop by then."""
_DISK_SHARE = 50
"""The search through the files takes at most one part in this number of the time."""
_BLOCK = 4096
_FILE_TYPE, _REGULAR = 0o170000, 0o100000
_WRAPPER_S = 10.0
_SIGNALLED = 128
_REAP_S = 0.1
"""After so long without the last child's end, those that are left are looked for again."""
WAKERS = {signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM}


# --- records: small fixed-size files of `key=value` lines behind a checksum ---


def encode(fields: dict[str, object]) -> bytes:
    """The fields as one block of RECORD_BYTES; None is left out, line breaks become spaces, too long text is cut."""
    room = RECORD_BYTES - 16
    lines = []
    for key, value in fields.items():
        if value is None:
            continue
        line = f"{key}={value}".replace("\r", " ").replace("\n", " ").encode("utf-8", "replace")[:room]
        room -= len(line) + 1
        lines.append(line)
    body = b"\n".join(lines)
    return (b"%08x\n" % binascii.crc32(body) + body).ljust(RECORD_BYTES, b"\n")


def decode(block: bytes) -> dict[str, str]:
    """The fields of a block; empty for one that was never written or is being written just now."""
    head, _, body = block.partition(b"\n")
    body = body.rstrip(b"\n")
    if head != b"%08x" % binascii.crc32(body):
        return {}
    fields = {}
    for line in body.decode("utf-8", "replace").split("\n"):
        key, _, value = line.partition("=")
        fields[key] = value
    return fields


def open_file(path: str, flags: int, mode: int = 0o600) -> int:
    """Open a regular file in a directory that others may write to. Never waits and never follows a link: whatever else
    has the name is refused. Raises OSError."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    found = os.fstat(fd)
    if found.st_mode & _FILE_TYPE != _REGULAR or found.st_nlink != 1:
        os.close(fd)
        raise OSError(errno.ENXIO, "not a regular file of one name", path)
    os.set_blocking(fd, True)
    return fd


def read_record(path: str) -> dict[str, str]:
    """The record's fields; empty when there is none, or something that is no file."""
    try:
        fd = open_file(path, os.O_RDONLY)
    except OSError as problem:
        if problem.errno not in (errno.ENOENT, errno.ELOOP, errno.ENXIO):
            raise
        return {}
    try:
        for _ in range(3):  # a reader may meet a writer half-way; the block is one page, so at most for microseconds
            block = os.pread(fd, RECORD_BYTES, 0)
            if (fields := decode(block)) or not block.strip(b"\0\n"):
                return fields
        return {}
    finally:
        os.close(fd)


def write_record(path: str, fields: dict[str, object], *, durable: bool = False) -> None:
    """Overwrite the record in place. The file exists already: see the module's docstring."""
    fd = open_file(path, os.O_WRONLY)
    try:
        os.pwrite(fd, encode(fields), 0)
        if durable:
            os.fdatasync(fd)
    finally:
        os.close(fd)


def decide(gang_dir: str, wish: str) -> str:
    """Make the wish the gang's decision, unless there is one already; what was decided."""
    path = os.path.join(gang_dir, "decision")
    try:
        os.symlink(wish, path)
    except FileExistsError:
        return os.readlink(path)
    return wish


def start_time(pid: int) -> int | None:
    """Clock ticks since boot at which the process started: with the pid, its identity. None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def handles(pid: int, signum: int) -> bool:
    """Whether the process has a way to answer the signal: a handler, or a thread that blocks it so as to wait for it.
    One that it ignores changes nothing, and the default kills without an exit code. True when that cannot be read."""
    bit = 1 << (signum - 1)
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/status", "rb") as status:
                if any(int(line[7:], 16) & bit for line in status if line.startswith((b"SigBlk", b"SigCgt"))):
                    return True
    except OSError:
        return True
    return False


def prctl(option: int, value: int) -> None:
    import _ctypes

    libc = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]
    _ctypes.call_cdeclfunction(_ctypes.dlsym(libc, "prctl"), (option, value, 0, 0, 0))


# --- the supervisor ---


class _CannotStart(Exception):
    """The user's process was not started. `fault` as in shoal.core."""

    def __init__(self, fault: str, detail: str, code: int) -> None:
        super().__init__(detail)
        self.fault = fault
        self.detail = detail
        self.code = code


class Supervisor:
    """One rank's life, from the spec on stdin to the exit record. See `environment.supervisor_spec` for its keys."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.record_path = f"{spec['rank_dir']}/record"
        self.facts: dict[str, object] = {"supervisor": os.getpid(), "supervisor_start": start_time(os.getpid())}
        self.main_pid = 0
        self.job_pid = 0
        """The main process, or where a wrapper waits for it, the one in the wrapper."""
        self.sandbox: Any = None
        self.main_status: int | None = None
        self.stopping = False
        self.answers = False
        """Whether the rank was told to stop in a way that it can answer: by a notice, or a signal that it handles."""
        self.term_at: float | None = None
        self.kill_at: float | None = None
        self.over: dict[str, object] = {}
        self.memory = 0
        self.disk_at = 0.0
        sys.path += spec["modules"]
        self.log_cut = 0
        self.log_times: list[tuple[int, float]] = []
        self.check_at = time.monotonic() + _CHECK_S
        self.started_at = 0.0

    def run(self) -> None:
        prctl(_PR_SET_CHILD_SUBREAPER, 1)
        signal.pthread_sigmask(signal.SIG_BLOCK, WAKERS)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self._enter_run_dir()
            # In a sandbox it is found by the rank's own user: what others' files are called is not to be told.
            command = "" if self.spec["sandbox"] else self._resolve()
            self._make_cgroups()
            self.tell(READY)
            if not self._let_go():
                self.finish(ABORTED)
                return
            self._start(command)
        except _CannotStart as problem:
            self.finish(FAILED, fault=problem.fault, detail=problem.detail, code=problem.code)
            return
        self._watch()
        self._kill_all()
        self.finish(EXITED, **self._exit())

    # what the engine is told

    def tell(self, state: str, **facts: object) -> None:
        self.facts = {"state": state, **self.facts, **facts}
        self.facts["state"] = state
        try:
            write_record(self.record_path, self.facts, durable=state not in (READY, RUNNING))
        except OSError as problem:  # it was removed, or the disk is broken: the engine will see a lost rank
            print(f"{self.record_path}: {problem}", file=sys.stderr)
        self._hint()

    def finish(self, state: str, **facts: object) -> None:
        refused = self._refused_forks()
        oom_kills = self._remove_cgroups()
        if oom_kills and facts.get("code") != 0:
            facts["oom"] = 1
        elif refused and facts.get("code") not in (None, 0, 126, 127):
            most = self.spec["limits"]["processes"]
            facts["detail"] = (
                f"left with exit code {facts['code']}; it has a limit of {most} processes and threads, and {refused} "
                "more were refused"
            )
        facts.update(self.over)
        if state == EXITED:
            try:
                self._cut_log()
            except OSError:
                pass  # it stays as long as it is
        # What is asked to stop and leaves with a code of its own ended by itself, unless it could answer.
        stopped = self.answers or (self.stopping and "signal" in facts)
        if self.memory:
            facts["memory"] = self.memory
        self.tell(state, ended_at=f"{time.time():.6f}", stopped=int(stopped), **facts)

    def _hint(self) -> None:
        try:
            fifo = os.open(f"{self.spec['home']}/engine.fifo", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return  # no engine listens: the record tells
        try:
            os.write(fifo, self.spec["name"].encode() + b"\n")
        except OSError:
            pass  # full of hints, and the engine also looks by itself now and then
        finally:
            os.close(fifo)

    # before the start

    def _enter_run_dir(self) -> None:
        try:
            os.chdir(self.spec["run_dir"])
        except OSError as problem:
            raise _CannotStart("platform", f"run directory {self.spec['run_dir']}: {problem.strerror}", 126) from None

    def _resolve(self) -> str:
        """The command's file, found as a shell finds it: by PATH of the rank's own environment, or relative to the
        run directory when it has a slash."""
        command: str = self.spec["argv"][0]
        if "/" in command:
            places = [command]
        else:
            path = self.spec["env"].get("PATH", os.defpath)
            places = [f"{part or '.'}/{command}" for part in path.split(":")]
        found = [place for place in places if os.path.isfile(place)]
        for place in found:
            if os.access(place, os.X_OK):
                return place
        if found:
            raise _CannotStart("user", f"command {command!r} is not executable", 126)
        where = "in the run directory" if "/" in command else "on PATH"
        raise _CannotStart("user", f"command {command!r} was not found {where}", 127)

    def _make_cgroups(self) -> None:
        for group in self.spec["cgroups"]:
            try:
                os.makedirs(group["path"], exist_ok=True)
                for name, value in group["writes"]:
                    _write(f"{group['path']}/{name}", value)
            except OSError as problem:
                raise _CannotStart("platform", f"cgroup {group['path']}: {problem.strerror}", 126) from None

    def _let_go(self) -> bool:
        """Wait for the decision; True for go. A supervisor that hears nothing in time aborts the launch itself."""
        if self.spec["alone"]:
            return decide(self.spec["gang_dir"], GO) == GO
        lease_ends = time.monotonic() + self.spec["launch_timeout_s"]
        decision = f"{self.spec['gang_dir']}/decision"
        while True:
            try:
                return os.readlink(decision) == GO
            except FileNotFoundError:
                pass
            left = lease_ends - time.monotonic()
            if left <= 0:
                return decide(self.spec["gang_dir"], ABORT) == GO
            caught = signal.sigtimedwait(WAKERS, left)
            if caught and caught.si_signo in (signal.SIGTERM, signal.SIGUSR2):
                return decide(self.spec["gang_dir"], ABORT) == GO

    # the start

    def _start(self, command: str) -> None:
        log = self._open_log()
        report, child_report = os.pipe2(os.O_CLOEXEC)
        if self.spec["sandbox"]:
            sys.path.append(self.spec["sandbox"]["module_dir"])
            self.sandbox = __import__("enter")
        self.main_pid = os.fork()
        if self.main_pid == 0:
            self._become(command, log, child_report)
        os.close(child_report)
        os.close(log)
        started = start_time(self.main_pid)
        problem = b""
        while part := os.read(report, 1024):
            problem += part
        os.close(report)
        if problem:
            os.waitpid(self.main_pid, 0)
            step, _, text = problem.decode().partition("\n")
            if step == "command":
                code, _, detail = text.partition(" ")
                raise _CannotStart("user", detail, int(code))
            if step == "exec":
                raise _CannotStart("user", f"command {self.spec['argv'][0]!r} cannot be executed: {text}", 126)
            if step == "directory":
                raise _CannotStart("user", f"{self.spec['sandbox']['directory']} cannot be entered: {text}", 126)
            raise _CannotStart("platform", f"the rank's process could not be set up ({step}): {text}", 126)
        self.job_pid = self.main_pid
        if self.spec["sandbox"] and self.spec["sandbox"]["wrapper"]:
            self.job_pid = self._wrapped()
            started = start_time(self.job_pid) or started
        self.started_at = time.monotonic()
        self.tell(RUNNING, pid=self.job_pid, start=started, started_at=f"{time.time():.6f}")

    def _open_log(self) -> int:
        try:
            log = open_file(f"{self.spec['rank_dir']}/log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
            if self.spec["sandbox"]:
                os.fchmod(log, 0o660)  # so that /dev/stderr can be opened by its name
            return log
        except OSError as problem:
            raise _CannotStart("platform", f"log file: {problem.strerror}", 126) from None

    def _become(self, command: str, log: int, report: int) -> NoReturn:
        """In the forked child: turn into the user's process, or report why not."""
        step = "session"
        try:
            os.setsid()
            step = "parent-death signal"
            self._die_with_supervisor()
            step = "cgroup"
            for group in self.spec["cgroups"]:
                _write(f"{group['path']}/{group['join']}", "0")
            step = "streams"
            null = os.open("/dev/null", os.O_RDONLY)
            for source, target in ((null, 0), (log, 1), (log, 2)):
                os.dup2(source, target)
            step = "limit of open files"
            if most := self.spec["limits"]["open_files"]:
                soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                allowed = most if hard == resource.RLIM_INFINITY else min(most, hard)
                resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, allowed), allowed))
            step = "signals"
            # This process runs no handlers, and exec keeps what is ignored: give the user a clean slate.
            for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
                signal.signal(ignored, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            if self.sandbox is not None:
                step = "sandbox"
                wrapper = self.sandbox.enter(self.spec["sandbox"])
                step = "directory"
                os.chdir("/" if wrapper else self.spec["sandbox"]["directory"])
                self._die_with_supervisor()  # another user's process has to ask again
                if wrapper:
                    step = "wrapper"
                    self.sandbox.wrap(wrapper, self.spec["argv"], self.spec["env"], self.spec["sandbox"]["directory"])
                command = self._resolve()
            step = "exec"
            os.execve(command, self.spec["argv"], self.spec["env"])
        except _CannotStart as problem:
            os.write(report, f"command\n{problem.code} {problem.detail}".encode("utf-8", "replace"))
        except OSError as problem:
            os.write(report, f"{step}\n{problem.strerror}".encode("utf-8", "replace"))
        finally:
            os._exit(126)

    def _wrapped(self) -> int:
        """The process that the wrapper's first process (an init) has started; the wrapper where it has ended before."""
        ends_at = time.monotonic() + _WRAPPER_S
        while time.monotonic() < ends_at and not self._reap():
            inits = _children(self.main_pid)
            inner = _children(inits[0]) if inits else []
            if inner:
                return inner[0]
            time.sleep(0.0005)
        return self.main_pid

    def _die_with_supervisor(self) -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() not in (0, self.facts["supervisor"]):  # it died before the line above; 0: of another namespace
            os._exit(126)

    # the run

    def _watch(self) -> None:
        """Return when the main process is gone, or must be gone because the grace is over."""
        self._read_stop()  # it may have come before the start
        while not self._reap():
            now = time.monotonic()
            if self.kill_at is not None and now >= self.kill_at:
                return
            if self.term_at is not None and now >= self.term_at:
                self.term_at = None
                self._terminate()
            if now >= self.check_at:
                self._time_log()
                self._keep_time()
                if self._exceeds():
                    return
                self.check_at = time.monotonic() + _CHECK_S
            wake_at = min(at for at in (self.term_at, self.kill_at, self.check_at) if at is not None)
            caught = signal.sigtimedwait(WAKERS, max(0.0, wake_at - now))
            if caught is None:
                continue
            if caught.si_signo == signal.SIGUSR1:
                self._read_stop()
                if os.path.isdir(f"{self.spec['gang_dir']}/beside-{self.spec['rank']}"):
                    __import__("beside").start(self)
            elif caught.si_signo == signal.SIGTERM:
                self._stop(self.spec["grace_s"], "")
            elif caught.si_signo == signal.SIGUSR2:
                self._kill_now()

    def _keep_time(self) -> None:
        """Show that the rank lives: the record's time of change tells a later server until when. Stop one that is over
        a limit of its time, and that no server has stopped."""
        try:
            os.utime(self.record_path, follow_symlinks=False)
        except OSError:
            pass
        for name, detail, after_s, at in () if self.stopping else self.spec["time_limits"]:
            late_s = time.time() - at if after_s is None else time.monotonic() - self.started_at - after_s
            if late_s > _SERVER_STOPS_S and not self.over:
                self.over, grace_s = {"limit": name, "detail": detail}, self.spec["grace_s"]
                self._stop(grace_s, f'{{"reason": "{name}", "deadline": {time.time() + grace_s:.6f}}}')

    def _kill_now(self) -> None:
        self._stop(0.0, "")

    def _read_stop(self) -> None:
        wish = read_record(f"{self.spec['gang_dir']}/stop")
        if wish:
            self._stop(float(wish["grace_s"]), wish.get("notice", ""))

    def _stop(self, grace_s: float, notice: str) -> None:
        """Begin to stop; a later wish may shorten the grace, never lengthen it. A rank that has ended was not stopped:
        its end may be known to the kernel alone when the wish is read."""
        if self._reap():
            return
        now = time.monotonic()
        first, self.stopping = not self.stopping, True
        if self.kill_at is None or now + grace_s < self.kill_at:
            self.kill_at = now + grace_s
            waits = notice and os.path.exists(f"{self.spec['rank_dir']}/cooperative")
            if waits and self._leave_notice(notice):
                self.answers = True
                self.term_at = now + grace_s * _TERM_AT
            elif first or self.term_at is not None:
                self.term_at = now

    def _leave_notice(self, notice: str) -> bool:
        draft = f"{self.spec['rank_dir']}/.notice-{os.getpid()}"
        try:
            fd = open_file(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            try:
                os.write(fd, notice.encode())
                os.fchmod(fd, 0o640)  # for the group of the directory: the tenant's own, where it is sandboxed
            finally:
                os.close(fd)
            os.rename(draft, f"{self.spec['rank_dir']}/notice")
        except OSError:
            return False  # a full disk: the rank is stopped like one that has no hooks
        return True

    def _terminate(self) -> None:
        """Send SIGTERM; the main process was not reaped yet, so the pid is still its own."""
        self.answers = self.answers or handles(self.job_pid, signal.SIGTERM)
        try:
            os.kill(self.job_pid, signal.SIGTERM)
        except ProcessLookupError:
            pass  # its wrapper is about to end as well

    def _reap(self) -> bool:
        """Collect what has ended; True once the main process has."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                break
            if pid == 0:
                break
            if pid == self.main_pid:
                self.main_status = status
        return self.main_status is not None

    def _time_log(self) -> None:
        """Note how long the log is now. A full disk costs times and nothing else."""
        log = f"{self.spec['rank_dir']}/log"
        try:
            size = os.stat(log, follow_symlinks=False).st_size
            if size == (self.log_times[-1][0] if self.log_times else 0):
                return
            new, flags = [(size, time.time())], os.O_APPEND
            self.log_times += new
            if len(self.log_times) > _MOST_TIMES:
                self.log_times = new = thin(self.log_times)
                flags = os.O_TRUNC
            text = "".join(f"{size} {at:.3f}\n" for size, at in new)
            _write(f"{log}.times", text, flags | os.O_CREAT)
        except OSError:
            pass

    # limits that no cgroup holds

    def _exceeds(self) -> bool:
        """Whether the rank is over a limit that ends it; `over` then says which, for the record."""
        limits = self.spec["limits"]
        try:
            self._cut_log()
        except OSError as problem:
            if problem.errno in (errno.EOPNOTSUPP, errno.ENOSYS):
                what = f"its log went over {_mib(limits['log'])} and cannot be shortened on this file system"
                return self._end_over("log", what)
        if limits["polled_processes"] or limits["polled_memory"]:
            pids = self._descendants()
            if 0 < limits["polled_processes"] < len(pids):
                return self._end_over("processes", f"it had {len(pids)} processes, over its {limits['processes']}")
            used = sum(map(_resident_bytes, pids)) if limits["polled_memory"] else 0
            self.memory = max(self.memory, used)
            if used > limits["polled_memory"] > 0:
                self.over = {"oom": 1}
                return True
        began = time.monotonic()
        if (limits["disk"] or limits["files"]) and began >= self.disk_at:
            used, files = self._disk_use()
            if used > limits["disk"] > 0:
                return self._end_over("disk", f"its files took {_mib(used)} on disk, over its {_mib(limits['disk'])}")
            if files > limits["files"] > 0:
                return self._end_over("files", f"it had {files} files, over its {limits['files']}")
            now = time.monotonic()
            self.disk_at = now + _DISK_SHARE * (now - began)
        return False

    def _disk_use(self) -> tuple[int, int]:
        """Bytes and entries of its trees, and of files that its processes hold open without a name."""
        trees = __import__("trees")
        found = [trees.measure(path) for path in self.spec["disk"]]
        devices = {os.stat(self.spec["run_dir"]).st_dev, os.stat(self.spec["rank_dir"]).st_dev}
        found.append(trees.held_open(self._descendants(), devices))
        return sum(used for used, _ in found), sum(count for _, count in found)

    def _end_over(self, limit: str, detail: str) -> bool:
        self.over = {"limit": limit, "detail": detail}
        return True

    def _cut_log(self) -> None:
        """Keep the first and the last half of what a log may take. What lies between becomes a hole in the file: it
        takes no space, and every offset behind it stays what it was. A line before the hole says so."""
        most = self.spec["limits"]["log"]
        if not most:
            return
        fd = open_file(f"{self.spec['rank_dir']}/log", os.O_RDWR)
        try:
            begin = max(_BLOCK, most // 2 // _BLOCK * _BLOCK)
            end = (os.fstat(fd).st_size - most // 2) // _BLOCK * _BLOCK
            if end - max(begin, self.log_cut) < max(_BLOCK, most // 8):
                return
            note = f"\n[shoal] {end - begin} bytes of this log were removed here: it may keep {_mib(most)}\n".encode()
            _punch_hole(fd, begin, end - begin)
            self.log_cut = end
            os.pwrite(fd, note, begin - len(note))
        finally:
            os.close(fd)

    # the end

    def _kill_all(self) -> None:
        """Kill until there is no descendant left. This process is their subreaper: whatever daemonised itself away is
        or becomes its child, so an empty list of children means that none is left anywhere."""
        for group in self.spec["cgroups"]:
            kill_group(group["path"])
        while True:
            for pid in self._descendants():  # whatever left the groups, or all where there are none
                _kill(pid)
            if self._reap_all(_REAP_S):
                return

    def _reap_all(self, timeout_s: float) -> bool:
        """Collect children as they end; True once there are none, False when some are left after the timeout. Looking
        for more to kill after each single end would take the square of their number."""
        ends_at = time.monotonic() + timeout_s
        while True:
            self._reap()
            try:
                os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT | os.WNOHANG)
            except ChildProcessError:
                return True
            left = ends_at - time.monotonic()
            if left <= 0:
                return False
            signal.sigtimedwait({signal.SIGCHLD}, left)

    def _descendants(self) -> list[int]:
        found, following = [], [os.getpid()]
        while following:
            parent = following.pop()
            try:
                for task in os.listdir(f"/proc/{parent}/task"):
                    with open(f"/proc/{parent}/task/{task}/children", "rb") as children:
                        born = [int(pid) for pid in children.read().split()]
                    found += born
                    following += born
            except OSError as problem:
                if problem.errno == errno.ENOENT and parent == os.getpid():
                    return descendants_by_parent(parent)  # a kernel without CONFIG_PROC_CHILDREN
        return found

    def _refused_forks(self) -> int:
        return sum(_count(f"{group['path']}/pids.events", b"max") for group in self.spec["cgroups"])

    def _exit(self) -> dict[str, object]:
        assert self.main_status is not None
        code = os.waitstatus_to_exitcode(self.main_status)
        if self.job_pid != self.main_pid and code > _SIGNALLED:  # so a wrapper tells of a signal, as shells do
            return {"signal": code - _SIGNALLED}
        return {"code": code} if code >= 0 else {"signal": -code}

    def _remove_cgroups(self) -> int:
        """Remove the rank's cgroups, after a last look; how many processes their memory limit killed."""
        oom_kills = 0
        for group in self.spec["cgroups"]:
            if group["oom"]:
                oom_kills += _count(f"{group['path']}/{group['oom']}", b"oom_kill")
                self.memory = max(self.memory, _number(f"{group['path']}/{group['peak']}"))
            for _ in range(20):
                try:
                    os.rmdir(group["path"])
                except FileNotFoundError:
                    break
                except OSError:  # busy while the kernel still clears up; what stays is removed when forgotten
                    time.sleep(0.001)
                else:
                    break
        return oom_kills


def thin(times: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """The entries without those that are too close to the one before for their age; the newest stays."""
    kept, (_, now) = times[:1], times[-1]
    for size, at in times[1:]:
        if abs(at - kept[-1][1]) >= abs(now - at) / _FINENESS:
            kept.append((size, at))
    return kept


def _children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as children:
            return [int(child) for child in children.read().split()]
    except OSError:
        return []


def descendants_by_parent(ancestor: int) -> list[int]:
    """All below a process, those included that ended and were not collected."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as stat:
                    parents[int(entry)] = int(stat.read().rpartition(b")")[2].split()[1])
            except OSError:
                continue
    found = {ancestor}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return list(found - {ancestor})


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _punch_hole(fd: int, offset: int, length: int) -> None:
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    if libc.fallocate(fd, _PUNCH_HOLE_KEEP_SIZE, offset, length):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _write(path: str, value: str, flags: int = 0) -> None:
    fd = open_file(path, os.O_WRONLY | flags)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)


def kill_group(path: str) -> None:
    """Kill all processes of a cgroup at once, also those that fork too fast to be listed. Raises nothing: the caller
    checks for processes that are left."""
    try:
        _write(f"{path}/cgroup.kill", "1")  # version 2, from Linux 5.14
        return
    except OSError:
        pass
    try:
        _write(f"{path}/pids.max", "0")  # from here on nothing in it can fork, so one list names them all
    except OSError:
        pass  # another controller's group
    try:
        with open(f"{path}/cgroup.procs", "rb") as members:
            pids = [int(pid) for pid in members.read().split()]
    except OSError:
        return
    for pid in pids:
        _kill(pid)


def _number(path: str) -> int:
    """The one number in a cgroup's file; 0 where the kernel has no such file."""
    try:
        with open(path, "rb") as found:
            return int(found.read())
    except OSError:
        return 0


def _count(path: str, wanted: bytes) -> int:
    """A count in a cgroup's file of events."""
    try:
        with open(path, "rb") as events:
            for line in events:
                name, _, count = line.partition(b" ")
                if name == wanted:
                    return int(count)
    except OSError:
        return 0
    return 0


def _resident_bytes(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):  # gone
        return 0


def _mib(count_bytes: int) -> str:
    return f"{count_bytes / (1 << 20):.3g} MiB" if count_bytes < 1 << 30 else f"{count_bytes / (1 << 30):.3g} GiB"


def main() -> NoReturn:
    os.closerange(3, 65536)  # whatever the server itself had inherited is no business of its jobs
    try:
        Supervisor(marshal.load(sys.stdin.buffer)).run()  # noqa: S302 - written by the engine that started us
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    os._exit(0)  # the interpreter's own farewell would only take time


if __name__ == "__main__":
    main()
