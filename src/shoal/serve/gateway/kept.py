"""State that runtimes keep beyond the end of their process: small files in the gateway's folder.

There is a file for each replica and model of a deployment, `kept/DEPLOYMENT/HASH`. It is replaced whole, so that it
outlives a `kill -9` of the replica and of the gateway (not a power cut). A new generation of a service has another
deployment, and so begins without any. What was kept in a state that is lasting has a second file, by tenant, model and
version alone, `kept/lasting/TENANT/HASH`. It is for replicas that have none of their own, and outlives an undeployment.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from shoal.base.files import write_whole
from shoal.inference.runtime import MOST_KEPT_BYTES

log = logging.getLogger("shoal.serve")

K = TypeVar("K")

LASTING = "lasting"
MOST_LASTING = 256
"""Of a tenant. Of more models the states that were written longest ago are forgotten."""


class KeptStates:
    """`folder` None keeps nothing on disk: then it is forgotten with this process."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[tuple[str, str, str], bytes] = {}
        self._lasting: dict[str, dict[str, bytes]] = {}
        """By tenant and key, the newest last."""

    def put(self, deployment: str, replica: str, key: str, kept: bytes, *, lasting: bool = False) -> None:
        """`key`: tenant/model/version. Nothing is written if it is the same as before."""
        at = (deployment, key, replica)
        if lasting:
            self._put_lasting(key, kept)
        if self._known.get(at) != kept:
            self._known[at] = kept
            self._write(self._path(*at), key, kept)

    def get(self, deployment: str, replica: str, key: str) -> bytes | None:
        """What the replica of this name kept of the model; of a name that is new, what lasts."""
        at = (deployment, key, replica)
        own = _read(self._known, at, self._path(*at))
        return self._read_lasting(key) if own is None else own

    def _put_lasting(self, key: str, kept: bytes) -> None:
        if self._read_lasting(key) == kept:
            return
        known = self._lasting[_tenant(key)]
        known.pop(key, None)
        known[key] = kept
        if len(known) > MOST_LASTING:
            del known[next(iter(known))]
        path = self._lasting_path(key)
        self._write(path, key, kept)
        if path is not None:
            with suppress(OSError):
                files = sorted(path.parent.iterdir(), key=lambda one: one.stat().st_mtime_ns)
                for old in files[:-MOST_LASTING]:
                    old.unlink()

    def _read_lasting(self, key: str) -> bytes | None:
        return _read(self._lasting.setdefault(_tenant(key), {}), key, self._lasting_path(key))

    def _write(self, path: Path | None, key: str, kept: bytes) -> None:
        if path is None:
            return
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, kept, durable=False)
        except OSError as error:
            log.error("what %s keeps cannot be written: %s", key, error)

    def follow(self, deployments: Collection[str]) -> None:
        """Forget those of all other deployments; what lasts stays."""
        self._known = {at: kept for at, kept in self._known.items() if at[0] in deployments}
        if self._folder is not None and self._folder.is_dir():
            names = {LASTING, *map(_name, deployments)}
            for old in self._folder.iterdir():
                if old.name not in names:
                    with suppress(OSError):
                        for file in old.iterdir():
                            file.unlink()
                        old.rmdir()

    def _path(self, deployment: str, key: str, replica: str) -> Path | None:
        return None if self._folder is None else self._folder / _name(deployment) / _name(f"{key}\0{replica}")

    def _lasting_path(self, key: str) -> Path | None:
        return None if self._folder is None else self._folder / LASTING / _name(_tenant(key)) / _name(key)


def _read(known: dict[K, bytes], at: K, path: Path | None) -> bytes | None:
    """What is known there; else what the file holds, which is known from then on."""
    if at not in known and path is not None:
        with suppress(OSError), path.open("rb") as file:
            known[at] = file.read(MOST_KEPT_BYTES)
    return known.get(at)


def _tenant(key: str) -> str:
    return key.partition("/")[0]


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
