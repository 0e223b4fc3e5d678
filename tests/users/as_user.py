"""Acting as another user of the machine, from a test that runs as root."""

from __future__ import annotations

import os
import pickle
import pwd
import tempfile
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def as_user(name: str, act: Callable[[], T]) -> T:
    """What `act` gives, or raises, in a process of this user. What it imports must be imported already."""
    found = pwd.getpwnam(name)
    with tempfile.TemporaryFile() as told:
        pid = os.fork()
        if pid == 0:
            try:
                os.initgroups(found.pw_name, found.pw_gid)
                os.setresgid(found.pw_gid, found.pw_gid, found.pw_gid)
                os.setresuid(found.pw_uid, found.pw_uid, found.pw_uid)
                try:
                    value: object = (True, act())
                except Exception as error:
                    value = (False, error)
                os.write(told.fileno(), pickle.dumps(value))
            finally:
                os._exit(0)
        os.waitpid(pid, 0)
        told.seek(0)
        good, answer = pickle.loads(told.read())
    if good:
        return answer
    raise answer
