"""The process in a job that owns one session: a command at a terminal or at pipes, and what it wrote last.

`agent.py OPTIONS -- COMMAND...`, run by an isolated interpreter with the job's rights, so it needs nothing of Shoal but
`frames` and `streams`, and only light parts of the standard library. It listens on a Unix socket in `SHOAL_RUN`.
Clients come and go, and so does the server; the command and what it wrote stay. A client says where it stopped, and
gets what came since.
"""

# ruff: noqa: SIM105 - pathlib and contextlib would each cost more than all of this takes to start

from __future__ import annotations

import _socket as sockets
import os
import select
import struct
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Callable
    from typing import Any, NoReturn

    from shoal.session.frames import (
        ACK,
        ASK,
        DETACH,
        END,
        ERRORS,
        EXIT,
        HELLO,
        INPUT,
        KEPT,
        MOST,
        NOTE,
        OUTPUT,
        SHORT,
        SIGNAL,
        SIZE,
        STATE,
        TAKEN,
        WELCOME,
        WINDOW,
        Kept,
        frame,
        number,
        read_fields,
        take_frames,
        write_fields,
    )  # fmt: skip
    from shoal.session.streams import (
        PASSED_ON,
        Client,
        drain,
        end_as,
        listen,
        pass_on,
        resize,
        start_at_pipes,
        start_at_terminal,
        write_all,
    )
