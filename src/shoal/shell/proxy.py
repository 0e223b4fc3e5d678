"""The proxy of a site: starts commands next to their data and carries their streams. With its executor it is sent to
the site as one file (see `source`): the standard library alone, Python 3.8 or newer.

Two kinds of processes run it. The *proxy* speaks frames over stdin and stdout (see `Frame`), which `ssh` carries. An
*executor* is its child within a mount namespace, where the site's folders have the names that they have at the client;
it checks what a command would read, starts it, and tells its status. There is one executor that can only read and, once
it is needed, one that can write. Commands end with their executor, and an executor with the proxy.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import time
from typing import Any, Callable, Sequence  # noqa: UP035 - runs on Python 3.8

from shoal.shell.executor import Admitted, Executor, Refusal, as_user, decode, encode, receive_message, send_message
from shoal.shell.frames import Frame, Frames, frame
from shoal.shell.machine import fingerprint, interpreter, libc, listing, namespace, working_locales
from shoal.shell.pieces import close_all

PROTOCOL = 2
TRIES_COMMANDS = 2
"""The protocol from which on a proxy knows TRY."""
CHUNK = 128 << 10
STDIN_WINDOW = 256 << 10
"""Bytes of a command's input that may be on their way or wait here."""
SILENCE_S = 5.0
"""Without any frame for so long, the other side is gone: commands end within 5 s of a loss."""
OUT_LIMIT = 2 << 20
"""Bytes that wait for a slow link before the commands' output is left in their pipes."""
KILL_AFTER_S = 2.0
MEASURED_BYTES = 1 << 20
"""That go out while the link holds up the rest, until its rate is taken from them."""
MOST_CORES, MOST_TRIALS = 8, 4
"""On which the pieces of one pipeline work at once; of one client at once."""
GREETING = b"\nSHOAL-PROXY-1\n"
"""Before the first frame: what a login prints comes before it and is skipped."""


class RunningStage:
    """A command that runs here: the ends of its pipes, and what may still go through them."""

    def __init__(self, stream: int, credit: int) -> None:
        self.stream = stream
        self.credit = credit
        self.outputs: dict[int, int] = {}
        self.stdin: int | None = None
        self.waiting = bytearray()
        self.input_ended = False
        self.status: dict[str, Any] | None = None
        self.kill_at: float | None = None
        self.executor: socket.socket | None = None


class Pipes:
    """A client at the other end of two pipes, as `ssh` gives them."""

    def __init__(self, reader: int, writer: int) -> None:
        self.reader, self.writer = reader, writer
        for fd in (reader, writer):
            os.set_blocking(fd, False)

    def receive(self) -> bytes:
        return os.read(self.reader, 1 << 20)

    def send(self, data: bytes) -> int:
        return os.write(self.writer, data)


