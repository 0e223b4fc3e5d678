"""Accounts of the machine's users, as the system has them: by its own databases, LDAP or whatever else it is set up
for.

The system is asked in threads of this component, and for a limited time: a directory that does not answer holds up
nobody but those whom it is asked about.
"""

from __future__ import annotations

import asyncio
import grp
import os
import pwd
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from shoal.core import Clock, Unavailable

FRESH_S = 30.0
"""How old an answer of the system may be for a caller: one who leaves a group keeps it for this time."""
KNOWN_S = 300.0
"""How old it may be for a job that starts: its submitter called not long ago, mostly."""
_THREADS = 2
_MOST_KNOWN = 10_000

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SystemUser:
    """A user, with the numbers of all groups (`gid` the first) and their names."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    group_names: frozenset[str]
    home: Path
    shell: str


class System(Protocol):
    """Blocks, perhaps for long."""

    def user(self, who: int | str) -> SystemUser | None:
        """By number or by name; None where there is none."""
        ...

    def has_group(self, name: str) -> bool: ...


class ThisSystem:
    """The machine's own databases, through the C library and so through the switch of name services."""

    def user(self, who: int | str) -> SystemUser | None:
        try:
            found = pwd.getpwuid(who) if isinstance(who, int) else pwd.getpwnam(who)
        except KeyError:
            return None
        groups = tuple(sorted(set(os.getgrouplist(found.pw_name, found.pw_gid))))
        names = frozenset(name for gid in groups if (name := _group_name(gid)) is not None)
        shell = found.pw_shell or "/bin/sh"
        return SystemUser(found.pw_name, found.pw_uid, found.pw_gid, groups, names, Path(found.pw_dir or "/"), shell)

    def has_group(self, name: str) -> bool:
        try:
            grp.getgrnam(name)
        except KeyError:
            return False
        return True


def _group_name(gid: int) -> str | None:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return None


class Accounts:
    """What the system said lately."""

    def __init__(self, clock: Clock, system: System | None = None, *, answer_s: float = 10.0) -> None:
        """`answer_s` is how long the system may take to answer."""
        self._clock = clock
        self._answer_s = answer_s
        self._system: System = system or ThisSystem()
        self._known: dict[int, tuple[float, SystemUser | None]] = {}
        self._asked: dict[int, asyncio.Future[SystemUser | None]] = {}
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="accounts")

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def user(self, uid: int) -> SystemUser | None:
        """As the system has this user now, or had a moment ago. Raises Unavailable where it does not answer."""
        at, found = self._known.get(uid, (float("-inf"), None))
        if self._clock.monotonic() - at < FRESH_S:
            return found
        return await self._answer(self._ask(uid), f"who the user {uid} is")

    async def named(self, name: str) -> SystemUser | None:
        """The same by name, asked anew."""
        return await self._answer(self._run(lambda: self._system.user(name)), f"who the user {name} is")

    async def has_group(self, name: str) -> bool:
        return await self._answer(self._run(lambda: self._system.has_group(name)), f"whether there is a group {name}")

    def known(self, uid: int) -> SystemUser | None:
        """What the system said lately; it is asked, and this raises Unavailable, where that is too long ago."""
        at, found = self._known.get(uid, (float("-inf"), None))
        if self._clock.monotonic() - at < KNOWN_S:
            return found
        self._ask(uid)
        raise Unavailable(f"the system is being asked who the user {uid} is", hint="this is tried again by itself")

    def _ask(self, uid: int) -> asyncio.Future[SystemUser | None]:
        asked = self._asked.get(uid)
        if asked is None:
            asked = self._asked[uid] = self._run(lambda: self._system.user(uid))
            asked.add_done_callback(lambda future: self._answered(uid, future))
        return asked

    def _answered(self, uid: int, future: asyncio.Future[SystemUser | None]) -> None:
        self._asked.pop(uid, None)
        if not future.cancelled() and future.exception() is None:
            while len(self._known) >= _MOST_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known.pop(uid, None)
            self._known[uid] = (self._clock.monotonic(), future.result())

    def _run(self, function: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function)

    async def _answer(self, asked: asyncio.Future[T], what: str) -> T:
        """Others may wait for the same answer: it is not given up with this one."""
        done, _ = await asyncio.wait({asked}, timeout=self._answer_s)
        if not done:
            raise Unavailable(f"the system does not say {what}", hint="does `getent passwd` answer there?")
        return asked.result()
