"""A system with users of our choice."""

from __future__ import annotations

import threading
from pathlib import Path

from shoal.users.accounts import SystemUser


def person(name: str, uid: int, *groups: str) -> SystemUser:
    names = frozenset({name, *groups})
    return SystemUser(name, uid, uid, (uid, *range(50, 50 + len(groups))), names, Path("/home", name), "/bin/bash")


class FakeSystem:
    """`silent` users are not told of until the event is set, as by a directory that cannot be reached."""

    def __init__(self, *users: SystemUser) -> None:
        self.users = list(users)
        self.asked: list[int | str] = []
        self.silent: dict[int, threading.Event] = {}

    def user(self, who: int | str) -> SystemUser | None:
        self.asked.append(who)
        if isinstance(who, int) and who in self.silent:
            self.silent[who].wait(30)
        return next((one for one in self.users if who in (one.uid, one.name)), None)

    def has_group(self, name: str) -> bool:
        return any(name in one.group_names for one in self.users)