else:
    import _signal as signal

    sys.path.append(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    from frames import *  # noqa: F403
    from streams import *  # noqa: F403

_IN, _OUT, _LOST = select.POLLIN, select.POLLOUT, select.POLLHUP | select.POLLERR
_MOST_CLIENTS = 16
_MOST_NAMES = 64
_STALLED_S = 30.0
"""A client of a terminal that takes nothing for so long no longer holds the command up."""
_TELL_EVERY = 16 << 10
_FLUSH_S = 10.0
_FIRST_S = 60.0
_FIRST_MAIN_S = 1.0
"""A job whose command ends sooner waits as long for its person, who sees all of it at the terminal then."""
_WARN_S = 60.0
_HANG_UP_S = 10.0
"""Between a hang-up and the kill."""


class Agent:
    def __init__(self, options: dict[str, str], argv: list[str], clock: Callable[[], float] = time.monotonic) -> None:
        self.options, self.argv, self.clock = options, argv, clock
        self.terminal = options.get("pty") == "1"
        self.main = options.get("main") == "1"
        """It is the job itself: it starts at once, is in the job's log, and does not outlive its command."""
        self.kept = Kept()
        self.clients: dict[int, Client] = {}
        self.watched: list[tuple[int, int]] = []
        self.poll = select.poll()
        self.log = bytearray()
        self.most = SHORT
        self.taken: dict[str, int] = {}
        self.acknowledged = 0
        self.pid, self.input = 0, -1
        self.outputs: dict[int, bytes] = {}
        self.pending = bytearray()
        self.no_more = self.changed = False
        self.typed = self.written = 0
        self.status: int | None = None
        self.wishes: list[int] = []
        self.began = self.active_at = self.seen_at = self.clock()
        self.ended_at = self.looked_at = 0.0
        self.hung_up_at: float | None = None
        self.unwanted = False
        """It was asked to end before it began."""
        self.warned = ""
        self.stays = self.main
        self.greeted = False
        self.umask = 0o077

    # --- the whole of it ---

    def run(self) -> int:
        woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        for one in PASSED_ON:
            signal.signal(one, lambda signum, _: self.wishes.append(signum))
        listener, path, self.umask = listen(f"session-{self.options['id']}.sock", _MOST_CLIENTS)
        if self.main:
            self.start()
        try:
            while not self.over():
                self.turn(woken, listener.fileno(), listener)
        finally:
            try:
                os.unlink(path)  # noqa: PTH108
            except OSError:
                pass
        return end_as(self.status)

    def over(self) -> bool:
        """Whether all that could be said has been said."""
        now = self.clock()
        if not self.pid:
            return self.unwanted or now - self.began > _FIRST_S or bool(self.wishes)
        if self.status is None:
            return False
        if any(client.acknowledged >= self.kept.end for client in self.clients.values()) and not self.main:
            return True
        waits = [client for client in self.clients.values() if client.known and client.acknowledged < self.kept.end]
        if self.main and not self.greeted and now - self.began < _FIRST_MAIN_S:
            return False
        if self.main:
            return not any(now - max(client.moved_at, self.ended_at) < _FLUSH_S for client in waits)
        return now - max(self.seen_at, self.ended_at) > number(self.options, "linger")

    def turn(self, woken: int, door: int, listener: Any) -> None:
        """What is typed and written goes on first; everything else waits for that."""
        self.watch(woken, door)
        ready = self.poll.poll(1000)
        for fd, events in ready:
            client = self.clients.get(fd)
            if client is not None:
                self.serve(client, events)
            elif fd == woken:
                drain(woken)
                self.changed = True
            elif fd == door:
                self.accept(listener)
            else:
                self.carry(fd, events)
        self.answer(now=not ready)
        now = self.clock()
        if self.changed or not self.pid or not ready or now - self.looked_at >= 1:
            self.changed, self.looked_at = False, now
            self.heed()
            self.answer(now=False)
        write_all(1, bytes(self.log))
        self.log.clear()
        self.drop_old()

    def watch(self, woken: int, door: int) -> None:
        wanted = [(woken, _IN), (door, _IN)] if len(self.clients) < _MOST_CLIENTS else [(woken, _IN)]
        wants = _IN if len(self.pending) < MOST else 0
        for client in self.clients.values():
            wanted.append((client.fd, wants | _OUT if client.going else wants))
        room = self.has_room()
        if self.pending and self.input >= 0:
            wanted.append((self.input, _OUT | _IN if self.input in self.outputs and room else _OUT))
        if room:
            for fd in self.outputs:
                if fd != self.input or not self.pending:
                    wanted.append((fd, _IN))
        if wanted != self.watched:
            self.watched, self.poll = wanted, select.poll()
            for fd, events in wanted:
                self.poll.register(fd, events)

    def answer(self, *, now: bool) -> None:
        for client in tuple(self.clients.values()):
            self.fill(client, now=now)
            if client.going:
                self.serve(client, _OUT)

    def heed(self) -> None:
        """Signals, ends and limits."""
        for signum in self.wishes:
            if signum == signal.SIGTERM:
                self.tell("the job is asked to stop")
            self.pass_on(signum)
        self.wishes.clear()
        self.reap()
        self.keep_time()

    def has_room(self) -> bool:
        return self.kept.end - self.kept.begin < KEPT + MOST

    # --- the command ---

    def start(self) -> None:
        if self.terminal:
            rows, columns = number(self.options, "rows", 9999), number(self.options, "cols", 9999)
            self.pid, self.input = start_at_terminal(self.argv, self.umask, rows, columns)
            self.outputs = {self.input: OUTPUT}
        else:
            self.pid, self.input, out, errors = start_at_pipes(self.argv, self.umask)
            self.outputs = {out: OUTPUT, errors: ERRORS}
        self.began = self.active_at = self.clock()

    def carry(self, fd: int, events: int) -> None:
        if events & _OUT and fd == self.input:
            self.feed()
        if fd in self.outputs and events & (_IN | _LOST):
            self.read(fd)
        elif fd == self.input and events & (_LOST) and not self.terminal:
            self.close_input()

    def read(self, fd: int) -> bool:
        """Take what the command wrote; whether there may be more."""
        try:
            data = os.read(fd, self.most)
        except BlockingIOError:
            return False
        except OSError:  # a terminal that no process has open any more
            data = b""
        if not data:
            self.outputs.pop(fd)
            if fd != self.input:
                os.close(fd)
            return False
        self.most = MOST if len(data) == self.most else SHORT
        self.active_at = self.clock()
        self.written += len(data)
        self.kept.add(self.outputs[fd], data)
        if self.main:
            self.log += data
        return True

    def feed(self) -> None:
        try:
            done = os.write(self.input, self.pending[:MOST])
        except BlockingIOError:
            return
        except OSError:
            self.close_input()
            return
        del self.pending[:done]
        self.end_input()

    def end_input(self) -> None:
        if self.no_more and not self.pending and self.input >= 0:
            if self.terminal:
                self.no_more = False
                self.pending += b"\x04"
            else:
                self.close_input()

    def close_input(self) -> None:
        self.pending.clear()
        if self.input >= 0 and not self.terminal:
            os.close(self.input)
            self.input = -1

    def pass_on(self, signum: int) -> None:
        """A signal for the job is one for the command."""
        if self.pid and self.status is None:
            pass_on(signum, self.pid, self.input if self.terminal else None)

    def hang_up(self, why: str) -> None:
        if self.hung_up_at is None:
            self.hung_up_at = self.clock()
            self.tell(why)
            self.pass_on(signal.SIGHUP)

    def reap(self) -> None:
        while self.status is None and self.pid:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                for fd in list(self.outputs):
                    while self.read(fd):
                        pass
                self.status = status
                self.ended_at = self.clock()
                code = os.waitstatus_to_exitcode(status)
                ended = {"code": code} if code >= 0 else {"signal": -code}
                self.kept.add(EXIT, write_fields(**ended))
                self.close_input()

    # --- limits ---

    def keep_time(self) -> None:
        now = self.clock()
        if not self.pid or self.status is not None:
            return
        if self.hung_up_at is not None:
            if now - self.hung_up_at > _HANG_UP_S:
                self.pass_on(signal.SIGKILL)
            return
        if any(client.known for client in self.clients.values()):
            self.seen_at = now
        elif not self.stays and now - self.seen_at > number(self.options, "linger"):
            self.hang_up("its client has gone")
        for name, since, what in (("idle", self.active_at, "idle"), ("time", self.began, "open")):
            most = number(self.options, name)
            left = most - (now - since)
            if most and left <= 0:
                self.hang_up(f"this session was {what} for {most} s, its limit: it ends")
            elif most and left <= min(_WARN_S, most / 2) and self.warned != name:
                self.warned = name
                self.tell(f"this session ends in {max(1, round(left))} s, when it has been {what} for {most} s")
            elif self.warned == name and left > min(_WARN_S, most / 2):
                self.warned = ""

    def drop_old(self) -> None:
        """Forget output that every client has; a client of a terminal that takes nothing is not waited for."""
        if self.kept.end - self.kept.begin <= KEPT:
            return
        now = self.clock()
        known = [client for client in self.clients.values() if client.known]
        if self.terminal and not self.has_room():
            for client in known:
                if client.acknowledged < self.kept.end and now - client.moved_at > _STALLED_S:
                    self.lose(client)
            known = [client for client in self.clients.values() if client.known]
        needed = [client.acknowledged for client in known]
        self.kept.drop(min(needed) if needed else self.kept.end if self.terminal else self.acknowledged)

    # --- clients ---

    def accept(self, listener: Any) -> None:
        try:
            fd, _ = listener._accept()
        except OSError:
            return
        connection = sockets.socket(fileno=fd)
        connection.setblocking(False)
        self.clients[fd] = Client(connection, self.clock())

    def lose(self, client: Client) -> None:
        if self.clients.pop(client.fd, None) is not None:
            client.connection.close()
            if client.known:
                self.seen_at = self.clock()

    def tell(self, text: str) -> None:
        """A remark for those who are there now."""
        for client in self.clients.values():
            if client.known and len(client.going) < MOST:
                client.going += frame(NOTE, text.encode())

    def fill(self, client: Client, *, now: bool) -> None:
        """Give the client what it has not got, as far as its window is open. `now`: nothing else will come soon."""
        kept = self.kept
        while (
            client.known
            and len(client.going) < MOST
            and client.sent - client.acknowledged < WINDOW
            and client.at < kept.first + len(kept.frames)
        ):
            made = kept.frames[client.at - kept.first]
            client.going += made
            client.sent += len(made)
            client.at += 1
        if client.untold and (client.going or now or client.untold >= _TELL_EVERY):
            client.untold = 0
            client.going += frame(TAKEN, struct.pack(">Q", self.taken.get(client.name, 0)))

    def serve(self, client: Client, events: int) -> None:
        try:
            if events & _OUT:
                del client.going[: client.connection.send(client.going)]
            if events & _IN:
                data = client.connection.recv(client.most)
                if not data:
                    self.lose(client)
                    return
                client.most = MOST if len(data) == client.most else SHORT
                client.came += data
                for kind, payload in take_frames(client.came):
                    self.obey(client, kind, payload)
            elif events & (_LOST):
                self.lose(client)
        except BlockingIOError:
            return
        except (OSError, ValueError, struct.error):
            self.lose(client)

    def obey(self, client: Client, kind: bytes, payload: bytes) -> None:
        if kind == INPUT and client.known:
            self.taken[client.name] = self.taken.get(client.name, 0) + len(payload)
            self.typed += len(payload)
            if self.input >= 0 and not self.no_more:
                self.pending += payload
                self.active_at = self.clock()
                self.feed()
                if self.terminal and self.input in self.outputs and self.has_room():
                    self.read(self.input)  # the kernel's echo is there already
            client.untold += len(payload)
        elif kind == HELLO:
            self.greet(client, read_fields(payload))
        elif kind == ASK and not client.known:
            self.report(client, read_fields(payload))
        elif not client.known:
            raise ValueError("the first frame is no greeting")
        elif kind == END:
            self.no_more = True
            self.end_input()
        elif kind == SIZE:
            if self.terminal and self.pid and self.input >= 0:
                resize(self.input, *struct.unpack(">HH", payload))
        elif kind == ACK:
            (acknowledged,) = struct.unpack(">Q", payload)
            if client.acknowledged < acknowledged <= client.sent:
                client.acknowledged = acknowledged
                client.moved_at = self.clock()
                self.acknowledged = max(self.acknowledged, acknowledged)
        elif kind == SIGNAL:
            (signum,) = payload
            if 0 < signum < signal.NSIG:
                self.pass_on(signum)
        elif kind == DETACH:
            self.stays = True
            self.lose(client)

    def report(self, client: Client, said: dict[str, str]) -> None:
        """Tell the server, and do what it says: the job's devices work (`busy`), so it is not idle; it shall `end`."""
        now = self.clock()
        if "server" in said:  # no other can end those that an earlier run of it gave away
            client.server = said["server"]
            for other in tuple(self.clients.values()):
                if other.server not in ("", client.server):
                    self.lose(other)
        if "busy" in said:
            self.active_at = now
        client.going += frame(STATE, write_fields(
            open=int(now - self.began), idle=int(now - self.active_at), written=self.written, typed=self.typed,
            clients=sum(one.known for one in self.clients.values()), pty=int(self.terminal), begun=int(self.pid > 0),
            over=int(self.status is not None),
        ))  # fmt: skip
        if "end" in said and self.pid:
            self.hang_up(said["end"])
        elif "end" in said:
            self.unwanted = True

    def greet(self, client: Client, said: dict[str, str]) -> None:
        if client.known:
            raise ValueError("it has greeted before")
        client.known = self.greeted = True
        client.name = said.get("client", "")[:64]
        if client.name not in self.taken and len(self.taken) >= _MOST_NAMES:
            self.taken.pop(next(iter(self.taken)))
        asked = number(said, "offset")
        kept = self.kept
        offset = min(max(asked, kept.begin), kept.end)
        client.at = kept.number_at(offset)
        client.sent = client.acknowledged = (
            kept.offsets[client.at - kept.first] if client.at - kept.first < len(kept.offsets) else kept.end
        )
        client.going += frame(WELCOME, write_fields(
            offset=client.sent, taken=self.taken.setdefault(client.name, 0), pty=int(self.terminal),
            missed=max(0, client.sent - asked),
        ))  # fmt: skip
        if not self.pid:
            self.options |= {name: said[name] for name in ("rows", "cols") if name in said}
            self.start()
        elif self.terminal and self.input >= 0 and (rows := number(said, "rows", 9999)):
            resize(self.input, rows, number(said, "cols", 9999))


def main() -> NoReturn:
    options = dict(word.partition("=")[::2] for word in sys.argv[1].split(","))
    os._exit(Agent(options, sys.argv[3:]).run())


if __name__ == "__main__":
    main()
