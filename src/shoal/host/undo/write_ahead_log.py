"""The write-ahead log: what a guard changed on its host, on disk before it is changed.

JSON lines: a head (which boot and guard they belong to), then changes with the scope they belong to, and the scopes
that were taken back. Written to the file, not synced: what it undoes does not outlive a crash of the machine either.
A line that was torn by a crash belongs to a change that was never made.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from shoal.base.locks import lock_file
from shoal.core import Conflict
from shoal.host.linux import cpus
from shoal.host.linux.fs import LINUX, Kernel, runs
from shoal.host.undo import changes
from shoal.host.undo.changes import AffinityChange, Bits, Change, Directory, Stopped, Write

_COMPACT_LINES = 2000
_PASSES = 5
_BUSY_S = 0.02
"""A group whose last process just left cannot be removed at once."""


class WriteAheadLog:
    """One guard's log, open. Every change of the host goes through it: it notes, then does.

    Changes may be asked for again and again: what stands is read, and left if it is right. What others have
    changed since is set again, told by `take_repairs`, and comes back in the end as he left it.

    A `scope` (`GROUP/MECHANISM`) names changes that are taken back together. Opening takes the log's lock (Conflict
    when another guard has it) and takes back what an earlier guard left; `left` says what could not be, and why.
    """

    def __init__(
        self,
        path: Path,
        *,
        kernel: Kernel = LINUX,
        wait_s: float = 3.0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.path = path
        self.epoch = uuid.uuid4().hex
        self._kernel = kernel
        self._sleep = sleep
        self._changes: dict[str, tuple[str, Change]] = {}
        self._repairs: list[str] = []
        path.parent.mkdir(parents=True, exist_ok=True)
        self._lock = lock_file(_lock_of(path), wait_s=wait_s, sleep=sleep)
        if self._lock is None:
            raise Conflict(
                "another guard holds the write-ahead log", where=str(path), hint="stop it, or give another log"
            )
        self.left = play_back(path, kernel=kernel, sleep=sleep)
        self._file = -1
        self._lines = 0
        self._rewrite()

    # --- changes ---

    def write(self, scope: str, path: str, text: str) -> None:
        """Have a file say this. When that is refused, nothing is noted."""
        key, now = f"write {path}", self._kernel.read(path).strip()
        if changes.says(path, now) == changes.says(path, text):
            return
        after = known.after if isinstance(known := self._noted(key), Write) else None
        if after is not None and changes.says(path, now) != changes.says(path, after):
            self._repaired(scope, f"{path} said {now!r} instead of {after!r}: set again")
            del self._changes[key]
        before = self._changes.get(key)
        self._note(scope, Write(path, now, text))  # of a known one the first state counts
        try:
            self._kernel.write(path, text)
        except OSError:
            if before is None:
                self._forget([key])
            else:
                self._changes[key] = before
            raise

    def make(self, scope: str, directory: str) -> None:
        """Make a cgroup or a resctrl group. When that fails, nothing is noted."""
        if f"directory {directory}" in self._changes:
            self._repaired(scope, f"{directory} was removed: made again")
            self._forget([f"directory {directory}"])
        self._note(scope, Directory(directory))
        try:
            self._kernel.mkdir(directory)
        except OSError:
            self._forget([f"directory {directory}"])
            raise

    def set_bits(self, scope: str, path: str, register: int, mask: int, value: int) -> None:
        """Set the masked bits of a model-specific register."""
        (now,) = struct.unpack("<Q", self._kernel.pread(path, 8, register))
        if now & mask == value & mask:
            return
        known = self._noted(f"bits {path} {register}")
        if isinstance(known, Bits) and now & mask != known.after:
            self._repaired(scope, f"{path}, register {register:#x}, was changed: set again")
        self._note(scope, Bits(path, register, mask, now & mask, value & mask))
        self._kernel.pwrite(path, struct.pack("<Q", now & ~mask | value & mask), register)

    def set_affinity(
        self, scope: str, pid: int, start: int, tid: int, wanted: frozenset[int], *, born: frozenset[int] | None = None
    ) -> None:
        """Bind a thread to CPUs. `born` is what it would have had, if it was born bound by us."""
        now = self._kernel.affinity(tid)
        key = f"affinity {pid} {start} {tid}"
        bound = cpus.parse(known.after) if isinstance(known := self._noted(key), AffinityChange) else None
        if bound is not None and not now <= bound:  # a program may bind itself more tightly
            ran, told = cpus.render(now), cpus.render(bound)
            self._repaired(scope, f"thread {tid} was let run on CPUs {ran} instead of {told}: bound again")
            del self._changes[key]
            bound = None
        before = now if born is None else born
        if bound == wanted or before == now == wanted:
            return
        self._note(scope, AffinityChange(pid, start, tid, cpus.render(before), cpus.render(wanted)))
        self._kernel.set_affinity(tid, wanted)

    def stop(self, scope: str, pid: int, start: int, signum: int) -> None:
        """Stop a process by a signal that SIGCONT takes back."""
        if f"stopped {pid} {start}" in self._changes:
            if not runs(self._kernel, pid):
                return
            self._repaired(scope, f"process {pid} was let go: stopped again")
        self._note(scope, Stopped(pid, start))
        self._kernel.signal(pid, start, signum)

    # --- what stands ---

    def take_repairs(self) -> tuple[str, ...]:
        """What others had changed, and was set again, since the last call."""
        repairs, self._repairs = self._repairs, []
        return tuple(repairs)

    def repaired(self, group: str, what: str) -> None:
        self._repairs.append(f"{group}: {what}")

    def in_use(self, scope: str) -> bool:
        """Whether a file is noted that lies in a directory of this scope."""
        made = tuple(
            f"write {change.path}/" for of, change in self._changes.values()
            if of == scope and isinstance(change, Directory)
        )  # fmt: skip
        return bool(made) and any(key.startswith(made) for key in self._changes)

    # --- taking back ---

    def before(self, path: str) -> str | None:
        """What a file said before it was first written; None when it was not."""
        known = self._changes.get(f"write {path}")
        return known[1].before if known is not None and isinstance(known[1], Write) else None

    def revert(self, scope: str | None = None) -> tuple[str, ...]:
        """Take back a scope's changes; all without one. Returns what could not be taken back, in sentences; it stays in
        the log when it may succeed later."""
        noted = {key: change for key, (of, change) in self._changes.items() if scope in (None, of)}
        done, problems = _revert_all(self._kernel, noted, self._sleep)
        self._forget(done)
        return problems

    def close(self) -> tuple[str, ...]:
        """Take back everything, and let go of the log."""
        problems = self.revert()
        self.abandon()
        return problems

    def abandon(self) -> None:
        """Let go of the log and take nothing back, as a crash does."""
        for fd in (self._file, self._lock):
            if fd is not None and fd >= 0:
                os.close(fd)
        self._file, self._lock = -1, None

    def __len__(self) -> int:
        return len(self._changes)

    # --- the file ---

    def _note(self, scope: str, change: Change) -> None:
        known = self._changes.get(change.key)
        change = changes.later(known[1] if known is not None else None, change)
        self._append({"scope": scope, "change": changes.as_json(change)})
        self._changes[change.key] = (known[0] if known is not None else scope, change)

    def _noted(self, key: str) -> Change | None:
        known = self._changes.get(key)
        return None if known is None else known[1]

    def _repaired(self, scope: str, what: str) -> None:
        self.repaired(scope.partition("/")[0], what)

    def _forget(self, keys: list[str]) -> None:
        """With a directory go the files in it."""
        gone = tuple(f"write {key.removeprefix('directory ')}/" for key in keys if key.startswith("directory "))
        keys += [key for key in self._changes if gone and key.startswith(gone) and key not in keys]
        if keys:
            for key in keys:
                self._changes.pop(key, None)
            self._append({"done": keys})

    def _append(self, record: dict[str, object]) -> None:
        data = json.dumps(record).encode() + b"\n"
        if os.write(self._file, data) != len(data):
            raise OSError(28, "the write-ahead log cannot be written", str(self.path))
        self._lines += 1
        if self._lines > _COMPACT_LINES:
            self._rewrite()

    def _rewrite(self) -> None:
        draft = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        head = {"wal": 1, "boot": _boot(self._kernel), "epoch": self.epoch, "pid": os.getpid()}
        lines = [json.dumps(head)]
        lines += [
            json.dumps({"scope": scope, "change": changes.as_json(change)}) for scope, change in self._changes.values()
        ]
        draft.write_text("\n".join(lines) + "\n")
        draft.replace(self.path)
        if self._file >= 0:
            os.close(self._file)
        self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        self._lines = len(lines)


def play_back(
    path: Path, *, epoch: str | None = None, kernel: Kernel = LINUX, sleep: Callable[[float], None] = time.sleep
) -> tuple[str, ...]:
    """Take back what a dead guard's log holds, the last change first, and note that. May be repeated at any line.

    With `epoch` nothing is done to a log that another guard has begun since. Returns what could not be taken back.
    """
    head, noted = _load(path)
    if head is None or head.get("boot") != _boot(kernel) or (epoch is not None and head.get("epoch") != epoch):
        return ()
    done, problems = _revert_all(kernel, noted, sleep)
    if done:
        with contextlib.suppress(OSError), path.open("a") as file:
            file.write("\n" + json.dumps({"done": done}) + "\n")
    return problems


def _load(path: Path) -> tuple[dict[str, object] | None, dict[str, Change]]:
    head: dict[str, object] | None = None
    noted: dict[str, Change] = {}
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None, {}
    for line in lines:
        with contextlib.suppress(ValueError, KeyError, TypeError):  # torn
            record = json.loads(line)
            if "wal" in record:
                head = record
            elif "done" in record:
                for key in record["done"]:
                    noted.pop(key, None)
            else:
                change = changes.from_json(record["change"])
                noted[change.key] = change
    return head, noted


def _revert_all(
    kernel: Kernel, noted: dict[str, Change], sleep: Callable[[float], None]
) -> tuple[list[str], tuple[str, ...]]:
    """Keys that are done with, and sentences on what was left. What the kernel refuses is tried again after the rest,
    in both directions: a cpuset may need its parent's back first or its children's, a group its last process gone."""
    done: list[str] = []
    problems: dict[str, str] = {}
    pending = list(reversed(noted.values()))
    for attempt in range(_PASSES):
        refused = []
        for change in pending:
            try:
                if not change.revert(kernel):
                    problems[change.key] = f"{change.key}: left, since another process has changed it"
                else:
                    problems.pop(change.key, None)
                done.append(change.key)
            except OSError as problem:
                if problem.errno in changes.GONE:
                    problems.pop(change.key, None)
                    done.append(change.key)
                else:
                    problems[change.key] = f"{change.key}: {problem.strerror}"
                    refused.append(change)
        pending = refused[::-1]
        if not pending:
            break
        if attempt < _PASSES - 1:
            sleep(_BUSY_S)
    return done, tuple(problems.values())


def _boot(kernel: Kernel) -> str:
    try:
        return kernel.read("/proc/sys/kernel/random/boot_id").strip()
    except OSError:
        return ""


def _lock_of(path: Path) -> Path:
    """A dead guard's is free when its watchdog is done."""
    return path.with_name(f"{path.name}.lock")


@contextlib.contextmanager
def lock_if_free(path: Path, wait_s: float, sleep: Callable[[float], None] = time.sleep) -> Iterator[bool]:
    """Hold the log's lock if it is to be had in this time; says whether it is held."""
    fd = lock_file(_lock_of(path), wait_s=wait_s, sleep=sleep)
    try:
        yield fd is not None
    finally:
        if fd is not None:
            os.close(fd)
