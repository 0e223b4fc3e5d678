"""Commands of one pipeline that work on pieces of their input at once, on the cores of one machine, and how the outputs
of pieces become what the commands write for the whole. A part of the one file that is sent to a site (see `source`):
the standard library alone, Python 3.8 or newer.

A *conductor* is a process that starts the commands once for each piece and puts their outputs together: one after
another, merged, added, or by the last command once more. It tells one status for each command.
"""

from __future__ import annotations

import codecs
import contextlib
import functools
import json
import os
import resource
import select
import signal
import subprocess
from typing import Any, Callable, Collection, Iterator, Sequence  # noqa: UP035 - runs on Python 3.8

LEAST_BYTES = 2 << 20
"""Of a piece."""
WORTH_S = 0.02
"""What must be saved: the starts of the commands for each piece cost about half of it."""
FEED_S, LOOK_S = 0.5e-9, 1e-9
"""For each byte: to hand it on through a pipe, and to see whether it is text. `grep -F` takes less than either."""
LONGEST_LINE = 4 << 20
"""That is looked at for a place to cut."""
AHEAD_BYTES = 32 << 20
"""Of output of later pieces that wait for the first, of all of them."""
READ_BYTES = 1 << 20
TRIED_BYTES, MOST_TRIED, TRIED_S = 1 << 20, 16 << 20, 0.5
"""Of a trial: its input, the most that a command may write, and the time of each command."""
_WIDTH = 7
"""Of each number that `wc` writes where it reads a pipe and counts several things."""

Stages = Sequence["dict[str, Any]"]
Limit = Callable[[], None]


def raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def close_all(descriptors: Collection[int]) -> None:
    for one in descriptors:
        with contextlib.suppress(OSError):
            os.close(one)


def spawn(
    one: dict[str, Any], words: Sequence[str], stdio: Sequence[int], limit: Limit | None, **more: Any
) -> subprocess.Popen[bytes]:
    """Start a command as a client described it. Where nothing is to be limited, without a copy of this process, which
    takes a third of the time."""
    return subprocess.Popen(
        [raw(word) for word in words], executable=raw(one["path"]), cwd=raw(one["cwd"]), stdin=stdio[0],
        stdout=stdio[1], stderr=stdio[2], env={raw(k): raw(v) for k, v in one["env"].items()}, preexec_fn=limit, **more,
    )  # fmt: skip


# --- how outputs become one ---


def joining_command(way: str, argv: Sequence[str], inputs: Collection[int], descriptors: Sequence[int]) -> list[str]:
    """The command without its inputs (positions of `argv`). A merge reads the descriptors, others their stdin."""
    words = [word for at, word in enumerate(argv) if at not in inputs]
    if way == "merge":
        return [words[0], "-m", *words[1:], *(f"/dev/fd/{one}" for one in descriptors)]
    return words


def added(outputs: Sequence[bytes]) -> bytes:
    """Numbers in equal places added. Where there are other words, as of a command that failed, the outputs stay."""
    rows = [one.split() for one in outputs]
    if not rows[0] or len({len(row) for row in rows}) != 1 or not all(word.isdigit() for row in rows for word in row):
        return b"".join(outputs)
    totals = [b"%d" % sum(map(int, column)) for column in zip(*rows)]  # noqa: B905 - they are equally long
    return b" ".join(totals if len(totals) == 1 else [one.rjust(_WIDTH) for one in totals]) + b"\n"


def one_status(statuses: Sequence[int], *, finds: bool) -> int:
    """Of a command that ran in pieces; negative where a signal ended it. `finds`: it is 0 where any input matches."""
    if len(statuses) == 1:
        return statuses[0]
    signals = [one for one in statuses if one < 0]
    if signals:
        return signals[0]
    return min(statuses) if finds and max(statuses) < 2 else max(statuses)


# --- the input ---


