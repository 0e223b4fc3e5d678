"""Executor within a site's namespace: checks what a command would read, starts it, and tells its status. A part of the
one file that is sent to a site (see `source`): the standard library alone, Python 3.8 or newer.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import resource
import selectors
import signal
import socket
import stat
import struct
import subprocess
import sys
import time
from typing import Any, Callable, Sequence  # noqa: UP035 - runs on Python 3.8

from shoal.shell.pieces import Conductor, Feeds, close_all, fork, raw, spawn, try_out

REPORT_BYTES = 1 << 16
LOOK_S = 0.5
"""Between two looks at what takes too long."""


def encode(value: Any) -> bytes:
    """JSON in which names that are not UTF-8 survive."""
    return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode(data: bytes) -> Any:
    return json.loads(data.decode("ascii"))


# --- messages between proxy and executor: a size, JSON, and descriptors beside its first byte ---


def send_message(link: socket.socket, value: Any, descriptors: Sequence[int] = ()) -> None:
    data = encode(value)
    whole = struct.pack(">I", len(data)) + data
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    done = link.sendmsg([whole], rights)  # at once, so that the other side wakes up once
    if done < len(whole):
        link.sendall(whole[done:])


def receive_message(link: socket.socket) -> tuple[Any, list[int]]:
    """Raises EOFError where the other side is gone."""
    found = array.array("i")
    head, rights, _, _ = link.recvmsg(4, socket.CMSG_SPACE(253 * found.itemsize), socket.MSG_CMSG_CLOEXEC)
    for _, _, data in rights:
        found.frombytes(data[: len(data) - len(data) % found.itemsize])
    data = head + _exactly(link, 4 - len(head)) if head else b""
    if len(data) < 4:
        raise EOFError
    return decode(_exactly(link, struct.unpack(">I", data)[0])), list(found)


def _exactly(link: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = link.recv(size - len(parts))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


# --- the executor ---


class Refusal(Exception):
    """A command that this site does not run; it then runs at the client, as it would without this site."""


class Admitted:
    """What a client may do: `hello` is what it said, as far as it is allowed; `commands` are those at once; `log` gets
    what is refused; `confined`: in namespaces alone."""

    def __init__(
        self, hello: dict[str, Any], commands: int, writes: bool, log: Callable[[str], None], confined: bool = True
    ) -> None:  # fmt: skip
        self.hello, self.commands, self.writes, self.log, self.confined = hello, commands, writes, log, confined


def as_user(hello: dict[str, Any]) -> Admitted:
    """All rights of the user as whom a client logged in, but for what a door on the way took from it."""
    confined = hello.get("confined", False)

    def log(why: str) -> None:
        if confined:
            print(f"refused: {why}", file=sys.stderr, flush=True)

    return Admitted(hello, hello.get("commands", sys.maxsize), hello.get("writes", True), log, confined)


class Executor:
    """Starts commands on request. Runs within the namespace, with one thread."""

    def __init__(self, link: socket.socket, settings: dict[str, Any]) -> None:
        self.link = link
        self.roots: list[str] = settings["roots"]
        self.limits: dict[str, int] = dict(settings["limits"])
        self.seconds = self.limits.pop("seconds", None)
        core = self.limits.pop("RLIMIT_CORE", resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_CORE, (core, core))
        self.cores = min(settings["cores"], len(os.sched_getaffinity(0)))
        self.running: dict[int, list[int]] = {}
        self.began: dict[int, float] = {}
        self.reports: dict[int, Report] = {}
        self.selector = selectors.DefaultSelector()
        self.ended: list[dict[str, Any]] = []
        self.writes: dict[int, list[str]] = {}
        for name, text in settings["files"].items():
            os.makedirs(os.path.dirname(raw(name)), exist_ok=True)
            with open(raw(name), "wb") as file:
                file.write(raw(text))

    def serve(self) -> None:
        reader, writer = os.pipe()
        selector = self.selector
        os.set_blocking(writer, False)
        signal.set_wakeup_fd(writer)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        selector.register(self.link, selectors.EVENT_READ)
        selector.register(reader, selectors.EVENT_READ)
        try:
            while True:
                for key, _ in selector.select(self.seconds and LOOK_S):
                    if key.fileobj is self.link:
                        message, descriptors = receive_message(self.link)
                        self.handle(message, descriptors)
                    elif key.fileobj == reader:
                        os.read(reader, 4096)
                    else:
                        self.hear(key.data)
                self.reap()
                self.end_late()
        except (EOFError, ConnectionError):
            for pid in self.running:
                signal_group(pid, signal.SIGKILL)

    def handle(self, message: dict[str, Any], descriptors: list[int]) -> None:
        if "kill" in message:
            for pid, streams in self.running.items():
                if message["kill"] in streams:
                    signal_group(pid, message["signal"])
            return
        if "try" in message:
            self.try_out(message)
            return
        stages, told = message["run"], message.get("pieces")
        try:
            try:
                size = sum(self.check(one) for one in stages)
                for at, one in enumerate(stages):
                    self.redirect(one, descriptors, at)
                for name, _ in (told or {"feeds": ()})["feeds"]:
                    self.inside(name)
            except (Refusal, OSError) as error:
                send_message(self.link, {"refused": [one["id"] for one in stages], "why": str(error)})
                return
            self.begin(stages, told, descriptors, size)
        finally:
            close_all(descriptors)

    def begin(
        self, stages: list[dict[str, Any]], told: dict[str, Any] | None, descriptors: list[int], size: int
    ) -> None:
        streams, first, waits = [one["id"] for one in stages], 0, False
        if told is not None:
            feeds = Feeds(told["feeds"])
            parts = feeds.cut(told["seconds"], self.cores, looked_through=bool(told["text"]))
            waits = told["must"]
            if waits or len(parts) > 1:
                first = told["last"] + 1
                self.conduct(stages[:first], told, feeds, parts, descriptors, (streams, waits, size))
        for at, one in enumerate(stages[first:], first):
            self.start(one, descriptors[3 * at : 3 * at + 3])
        if not waits:
            send_message(self.link, {"started": streams, "bytes": size})

    def conduct(
        self, stages: list[dict[str, Any]], told: dict[str, Any], feeds: Feeds, parts: list[tuple[int, int | None]],
        descriptors: list[int], waits: tuple[list[int], bool, int],
    ) -> None:  # fmt: skip
        reader, writer = os.pipe()
        mine = descriptors[: 3 * len(stages)]
        conductor = Conductor(stages, told, feeds, mine, writer, self.limit if self.limits else None)
        pid = self.fork(lambda: conductor.run(parts), [one["id"] for one in stages], [*mine, writer])
        os.close(writer)
        report = self.reports[pid] = Report(reader, *waits)
        self.selector.register(reader, selectors.EVENT_READ, report)

    def try_out(self, message: dict[str, Any]) -> None:
        stages = message["stages"]
        try:
            for one in stages:
                self.check(one)
            for name, _ in message["feeds"]:
                self.inside(name)
            reader, writer = os.pipe()
            pid = self.fork(lambda: try_out(stages, Feeds(message["feeds"]), writer, self.limit), [], [writer])
        except (Refusal, OSError):
            send_message(self.link, {"tried": message["try"], "bytes": []})
            return
        os.close(writer)
        report = self.reports[pid] = Report(reader, [], False, 0, message["try"])
        self.selector.register(reader, selectors.EVENT_READ, report)

    def fork(self, work: Callable[[], int], streams: list[int], kept: list[int]) -> int:
        pid = fork(work, kept)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)
        self.running[pid] = streams
        return pid

    def hear(self, report: Report) -> None:
        """What a conductor says: that its commands begin, or why they do not, and how they ended."""
        for told in report.read():
            if "began" in told and report.waits:
                report.waits = False
                send_message(self.link, {"started": report.streams, "bytes": report.size})
            elif "refused" in told:
                report.waits = False
                send_message(self.link, {"refused": report.streams, "why": told["refused"]})
            else:
                report.ended = told
        if report.over and report.fd in self.selector.get_map():
            self.selector.unregister(report.fd)

    def inside(self, name: str) -> None:
        real = os.path.realpath(raw(name))
        if not any(real == raw(root) or real.startswith(raw(root).rstrip(b"/") + b"/") for root in self.roots):
            raise Refusal(f"{name} leads out of the site")

    def check(self, one: dict[str, Any]) -> int:
        """That what it would read lies in the site and is a file or a folder. Returns the bytes of its files."""
        size = 0
        for name in (one["cwd"], *one["reads"], *one["writes"]):
            self.inside(name)
            try:
                found = os.stat(raw(name))
            except FileNotFoundError:
                continue  # its message is the command's own
            if not (stat.S_ISREG(found.st_mode) or stat.S_ISDIR(found.st_mode)):
                raise Refusal(f"{name} is neither a file nor a folder")
            size += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if one.get("whole_lines") and not ends_a_line(one["reads"]):
            raise Refusal("a piece ends within a line")
        if one["stdin"].get("file"):
            size += os.stat(raw(one["stdin"]["file"])).st_size
        return size

    def redirect(self, one: dict[str, Any], descriptors: list[int], at: int) -> None:
        """Open the files that are its stdin and stdout, in the place of what was sent for them."""
        for slot, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY)):
            told = one[slot]
            if not told.get("file"):
                continue
            path = raw(told["file"])
            self.check({**one, "cwd": told["file"], "reads": (), "writes": (), "stdin": {}})
            fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | (os.O_APPEND if told.get("append") else 0))
            os.lseek(fd, told.get("offset", 0), os.SEEK_SET)
            index = 3 * at + (0 if slot == "stdin" else 1)
            os.close(descriptors[index])
            descriptors[index] = fd
            if slot == "stdout" and one["merge"]:
                os.close(descriptors[index + 1])
                descriptors[index + 1] = os.dup(fd)

    def start(self, one: dict[str, Any], descriptors: list[int]) -> None:
        os.umask(one["umask"])
        try:
            limit = self.limit if self.limits else None
            process = spawn(one, one["argv"], descriptors, limit, start_new_session=True)
        except (OSError, subprocess.SubprocessError) as error:
            with contextlib.suppress(OSError):
                os.write(descriptors[2], f"shoal: {one['argv'][0]}: {error}\n".encode("utf-8", "replace"))
            self.ended.append({"exit": one["id"], "status": 126, "cpu_s": 0.0, "changed": {}})
            return
        process.returncode = 0  # `reap` sees its end
        self.running[process.pid] = [one["id"]]
        output = [one["stdout"]["file"]] if one["stdout"].get("file") else []
        self.writes[one["id"]] = [*one["writes"], *one.get("touches", ()), *output]

    def limit(self) -> None:
        for name, value in self.limits.items():
            resource.setrlimit(getattr(resource, name), (value, value))

    def end_late(self) -> None:
        """Commands that take longer than they may."""
        if self.seconds is None:
            return
        now = time.monotonic()
        self.began = {pid: self.began.get(pid, now) for pid in self.running}
        for pid, began in self.began.items():
            if now - began > self.seconds:
                signal_group(pid, signal.SIGKILL)

    def reap(self) -> None:
        while self.ended:
            send_message(self.link, self.ended.pop())
        while self.running:
            pid, status, usage = os.wait4(-1, os.WNOHANG)
            if not pid:
                return
            streams = self.running.pop(pid, [])
            code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
            statuses, work = [code] * len(streams), [usage.ru_utime + usage.ru_stime] * len(streams)
            report = self.reports.pop(pid, None)
            if report is not None:
                report.finish()
                self.hear(report)
                os.close(report.fd)
                if report.waits:
                    send_message(self.link, {"refused": report.streams, "why": "the commands could not be started"})
                if report.trial is not None:
                    send_message(self.link, {"tried": report.trial, "bytes": report.ended.get("bytes", [])})
                statuses, work = report.ended.get("statuses", statuses), report.ended.get("cpu_s", work)
            for stream, status, cpu_s in zip(streams, statuses, work):  # noqa: B905
                changed = {name: mode_of(name) for name in self.writes.pop(stream, ())}
                send_message(self.link, {"exit": stream, "status": status, "cpu_s": cpu_s, "changed": changed})


class Report:
    """What a conductor tells, as lines of JSON. `waits`: its commands have begun once it says so. `trial`: the number
    of a trial that it is instead."""

    def __init__(self, fd: int, streams: list[int], waits: bool, size: int, trial: int | None = None) -> None:
        self.fd, self.streams, self.waits, self.size, self.trial = fd, streams, waits, size, trial
        self.ended: dict[str, Any] = {}
        self.over = False
        self._buffer = b""
        os.set_blocking(fd, False)

    def read(self) -> list[dict[str, Any]]:
        with contextlib.suppress(BlockingIOError):
            data = os.read(self.fd, REPORT_BYTES)
            self.over = not data
            self._buffer += data
        *lines, self._buffer = self._buffer.split(b"\n")
        return [json.loads(line) for line in lines]

    def finish(self) -> None:
        """Its process is gone: all that it told is there."""
        while not self.over:
            try:
                data = os.read(self.fd, REPORT_BYTES)
            except BlockingIOError:
                return
            self.over = not data
            self._buffer += data


def ends_a_line(names: Sequence[str]) -> bool:
    """Whether the text of these files, one after another, ends with a whole line."""
    for name in reversed(names):
        with open(raw(name), "rb") as file:
            if file.seek(0, os.SEEK_END):
                file.seek(-1, os.SEEK_END)
                return file.read(1) == b"\n"
    return True


def mode_of(name: str) -> int | None:
    """None where it is gone."""
    try:
        return os.stat(raw(name)).st_mode
    except OSError:
        return None


def signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(pid, number)