class Proxy:
    """One client over a link such as `Pipes`. `admit` says what it may do, or raises Refusal."""

    def __init__(
        self, link: Any, *, admit: Callable[[dict[str, Any]], Admitted] = as_user,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self.link, self.admit, self.clock = link, admit, clock
        self.reader, self.writer = link.reader, link.writer
        self.admitted: Admitted
        self.frames = Frames()
        self.out = bytearray()
        self.stages: dict[int, RunningStage] = {}
        self.trials: set[int] = set()
        self.rate = 0.0
        self.held_up: float | None = None
        self.slow_bytes, self.slow_s = 0, 0.0
        self.executors: dict[tuple[bool, Any], socket.socket] = {}
        self.processes: list[Any] = []
        self.selector = selectors.DefaultSelector()
        self.heard_at = clock()
        self.hello: dict[str, Any] = {}
        self.namespaces = True

    def serve(self) -> None:
        self.selector.register(self.reader, selectors.EVENT_READ, self.read_client)
        try:
            while True:
                self.interest()
                for key, _ in self.selector.select(0.5):
                    key.data()
                self.watch()
        except (EOFError, ConnectionError, ValueError):
            pass
        finally:
            for link in self.executors.values():
                link.close()
            for process in self.processes:
                process.kill()
                process.wait()

    # --- the client ---

    def interest(self) -> None:
        wants = bool(self.out)
        registered = self.writer in self.selector.get_map()
        if wants and not registered:
            self.selector.register(self.writer, selectors.EVENT_WRITE, self.write_client)
        elif registered and not wants:
            self.selector.unregister(self.writer)
        full = len(self.out) > OUT_LIMIT
        for stage in self.stages.values():
            for fd, kind in stage.outputs.items():
                pump = functools.partial(self.pump, stage, fd, kind)
                self.select(fd, selectors.EVENT_READ, stage.credit > 0 and not full, pump)
            if stage.stdin is not None:
                self.select(
                    stage.stdin, selectors.EVENT_WRITE, bool(stage.waiting), functools.partial(self.feed, stage)
                )

    def select(self, fd: int, events: int, wanted: bool, action: Callable[[], None]) -> None:
        registered = fd in self.selector.get_map()
        if wanted and not registered:
            self.selector.register(fd, events, action)
        elif registered and not wanted:
            self.selector.unregister(fd)

    def send(self, stream: int, kind: int, data: bytes = b"") -> None:
        self.out += frame(stream, kind, data)
        self.write_client()

    def write_client(self) -> None:
        while self.out:
            try:
                done = self.link.send(bytes(self.out[: 1 << 20]))
            except BlockingIOError:
                self.held_up = self.held_up or self.clock()
                return
            del self.out[:done]
            if self.held_up is not None:
                self.measure(self.held_up, done)
        self.held_up = None

    def measure(self, since: float, done: int) -> None:
        """The rate of the link, while more waits than it takes."""
        self.held_up = self.clock()
        self.slow_bytes, self.slow_s = self.slow_bytes + done, self.slow_s + self.held_up - since
        if self.slow_bytes >= MEASURED_BYTES and self.slow_s > 0:
            self.rate, self.slow_bytes, self.slow_s = self.slow_bytes / self.slow_s, 0, 0.0

    def read_client(self) -> None:
        try:
            data = self.link.receive()
        except BlockingIOError:  # a part of an encrypted record
            return
        if not data:
            raise EOFError
        self.heard_at = self.clock()
        for stream, kind, body in self.frames.feed(data):
            self.handle(stream, kind, body)

    def handle(self, stream: int, kind: int, body: bytes) -> None:
        stage = self.stages.get(stream)
        if (kind == Frame.HELLO) == bool(self.hello):
            raise ValueError("a client begins with its hello, and says it once")
        if kind == Frame.HELLO:
            self.greet(decode(body))
        elif kind == Frame.PING:
            self.send(stream, Frame.PONG, body + struct.pack(">d", self.rate))
        elif kind == Frame.RUN:
            self.run(decode(body))
        elif kind == Frame.TRY:
            self.try_out(stream, decode(body))
        elif stage is None:
            return
        elif kind == Frame.DATA:
            if len(stage.waiting) + len(body) > STDIN_WINDOW:
                raise ValueError("more input than was asked for")
            if stage.stdin is not None:
                stage.waiting += body
                self.feed(stage)
        elif kind == Frame.END:
            stage.input_ended = True
            self.feed(stage)
        elif kind == Frame.CREDIT:
            stage.credit += struct.unpack(">I", body)[0]
        elif kind == Frame.KILL:
            self.kill(stage)

    def greet(self, hello: dict[str, Any]) -> None:
        try:
            self.admitted = self.admit(hello)
        except Refusal as error:
            self.send(0, Frame.WELCOME, encode({"failed": str(error)}))
            raise EOFError from None
        self.hello = hello = self.admitted.hello
        missing = [root for root in hello["sites"].values() if not os.path.isdir(root)]
        if missing:
            self.send(0, Frame.WELCOME, encode({"failed": f"there is no folder {missing[0]} on it"}))
            return
        try:
            self.executor(writes=False)
        except (OSError, EOFError) as error:
            self.send(0, Frame.WELCOME, encode({"failed": f"no command can be started: {error}"}))
            return
        told = {
            "protocol": PROTOCOL, "namespaces": self.namespaces, "libc": libc(), "user": os.getuid(),
            "tools": {path: fingerprint(path) for path in hello["tools"]},
            "locales": working_locales(hello["locales"]),
            "folders": {m: listing(r) for m, r in hello["sites"].items()},
        }  # fmt: skip
        self.send(0, Frame.WELCOME, encode(told))

    # --- commands ---

    def executor(self, *, writes: bool) -> socket.socket:
        """Raises OSError or EOFError where none can be started. A folder that was replaced by another of its name needs
        a new one, since a namespace keeps what it was made with."""
        found = [os.stat(root) for root in self.hello["sites"].values()]
        key = writes, tuple((one.st_dev, one.st_ino) for one in found)
        if key not in self.executors:
            self.drop_executors(writes)
            try:
                line = namespace(self.hello["sites"], self.hello["home"], writes=writes)
                if line is not None:
                    self.executors[key] = self.start_executor(line)
            except (OSError, EOFError):
                line = None
            if line is None:
                if self.admitted.confined:
                    raise OSError("bubblewrap does not work there, and nothing else confines")
                self.namespaces = False
                self.executors[key] = self.start_executor(None)
            link = self.executors[key]
            self.selector.register(link, selectors.EVENT_READ, lambda: self.executor_told(link))
        return self.executors[key]

    def drop_executors(self, writes: bool) -> None:
        """Those that run nothing any more."""
        used = {id(stage.executor) for stage in self.stages.values()}
        for key, link in list(self.executors.items()):
            if key[0] == writes and id(link) not in used:
                self.selector.unregister(link)
                link.close()
                del self.executors[key]

    def start_executor(self, line: list[str] | None) -> socket.socket:
        ours, theirs = socket.socketpair()
        source = os.memfd_create("shoal-proxy")
        os.write(source, SOURCE)
        os.set_inheritable(source, True)
        program = [interpreter(), "-I", "-S", f"/proc/self/fd/{source}", "--execute", str(theirs.fileno())]
        try:
            process = subprocess.Popen(
                [*(line or []), *program], pass_fds=(theirs.fileno(), source), stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        finally:
            theirs.close()
            os.close(source)
        self.processes.append(process)
        roots = list(self.hello["sites"]) if line else list(self.hello["sites"].values())
        try:
            ours.settimeout(20)
            files = self.hello["files"] if line else {}
            cores = self.hello.get("cores", MOST_CORES)
            send_message(ours, {"roots": roots, "limits": self.hello["limits"], "files": files, "cores": cores})
            receive_message(ours)
        except OSError:
            raise EOFError from None
        ours.settimeout(None)
        return ours

    def run(self, told: dict[str, Any]) -> None:
        """Start the stages of one piece of a pipeline, joined by pipes, all of them or none."""
        stages: list[dict[str, Any]] = told["stages"]
        pipes: dict[Any, tuple[int, int]] = {}
        passed: list[int] = []
        try:
            allowed = set(self.hello["tools"])
            for one in stages:
                if one["path"] not in allowed:
                    raise Refusal(f"{one['path']} is no command that this site offers")
            if len(self.stages) + len(stages) > self.admitted.commands:
                raise Refusal(f"more than {self.admitted.commands} commands at once")
            if told["writes"] and not self.admitted.writes:
                raise Refusal("its folders may only be read")
            link = self.executor(writes=told["writes"])
            for one in stages:
                passed += self.connect(one, pipes)
            for one in stages:
                self.stages[one["id"]].executor = link
            send_message(link, {"run": stages, "pieces": told.get("pieces")}, passed)
        except (Refusal, OSError, EOFError) as error:
            self.refuse([one["id"] for one in stages], str(error))
        finally:
            close_all(passed)

    def try_out(self, number: int, told: dict[str, Any]) -> None:
        """Commands on the beginning of their input; how much they read and wrote comes back, and nothing else."""
        try:
            if any(one["path"] not in self.hello["tools"] for one in told["stages"]):
                raise Refusal("a command that this site does not offer")
            if len(self.trials) >= MOST_TRIALS:
                raise Refusal(f"{MOST_TRIALS} trials are under way")
            send_message(self.executor(writes=False), {"try": number, **told})
            self.trials.add(number)
        except (Refusal, OSError, EOFError):
            self.send(number, Frame.TRIED, encode([]))

    def connect(self, one: dict[str, Any], pipes: dict[Any, tuple[int, int]]) -> list[int]:
        """A stage and the three descriptors of its process."""
        stage = RunningStage(one["id"], one["credit"])
        self.stages[one["id"]] = stage
        how = one["stdin"]
        if "pipe" in how:
            stdin = _joint(pipes, how["pipe"])[0]
        elif "stream" in how:
            stdin, stage.stdin = os.pipe()
            os.set_blocking(stage.stdin, False)
        else:
            stdin = os.open(os.devnull, os.O_RDONLY)
        how = one["stdout"]
        if "pipe" in how:
            stdout = _joint(pipes, how["pipe"])[1]
        elif "file" in how:
            stdout = os.open(os.devnull, os.O_WRONLY)
        else:
            stdout = self.output(stage, Frame.OUT)
        stderr = os.dup(stdout) if one["merge"] else self.output(stage, Frame.ERR)
        return [stdin, stdout, stderr]

    def output(self, stage: RunningStage, kind: int) -> int:
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        with contextlib.suppress(OSError):
            fcntl.fcntl(reader, 1031, 1 << 20)  # F_SETPIPE_SZ: fewer turns for much output
        stage.outputs[reader] = kind
        return writer

    def executor_told(self, link: socket.socket) -> None:
        message, _ = receive_message(link)
        if "exit" in message:
            stage = self.stages.get(message["exit"])
            if stage is not None:
                stage.status = {name: message[name] for name in ("status", "cpu_s", "changed")}
                self.settle(stage)
        elif "tried" in message:
            self.trials.discard(message["tried"])
            self.send(message["tried"], Frame.TRIED, encode(message["bytes"]))
        elif "refused" in message:
            self.refuse(message["refused"], message["why"])
        elif "started" in message:
            for stream in message["started"]:
                self.send(stream, Frame.STARTED, encode({"bytes": message["bytes"]}))

    def refuse(self, streams: Sequence[int], why: str) -> None:
        for stream in streams:
            stage = self.stages.pop(stream, None)
            if stage is not None:
                self.forget(stage)
        self.admitted.log(why)
        self.send(streams[0], Frame.REFUSED, encode({"streams": list(streams), "why": why}))

    def pump(self, stage: RunningStage, fd: int, kind: int) -> None:
        if fd not in stage.outputs:  # closed by what was handled just before
            return
        try:
            data = os.read(fd, min(CHUNK, stage.credit))
        except BlockingIOError:
            return
        if data:
            stage.credit -= len(data)
            self.send(stage.stream, kind, data)
            return
        self.drop(fd)
        del stage.outputs[fd]
        self.settle(stage)

    def feed(self, stage: RunningStage) -> None:
        if stage.stdin is None:
            return
        try:
            while stage.waiting:
                done = os.write(stage.stdin, stage.waiting)
                del stage.waiting[:done]
                self.send(stage.stream, Frame.CREDIT, struct.pack(">I", done))
        except BlockingIOError:
            return
        except OSError as error:
            if error.errno != errno.EPIPE:
                raise
            stage.waiting.clear()
            stage.input_ended = True
        if stage.input_ended:
            self.drop(stage.stdin)
            stage.stdin = None

    def settle(self, stage: RunningStage) -> None:
        """Tell the status once all output is on its way."""
        if stage.status is None or stage.outputs:
            return
        self.send(stage.stream, Frame.EXIT, encode(stage.status))
        self.forget(self.stages.pop(stage.stream))

    def kill(self, stage: RunningStage) -> None:
        """The client's side of it has ended: what it writes goes nowhere, and it ends."""
        for fd in list(stage.outputs):
            self.drop(fd)
        stage.outputs.clear()
        stage.kill_at = self.clock() + KILL_AFTER_S
        self.signal(stage, signal.SIGTERM)

    def signal(self, stage: RunningStage, number: int) -> None:
        if stage.executor is not None:
            send_message(stage.executor, {"kill": stage.stream, "signal": int(number)})

    def watch(self) -> None:
        now = self.clock()
        if now - self.heard_at > SILENCE_S:
            raise EOFError
        for stage in self.stages.values():
            if stage.kill_at is not None and now >= stage.kill_at:
                stage.kill_at = None
                self.signal(stage, signal.SIGKILL)

    def drop(self, fd: int) -> None:
        if fd in self.selector.get_map():
            self.selector.unregister(fd)
        os.close(fd)

    def forget(self, stage: RunningStage) -> None:
        for fd in [*stage.outputs, *([stage.stdin] if stage.stdin is not None else [])]:
            self.drop(fd)
        stage.outputs.clear()
        stage.stdin = None


def _joint(pipes: dict[Any, tuple[int, int]], name: Any) -> tuple[int, int]:
    if name not in pipes:
        pipes[name] = os.pipe()
    return pipes[name]


def main(arguments: Sequence[str]) -> None:
    if arguments[:1] == ["--execute"]:
        link = socket.socket(fileno=int(arguments[1]))
        link.set_inheritable(False)
        settings, _ = receive_message(link)
        executor = Executor(link, settings)
        send_message(link, {})
        executor.serve()
        return
    os.write(1, GREETING)
    Proxy(Pipes(0, 1)).serve()


SOURCE: bytes = globals().get("SOURCE", b"")
"""This file's own text, for its executors."""

if __name__ == "__main__":
    if not SOURCE:
        with open(sys.argv[0], "rb") as own:
            SOURCE = own.read()
    main(sys.argv[1:])
