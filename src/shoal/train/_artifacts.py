"""Asks the server to keep a file while the job runs: `FOLDER/KEY.json` asks, `FOLDER/KEY.answer` answers.

A file below the job's directory or its checkpoints is taken where it is; any other is copied into the job's directory
first, for the server sees nothing else of a job.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

from shoal.train._files import files, replace, sync

_LOOK_S = 0.01
_LOOK_SLOWEST_S = 0.25


class NotKept(RuntimeError):
    """The server keeps no such artifact; the text says why."""


def keep(
    path: Path, name: str | None, timeout_s: float, environ: Mapping[str, str],
    sleep: Callable[[float], None] = time.sleep, monotonic: Callable[[], float] = time.monotonic,
) -> dict[str, str]:  # fmt: skip
    """Names and digests of what is kept: the file, or all files of a directory."""
    if not path.exists():
        raise FileNotFoundError(2, "there is no such file or directory", str(path))
    if not path.is_file() and not path.is_dir():
        raise NotKept(f"{path}: it is no regular file")
    told = environ.get("SHOAL_ARTIFACTS")
    called = name or path.name
    if not told and environ.get("SHOAL_RUN"):
        raise NotKept("this server keeps no artifacts: `shoal status` says why")
    if not told:
        return _digests(path, called)
    sync(path)
    folder, key = Path(told), uuid.uuid4().hex
    folder.mkdir(mode=0o700, exist_ok=True)
    copied = folder / f"{key}.data"
    try:
        root, below = _where(path.resolve(), folder, environ.get("SHOAL_CHECKPOINT_DIR")) or _copied(path, copied)
        request, answer = folder / f"{key}.json", folder / f"{key}.answer"
        replace(request, json.dumps({"root": root, "path": below, "name": called}))
        give_up_at, pause = monotonic() + timeout_s, _LOOK_S
        while not answer.exists():
            if monotonic() >= give_up_at:
                request.unlink(missing_ok=True)
                raise TimeoutError(f"the server did not keep {called} within {timeout_s:g} s")
            sleep(pause)
            pause = min(_LOOK_SLOWEST_S, pause * 1.5)
        found = json.loads(answer.read_bytes())
        for one in (request, answer):
            one.unlink(missing_ok=True)
    finally:
        if copied.is_dir():
            shutil.rmtree(copied, ignore_errors=True)
        else:
            copied.unlink(missing_ok=True)
    if found["refused"]:
        raise NotKept("; ".join(found["refused"]))
    return {str(name): str(digest) for name, digest in found["artifacts"].items()}


def _where(path: Path, folder: Path, checkpoints: str | None) -> tuple[str, str] | None:
    """Where the server finds it; None for a file elsewhere."""
    run, roots = folder.parent, {"run": folder.parent.resolve()}
    own = run.parents[2] / "checkpoints" / run.parent.name if len(run.parents) > 2 else None
    if checkpoints and Path(checkpoints) == own:
        roots["checkpoints"] = own.resolve()
    for root, at in roots.items():
        if path.is_relative_to(at) and path != at:
            return root, str(path.relative_to(at))
    return None


def _copied(path: Path, to: Path) -> tuple[str, str]:
    if path.is_dir():
        shutil.copytree(path, to, symlinks=True)
    else:
        shutil.copyfile(path, to)
    sync(to)
    return "run", f"{to.parent.name}/{to.name}"


def _digests(path: Path, name: str) -> dict[str, str]:
    found = {}
    for one in sorted(files(path)):
        if one == path or not one.is_symlink():
            with one.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[name if one == path else f"{name}/{one.relative_to(path)}"] = f"sha256:{digest}"
    return found
