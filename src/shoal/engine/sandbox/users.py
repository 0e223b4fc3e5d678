"""The user id of each tenant and of each division of a tenant: from a reserved range, the same for ever."""

from __future__ import annotations

import contextlib
import grp
import hashlib
import json
import os
import pwd
from pathlib import Path

from shoal.base.files import write_whole
from shoal.core import Invalid

FIRST_UID, UIDS = 0x7000_0000, 0x0F00_0000
"""The reserved range: no system allots from it (systemd's containers end below it). It is wide, so that the tenants of
two servers on one machine do not meet."""


class Users:
    """User ids by tenant and division, kept in a file of the engine's home. A user's group has the same number."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._path = home / "sandbox-users.json"
        self._known: dict[str, int] = {}

    def open(self) -> None:
        """Read what was allotted. Raises OSError, and Invalid for a damaged file: no id may be allotted twice."""
        with contextlib.suppress(FileNotFoundError):
            try:
                self._known = {str(name): int(uid) for name, uid in json.loads(self._path.read_bytes()).items()}
            except (ValueError, TypeError, AttributeError) as problem:
                what = "the list of the tenants' users is damaged"
                hint = "restore it from a backup: it says which user each tenant's files belong to"
                raise Invalid(what, where=str(self._path), hint=hint) from problem

    def uid(self, tenant: str, division: str = "") -> int:
        """The user id of the tenant, or of its division; the first time it is allotted, durably. Raises OSError."""
        name = f"{tenant}/{division}" if division else tenant  # no tenant's name has a slash
        known = self._known.get(name)
        if known is None:
            taken = set(self._known.values())
            known = _start(self._home, name)
            while known in taken or _in_use(known):
                known = FIRST_UID + (known - FIRST_UID + 1) % UIDS
            allotted = {**self._known, name: known}
            write_whole(self._path, json.dumps(allotted))
            self._known = allotted
        return known


def _start(home: Path, name: str) -> int:
    digest = hashlib.sha256(os.fsencode(home) + b"\0" + name.encode()).digest()
    return FIRST_UID + int.from_bytes(digest[:8]) % UIDS


def _in_use(number: int) -> bool:
    """Whether the machine has a user or a group of this number."""
    for find in (pwd.getpwuid, grp.getgrgid):
        try:
            find(number)
        except KeyError:
            continue
        return True
    return False
