"""Python callables: `package.module:attribute`, a function or a class of arrays by name to arrays by name.

    TAKES = (TensorSpec("x", DataType.FP32, (-1, 4)),)

    class Mean:
        inputs, outputs = TAKES, (TensorSpec("mean", DataType.FP32, (-1,)),)

        def __call__(self, arrays):
            return {"mean": arrays["x"].mean(axis=1)}

A class is made without arguments when the model is loaded, and its `close()`, if it has one, called at the end. What it
takes and gives is declared by the specification, or by its attributes `inputs` and `outputs`. Input arrays are
read-only and valid during the call only: copy what is to be kept. Its threads are those of the replica process.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from shoal.core import Unavailable
from shoal.inference.checks import describe, place
from shoal.inference.errors import BadModel, BadRequest, ModelFailed
from shoal.inference.runtime import Array
from shoal.inference.types import ModelSpec, TensorSpec, is_callable


class CallableRuntime:
    """Raises BadModel if there is no such callable, or it does not say what it takes."""

    def __init__(self, spec: ModelSpec) -> None:
        found = resolve(spec, spec.source)
        self._call: Callable[[Mapping[str, Array]], Any] = made(spec, found) if isinstance(found, type) else found
        inputs = spec.inputs or declared(spec, self._call, "inputs")
        outputs = spec.outputs or declared(spec, self._call, "outputs")
        self.metadata = describe(spec, "python_callable", inputs, outputs)
        self._outputs = tuple(each.name for each in outputs)

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        wanted = outputs or self._outputs
        try:
            given = self._call(inputs)
            if not isinstance(given, Mapping):
                raise TypeError(f"it returned {type(given).__name__}, not arrays by name")
            missing = [name for name in wanted if name not in given]
            if missing:
                raise ValueError(f"it returned no {', '.join(missing)}")
            return {name: np.asarray(given[name]) for name in wanted}
        except (ModelFailed, BadRequest, Unavailable):
            raise
        except Exception as error:
            where = f"model {self.metadata.name!r}"
            raise ModelFailed(f"{type(error).__name__}: {error}", where=where) from error

    def close(self) -> None:
        close = getattr(self._call, "close", None)
        if callable(close):
            close()


def resolve(spec: ModelSpec, source: str) -> Any:
    """What `package.module:attribute` names. Raises BadModel."""
    if not is_callable(source):
        raise BadModel(f"{source!r} names no callable", where=place(spec), hint="write package.module:attribute")
    module, _, attribute = source.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except Exception as error:  # importing runs the module, which may fail in any way
        raise BadModel(
            f"{source!r} cannot be imported: {type(error).__name__}: {error}",
            where=place(spec),
            hint="it must be importable by the replica: install it, or put its folder on the replica's path",
        ) from error
    if not callable(found):
        raise BadModel(f"{source!r} is not callable", where=place(spec), hint="name a function or a class")
    return found


def made(spec: ModelSpec, cls: type[Any]) -> Any:
    """An instance of the class. Raises BadModel if it cannot be made, or not be called."""
    try:
        instance = cls()
    except Exception as error:
        raise BadModel(
            f"{cls.__name__}() failed: {type(error).__name__}: {error}",
            where=place(spec),
            hint="it is made without arguments, in the replica: what it needs must be there",
        ) from error
    if not callable(instance):
        raise BadModel(f"{cls.__name__} has no __call__", where=place(spec), hint="define __call__(self, arrays)")
    return instance


def declared(spec: ModelSpec, owner: object, side: str) -> tuple[TensorSpec, ...]:
    """The attribute `inputs` or `outputs`. Raises BadModel unless it holds TensorSpecs."""
    specs = getattr(owner, side, ())
    if not specs or not all(isinstance(each, TensorSpec) for each in specs):
        raise BadModel(
            f"{spec.source!r} does not say what its {side} are",
            where=place(spec),
            hint=f"give `{side}` in the model's specification, or as an attribute, a tuple of TensorSpec",
        )
    return tuple(specs)
