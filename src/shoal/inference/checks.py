"""Checks that every runtime makes: the file it is given, and what the model takes and gives."""

from __future__ import annotations

import hashlib
import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from shoal.base.extras import install
from shoal.inference.errors import BadModel
from shoal.inference.types import PICKLES, WITHOUT_PICKLE, ModelMetadata, ModelSpec, TensorSpec


@dataclass(frozen=True, slots=True)
class ModelFile:
    """`data` is what was checked, and all that a runtime may use: the file on disk may change in the meantime."""

    path: Path
    data: bytes


def read_model(spec: ModelSpec, source: str, *suffixes: str) -> ModelFile:
    """Read the file `source`, of one of these suffixes, and check its digest. Raises BadModel."""
    path = Path(source)
    if path.suffix in PICKLES:
        what = f"{path.name} is a pickle, which runs any code in it when it is opened"
        raise BadModel(what, where=place(spec), hint=WITHOUT_PICKLE)
    if path.suffix not in suffixes:
        raise BadModel(
            f"{source!r} is no file for the runtime {spec.runtime}",
            where=place(spec),
            hint=f"it opens {', '.join(suffixes)}; set `runtime` if the model is of another kind",
        )
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadModel(
            f"{source!r} cannot be read: {error.strerror}", where=place(spec), hint="the path is the replica's"
        ) from error
    if spec.sha256 is not None and (found := hashlib.sha256(data).hexdigest()) != spec.sha256.lower():
        raise BadModel(
            f"the sha256 of {path.name} is {found}, not {spec.sha256}",
            where=place(spec),
            hint="it is damaged or was replaced: fetch it again, or correct the digest",
        )
    return ModelFile(path, data)


def need(spec: ModelSpec, module: str, *, extra: str | None = None) -> Any:
    """A module of an optional package, which the extra of Shoal brings. Raises BadModel where it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        command = install(extra) if extra else f"pip install {module.partition('.')[0]}"
        raise BadModel(
            f"the runtime {spec.runtime} needs {module}, which cannot be imported: {error}",
            where=place(spec),
            hint=f"for the replica: {command}; or convert the model to ONNX",
        ) from error


def describe(
    spec: ModelSpec, platform: str, inputs: tuple[TensorSpec, ...], outputs: tuple[TensorSpec, ...], *,
    on_request: tuple[str, ...] = (), always: tuple[str, ...] = (),
) -> ModelMetadata:  # fmt: skip
    """The loaded model's metadata. Raises BadModel if it is to take batches and an input's first dimension is fixed."""
    max_batch = spec.max_batch if spec.max_batch > 1 else 0
    states = {pair.input for pair in spec.state}
    for each in inputs if max_batch else ():
        if each.shape[:1] != (-1,) and each.name not in states:
            raise BadModel(
                f"input {each.name!r} has shape {list(each.shape)}: no room for batches of {max_batch}",
                where=place(spec),
                hint="export it with a free first dimension, or set max_batch: 1",
            )
    return ModelMetadata(spec.name, (spec.version,), platform, inputs, outputs, max_batch, False, on_request, always)


def place(spec: ModelSpec) -> str:
    """How errors name the model."""
    return f"model {spec.name!r} version {spec.version}"


def first_line(error: Exception) -> str:
    """Native libraries add a trace of their own, which says nothing to callers."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
