"""Places of environments: in a folder for each tenant, which belongs to the user that its jobs run as. Pure.

A process with a tenant's rights may put anything in the place of anything below that folder. So the server shows
jobs the folder as a whole, and nothing by a path that leads through it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from shoal.core import Sandbox

_OWN = "server"


@dataclass(frozen=True, slots=True)
class Place:
    """One environment: a directory `KIND/KEY` of a tenant's folder."""

    folder: Path
    kind: str
    key: str

    @property
    def path(self) -> Path:
        return self.folder / self.kind / self.key


def folder_of(home: Path, tenant: str, sandbox: Sandbox) -> Path:
    """Of a tenant. What was made with the server's own rights is kept apart from what the tenant's user made, to whom
    it would be of no use."""
    name = tenant if sandbox is not Sandbox.NONE else f"{tenant}.{_OWN}"  # no tenant's name has a dot
    return home / name
