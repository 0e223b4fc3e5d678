"""What runtimes keep beyond the end of their process: small files in the gateway's folder.

There is a file for each replica and model of a deployment, `kept/DEPLOYMENT/HASH`. It is replaced whole, so that it
outlives a `kill -9` of the replica and of the gateway (not a power cut). A new generation of a service has another
deployment, and so begins without any.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from shoal.base.files import write_whole
from shoal.inference.runtime import MOST_KEPT_BYTES

log = logging.getLogger("shoal.serve")


class KeptStates:
    """`folder` None keeps nothing on disk: then it is forgotten with this process."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._known: dict[tuple[str, str, str], bytes] = {}

    def put(self, deployment: str, replica: str, key: str, kept: bytes) -> None:
        """Nothing happens if it is the same as before."""
        at = (deployment, key, replica)
        if self._known.get(at) == kept:
            return
        self._known[at] = kept
        if self._folder is None:
            return
        path = self._path(*at)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(path, kept, durable=False)
        except OSError as error:
            log.error("what %s keeps cannot be written: %s", key, error)

    def get(self, deployment: str, replica: str, key: str) -> bytes | None:
        """What the replica of this name kept of the model; of a name that is new, nothing."""
        at = (deployment, key, replica)
        found = self._known.get(at)
        if found is None and self._folder is not None:
            try:
                with self._path(*at).open("rb") as file:
                    found = file.read(MOST_KEPT_BYTES)
            except OSError:
                return None
            self._known[at] = found
        return found

    def follow(self, deployments: Collection[str]) -> None:
        """Forget those of all other deployments."""
        self._known = {at: kept for at, kept in self._known.items() if at[0] in deployments}
        if self._folder is not None and self._folder.is_dir():
            names = {_name(deployment) for deployment in deployments}
            for old in self._folder.iterdir():
                if old.name not in names:
                    with suppress(OSError):
                        for file in old.iterdir():
                            file.unlink()
                        old.rmdir()

    def _path(self, deployment: str, key: str, replica: str) -> Path:
        assert self._folder is not None
        return self._folder / _name(deployment) / _name(f"{key}\0{replica}")


def _name(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
