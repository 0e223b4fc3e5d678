"""Reaching into a running rank: a process beside its own, a socket of its directory, a port that it listens on."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import marshal
import os
import re
import signal
import socket
import stat
import struct
import threading
from collections.abc import Iterable
from pathlib import Path

from shoal.base.files import write_whole
from shoal.base.processes import Process, send, start_ticks
from shoal.core import Conflict, Invalid, NotFound, Unavailable
from shoal.engine.local import ports
from shoal.engine.local.beside import FAILED
from shoal.engine.local.gangs import LocalGang, Rank
from shoal.engine.local.registry import Registry
from shoal.engine.local.supervisor import descendants_by_parent, open_file
from shoal.engine.protocol import Beside, Phase

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_CLONE_NEWNET = 0x4000_0000
_CONNECT_S = 5.0
_MOST_ANCESTORS = 10_000


class Entering:
    """A part of the local engine; see `shoal.engine.protocol.Enterable`."""

    _registry: Registry

    async def start_beside(self, name: str, rank: int, process: Beside) -> None:
        if not _NAME.fullmatch(process.name):
            raise Invalid(f"{process.name!r} is no name for a process", where=name)
        gang, _, supervisor, _ = self._running(name, rank)
        folder = gang.dir.path / f"beside-{rank}"
        folder.mkdir(mode=0o700, exist_ok=True)
        words = [*process.argv, *process.command]
        request = marshal.dumps({"argv": words, "enter_at": len(process.argv), "env": dict(process.env)})
        write_whole(folder / process.name, request, durable=False)
        if not send(supervisor, signal.SIGUSR1):
            raise _over(name, rank)

    async def why_not_beside(self, name: str, rank: int, process: str) -> str:
        gang, *_ = self._running(name, rank)
        with contextlib.suppress(OSError):
            fd = open_file(f"{gang.dir.path}/beside-{rank}/{process}{FAILED}", os.O_RDONLY)
            try:
                return _in_words(os.read(fd, 4096).decode(errors="replace"))
            finally:
                os.close(fd)
        return ""

    async def reach_socket(self, name: str, rank: int, file: str) -> socket.socket:
        gang, _, supervisor, _ = self._running(name, rank)
        made = _connect_beneath(gang.dir.rank_dir(rank), file, f"{name}: rank {rank}")
        pid, _, _ = struct.unpack("3i", made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if not _is_below(pid, supervisor):
            made.close()
            raise Conflict(f"{file} is not listened on by a process of the job", where=f"{name}: rank {rank}")
        return made

    async def reach_port(self, name: str, rank: int, port: int) -> socket.socket:
        _, _, supervisor, main = self._running(name, rank)
        return await asyncio.to_thread(_reach_port, supervisor, main, port, f"{name}: rank {rank}")

    def _running(self, name: str, rank: int) -> tuple[LocalGang, Rank, Process, Process]:
        """The gang, its rank, the supervisor and the main process. Raises NotFound."""
        gang = self._registry.gangs.get(name)
        if gang is None or not 0 <= rank < len(gang.ranks):
            raise NotFound(f"there is no rank {rank} of {name}", where=name)
        found = gang.ranks[rank]
        if found.ended or found.supervisor is None or found.status.phase is not Phase.RUNNING:
            raise _over(name, rank)
        return gang, found, found.supervisor, Process(int(found.record["pid"]), int(found.record["start"]))


def _over(name: str, rank: int) -> NotFound:
    return NotFound("its processes do not run now", where=f"{name}: rank {rank}")


def _in_words(failed: str) -> str:
    step, _, text = failed.partition("\n")
    if not step:
        return ""
    return text.partition(" ")[2] if step == "command" else f"it could not be set up ({step}): {text}"


def _connect_beneath(folder: Path, file: str, where: str) -> socket.socket:
    """Connect to the Unix socket of this name in a directory that others may write to, without following a link and
    without waiting. Raises NotFound where there is none, and Unavailable where it takes no one."""
    if "/" in file or file in (".", ".."):
        raise Invalid(f"{file!r} is no name of a file", where=where)
    at = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        held = os.open(file, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=at)
    except OSError:
        raise NotFound(f"there is no socket {file}", where=where) from None
    finally:
        os.close(at)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        if not stat.S_ISSOCK(os.fstat(held).st_mode):
            raise NotFound(f"{file} is no socket", where=where)
        made.connect(f"/proc/self/fd/{held}")
    except ConnectionRefusedError:
        made.close()
        raise NotFound(f"nothing listens on {file}", where=where) from None
    except OSError as error:
        made.close()
        raise Unavailable(f"{file} takes no one now: {error.strerror}", where=where) from None
    except NotFound:
        made.close()
        raise
    finally:
        os.close(held)
    return made


def _is_below(pid: int, supervisor: Process) -> bool:
    """Whether a living process descends from the supervisor, which is the subreaper of all that its rank started."""
    for _ in range(_MOST_ANCESTORS):
        if pid == supervisor.pid:
            return start_ticks(pid) == supervisor.start
        if pid <= 1:
            return False
        try:
            text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        except OSError:
            return False
        pid = int(text.rpartition(")")[2].split()[1])
    return False


def _reach_port(supervisor: Process, main: Process, port: int, where: str) -> socket.socket:
    """A connection to what the rank listens on at this port of its loopback. In a network of its own all that listens
    is the rank's; in the machine's, each listener must be proved to be, before and after."""
    own = _network_of(main)
    if own is None:
        raise NotFound("its processes do not run now", where=where)
    try:
        if os.fstat(own).st_ino != Path("/proc/self/ns/net").stat().st_ino:
            return _connect(["127.0.0.1", "::1"], port, where, own)
    finally:
        os.close(own)
    found = ports.listening(port)
    pids = [supervisor.pid, *descendants_by_parent(supervisor.pid)]
    addresses = _owned(found, pids)
    if not addresses:
        raise _nobody(port, where, others=bool(found))
    made = _connect(addresses, port, where, None)
    if not _owned(ports.listening(port), [supervisor.pid, *descendants_by_parent(supervisor.pid)]):
        made.close()
        raise _nobody(port, where, others=True)
    return made


def _owned(found: Iterable[ports.Listener], pids: Iterable[int]) -> list[str]:
    """The loopback addresses at which only these processes listen."""
    found = list(found)
    mine = ports.sockets_of(pids) if found else frozenset()
    by_address: dict[str, bool] = {}
    for one in found:
        for address in one.loopback:
            by_address[address] = by_address.get(address, True) and one.inode in mine
    return [address for address, all_mine in sorted(by_address.items()) if all_mine]


def _nobody(port: int, where: str, *, others: bool) -> NotFound:
    what = f"no process of the job listens on port {port}"
    hint = "another one does: a job's own ports alone are forwarded" if others else "on 127.0.0.1, 0.0.0.0 or ::"
    return NotFound(what, where=where, hint=hint)


def _network_of(process: Process) -> int | None:
    """A descriptor of the process's network namespace; None where it has ended."""
    try:
        fd = os.open(f"/proc/{process.pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if start_ticks(process.pid) != process.start:
        os.close(fd)
        return None
    return fd


def _connect(addresses: list[str], port: int, where: str, network: int | None) -> socket.socket:
    """Connect to the first address that answers; in another network by a thread of its own, which enters it."""
    made: list[socket.socket] = []
    problems: list[OSError] = []

    def work() -> None:
        try:
            if network is not None and ctypes.CDLL(None, use_errno=True).setns(network, _CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), "its network cannot be entered")
        except OSError as error:
            problems.append(error)
            return
        for address in addresses:
            try:
                made.append(socket.create_connection((address, port), timeout=_CONNECT_S))
            except OSError as error:
                problems.append(error)
            else:
                return

    if network is None:
        work()
    else:
        thread = threading.Thread(target=work, name="reach-port", daemon=True)
        thread.start()
        thread.join()
    if not made:
        if problems and not isinstance(problems[-1], ConnectionRefusedError):
            raise Unavailable(f"port {port} takes no connection: {problems[-1]}", where=where)
        raise _nobody(port, where, others=False)
    return made[0]