class Feeds:
    """Files one after another, as one text; of the first ones their sizes of now, of the last one all that is there."""

    def __init__(self, feeds: Sequence[Sequence[Any]]) -> None:
        self.files: list[tuple[bytes, int, int]] = []
        self.complete = True  # all are files that can be read
        for name, offset in feeds:
            path = raw(name)
            if os.path.isfile(path) and os.access(path, os.R_OK):
                self.files.append((path, offset, max(0, os.stat(path).st_size - offset)))
            else:
                self.complete = False
        self.size = sum(size for _, _, size in self.files)

    def spans(self, begin: int, end: int | None) -> Iterator[tuple[bytes, int, int | None]]:
        """Parts of files: where they begin, and how long they are."""
        at = 0
        for number, (name, offset, size) in enumerate(self.files):
            last = end is None and number == len(self.files) - 1
            first, after = max(begin, at), at + size if end is None else min(end, at + size)
            if first < after or last:
                yield name, offset + max(0, first - at), None if last else after - first
            at += size

    def read(self, begin: int, end: int | None) -> Iterator[bytes]:
        for name, offset, length in self.spans(begin, end):
            with open(name, "rb") as file:
                file.seek(offset)
                while length is None or length > 0:
                    data = file.read(READ_BYTES if length is None else min(READ_BYTES, length))
                    if not data:
                        break
                    length = None if length is None else length - len(data)
                    yield data

    def after_line(self, at: int) -> int | None:
        """The first place from `at` on where a line begins."""
        place = at - 1
        for data in self.read(at - 1, min(self.size, at + LONGEST_LINE)):
            found = data.find(b"\n")
            if found >= 0:
                return place + found + 1
            place += len(data)
        return None

    def cut(self, seconds: float, cores: int, *, looked_through: bool = False) -> list[tuple[int, int | None]]:
        """Pieces of whole lines, where that saves time; else the whole. `seconds`: of work for each byte.
        `looked_through`: each core first sees whether its piece is text."""
        count = min(cores, self.size // LEAST_BYTES)
        own = FEED_S + (LOOK_S if looked_through else 0.0)
        if not self.complete or count < 2 or self.size * (seconds * (1 - 1 / count) - own / count) < WORTH_S:
            return [(0, None)]
        places = {0}
        for number in range(1, count):
            found = self.after_line(number * self.size // count)
            if found is not None and found < self.size:
                places.add(found)
        begins = sorted(places)
        return list(zip(begins, [*begins[1:], None]))  # noqa: B905

    def is_text(self, part: tuple[int, int | None], kind: str) -> bool:
        """Without a NUL, and of whole characters where `kind` is utf-8: what `grep` does not take for binary."""
        decoder = codecs.getincrementaldecoder("utf-8")()
        for data in self.read(*part):
            if b"\0" in data:
                return False
            if kind == "utf-8" and (not data.isascii() or decoder.getstate()[0]):
                try:
                    decoder.decode(data)
                except UnicodeDecodeError:
                    return False
        return not decoder.getstate()[0]

    def send(self, part: tuple[int, int | None], target: int) -> None:
        for name, offset, length in self.spans(*part):
            with open(name, "rb") as file:
                while length is None or length > 0:
                    count = READ_BYTES if length is None else min(READ_BYTES, length)
                    done = os.sendfile(target, file.fileno(), offset, count)
                    if not done:
                        break
                    offset += done
                    length = None if length is None else length - done


# --- a trial ---


def try_out(stages: Stages, feeds: Feeds, report: int, limit: Limit) -> int:
    """Each command on what the one before it wrote, from the first TRIED_BYTES of the input on. Tells the bytes of the
    input and of each output, as far as commands came in time."""
    given = os.memfd_create("input")
    begin = next(feeds.read(0, TRIED_BYTES), b"")
    write_all(given, begin[: begin.rfind(b"\n") + 1] or begin)
    counts = [os.lseek(given, 0, os.SEEK_CUR)]

    def limited() -> None:
        limit()
        resource.setrlimit(resource.RLIMIT_FSIZE, (MOST_TRIED, MOST_TRIED))

    null = os.open(os.devnull, os.O_RDWR)
    os.umask(stages[0]["umask"])
    for one in stages:
        made = os.memfd_create("output")
        os.lseek(given, 0, os.SEEK_SET)
        process = spawn(one, one["argv"], (given, made, null), limited)
        try:
            process.wait(TRIED_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            break
        counts.append(os.fstat(made).st_size)
        given = made
    write_all(report, json.dumps({"bytes": counts}).encode() + b"\n")
    return 0


# --- processes ---


def fork(work: Callable[[], int], kept: Collection[int]) -> int:
    """A copy of this process that does `work`, with these descriptors alone, and ends with what it returns."""
    pid = os.fork()
    if pid:
        return pid
    status = 70
    try:
        os.setpgid(0, 0)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        close_all([int(one) for one in os.listdir("/proc/self/fd") if int(one) > 2 and int(one) not in kept])
        status = work()
    finally:
        os._exit(status)


def wait(pid: int) -> tuple[int, float]:
    """Its status, negative for a signal, and its seconds of work."""
    _, status, usage = os.wait4(pid, 0)
    code = -os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status)
    return code, usage.ru_utime + usage.ru_stime


def write_all(target: int, data: bytes | bytearray) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def in_order(sources: Sequence[int], target: int) -> None:
    """What comes from the sources, one after another. Later ones are read ahead, as far as there is room."""
    waiting = [bytearray() for _ in sources]
    ended = [False] * len(sources)
    room, current = AHEAD_BYTES // len(sources), 0
    while current < len(sources):
        if waiting[current]:
            write_all(target, waiting[current])
            waiting[current].clear()
        if ended[current]:
            current += 1
            continue
        poll = select.poll()
        wanted = {
            fd: at for at, fd in enumerate(sources)
            if not ended[at] and (at == current or len(waiting[at]) < room)
        }  # fmt: skip
        for fd in wanted:
            poll.register(fd, select.POLLIN)
        for fd, _ in poll.poll():
            at = wanted[fd]
            data = os.read(fd, READ_BYTES)
            ended[at] = not data
            if at == current:
                write_all(target, data)
            else:
                waiting[at] += data


class Conductor:
    """`told` says what the client wants: `last` (the last of `stages` that works in pieces), `join` (how its outputs
    become one), `words` (the arguments of each without its inputs), `copies` (the first only passes its input on),
    `finds` of each, and `text`, what the input must be."""

    def __init__(
        self, stages: Stages, told: dict[str, Any], feeds: Feeds, stdio: Sequence[int], report: int, limit: Limit | None
    ) -> None:
        self.stages, self.told, self.feeds = stages, told, feeds
        self.stdio, self.report, self.limit = stdio, report, limit
        self.errors: list[list[int]] = [[] for _ in stages]
        self.pids: list[list[int]] = [[] for _ in stages]
        self.joiner: int | None = None

    def tell(self, value: Any) -> None:
        write_all(self.report, json.dumps(value).encode() + b"\n")

    def run(self, parts: Sequence[tuple[int, int | None]]) -> int:
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        if self.told["text"] and not self.is_text(parts):
            if self.told["must"]:
                self.tell({"refused": "its files are no text, and pieces of them alone would be taken for binary"})
                return 0
            parts = parts[:1]
        self.tell({"began": True})
        os.umask(self.stages[0]["umask"])
        helpers = self.whole() if len(parts) == 1 else self.pieces(parts)
        for one in helpers:
            wait(one)
        self.settle()
        return 0

    def is_text(self, parts: Sequence[tuple[int, int | None]]) -> bool:
        kind = self.told["text"]
        found = [fork(functools.partial(self.checked, part, kind), ()) for part in parts]
        statuses = [wait(one)[0] for one in found]
        return not any(statuses)

    def checked(self, part: tuple[int, int | None], kind: str) -> int:
        return 0 if self.feeds.is_text(part, kind) else 1

    def whole(self) -> list[int]:
        """As they came, without pieces."""
        for at, one in enumerate(self.stages):
            stdio = self.stdio[3 * at : 3 * at + 3]
            process = spawn(one, one["argv"], stdio, self.limit)
            process.returncode = 0  # `settle` sees its end
            self.pids[at].append(process.pid)
        close_all([fd for at in range(len(self.stages)) for fd in self.stdio[3 * at : 3 * at + 2]])
        return []

    def pieces(self, parts: Sequence[tuple[int, int | None]]) -> list[int]:
        helpers, ends = [], []
        target = self.stdio[3 * len(self.stages) - 2]
        close_all([fd for at in range(len(self.stages)) for fd in self.stdio[3 * at : 3 * at + 2] if fd != target])
        for part in parts:
            source, writer = os.pipe()
            reader = fork(functools.partial(self.feed, part, writer), (writer,))
            os.close(writer)
            if self.told["copies"]:
                self.pids[0].append(reader)
            else:
                helpers.append(reader)
            for at in range(1 if self.told["copies"] else 0, len(self.stages)):
                following, out = os.pipe()
                self.pids[at].append(self.start(at, self.told["words"][at], source, out))
                close_all((source, out))
                source = following
            ends.append(source)
        self.join(ends, target)
        close_all((*ends, target))
        return helpers

    def feed(self, part: tuple[int, int | None], target: int) -> int:
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        self.feeds.send(part, target)
        return 0

    def start(self, at: int, words: Sequence[str], stdin: int, stdout: int, **more: Any) -> int:
        said = os.memfd_create("errors")
        self.errors[at].append(said)
        process = spawn(self.stages[at], words, (stdin, stdout, said), self.limit, **more)
        process.returncode = 0
        return process.pid

    def join(self, ends: Sequence[int], target: int) -> None:
        way, last = self.told["join"], len(self.stages) - 1
        with contextlib.suppress(BrokenPipeError):
            if way == "sum":
                found = []
                for one in ends:
                    with open(one, "rb", closefd=False) as file:
                        found.append(file.read(READ_BYTES))
                write_all(target, added(found))
            elif way == "merge":
                words = joining_command(way, self.told["words"][last], (), ends)
                self.joiner = self.start(last, words, subprocess.DEVNULL, target, pass_fds=ends)
            elif way == "again":
                reader, writer = os.pipe()
                self.joiner = self.start(last, self.told["words"][last], reader, target)
                os.close(reader)
                try:
                    in_order(ends, writer)
                finally:
                    os.close(writer)
            else:
                in_order(ends, target)

    def settle(self) -> None:
        """What they said, each message once, and their statuses."""
        statuses, work = [], []
        for pids, finds in zip(self.pids, self.told["finds"]):  # noqa: B905
            ends = [wait(one) for one in pids]
            statuses.append(one_status([status for status, _ in ends], finds=finds))
            work.append(sum(seconds for _, seconds in ends))
        if self.joiner is not None:
            status, seconds = wait(self.joiner)
            statuses[-1] = status if self.told["join"] == "again" else statuses[-1] or status
            work[-1] += seconds
        for at, said in enumerate(self.errors):
            texts = dict.fromkeys(os.pread(one, READ_BYTES, 0) for one in said)
            with contextlib.suppress(OSError):
                write_all(self.stdio[3 * at + 2], b"".join(texts))
        self.tell({"statuses": statuses, "cpu_s": work})
