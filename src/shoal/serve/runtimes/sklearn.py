"""scikit-learn estimators from skops files, whose types are all known to be harmless (https://skops.readthedocs.io).

A pickle (.pkl, .joblib) is never opened: it runs any code it contains. Where the pickle is trusted, convert it once:

    import joblib, skops.io
    skops.io.dump(joblib.load("model.joblib"), "model.skops")

or to ONNX with `skl2onnx.to_onnx(model, X[:1], options={"zipmap": False})`, which is also faster to run: a `.onnx`
source is given to onnxruntime, whatever made it.

An estimator's input is `X` (FP64, samples x features, unless the specification declares another) and its outputs are
the methods it has of `predict`, `predict_proba` and `transform`; only those asked for are run. Its threads are those
of the replica process.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from shoal.inference.checks import describe, need, place, read_model
from shoal.inference.errors import BadModel, BadRequest, ModelFailed
from shoal.inference.runtime import Array
from shoal.inference.tensors import as_text, datatype_of, numpy_dtype
from shoal.inference.types import DataType, ModelSpec, TensorSpec

_METHODS = ("predict", "predict_proba", "transform")


class SklearnRuntime:
    """An estimator from a `.skops` file. Raises BadModel if it holds anything that skops does not know to be safe."""

    def __init__(self, spec: ModelSpec) -> None:
        file = read_model(spec, spec.source, ".skops")
        skops = need(spec, "skops.io")
        try:
            unknown = skops.get_untrusted_types(data=file.data)
            self._estimator: Any = None if unknown else skops.loads(file.data)
        except Exception as error:  # whatever a damaged archive makes it raise
            raise BadModel(
                f"{file.path.name} cannot be loaded: {type(error).__name__}: {error}",
                where=place(spec),
                hint="write it again with skops.io.dump",
            ) from error
        if unknown:
            raise BadModel(
                f"{file.path.name} holds types that are not known to be safe: {', '.join(unknown)}",
                where=place(spec),
                hint="convert it to ONNX, or serve it as a callable of your own",
            )
        inputs = _inputs(self._estimator, spec)
        outputs = spec.outputs or _outputs(self._estimator, inputs[0])
        lacking = [each.name for each in outputs if not _has(self._estimator, each.name)]
        if lacking or not outputs:
            raise BadModel(
                f"a {type(self._estimator).__name__} has no {', '.join(lacking) or 'method to run'}",
                where=place(spec),
                hint=f"outputs are methods: {', '.join(_METHODS)}",
            )
        self.metadata = describe(spec, "sklearn_skops", inputs, outputs)

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        ((name, array),) = inputs.items()
        if array.dtype == object:
            array = as_text(array, f"input {name!r}")
        wanted = outputs or [each.name for each in self.metadata.outputs]
        try:
            return {method: _dense(getattr(self._estimator, method)(array)) for method in wanted}
        except BadRequest:
            raise
        except Exception as error:
            where = f"model {self.metadata.name!r}"
            raise ModelFailed(f"{type(error).__name__}: {error}", where=where) from error

    def close(self) -> None:
        del self._estimator


def _has(estimator: object, method: str) -> bool:
    return method in _METHODS and callable(getattr(estimator, method, None))


def _inputs(estimator: object, spec: ModelSpec) -> tuple[TensorSpec, ...]:
    features = getattr(estimator, "n_features_in_", None)
    inputs = spec.inputs or ((TensorSpec("X", DataType.FP64, (-1, int(features))),) if features else ())
    if len(inputs) != 1:
        raise BadModel(
            "the estimator takes one input, and the file does not say which",
            where=place(spec),
            hint="declare `inputs`: one tensor, samples first (BYTES for text)",
        )
    return inputs


def _outputs(estimator: object, takes: TensorSpec) -> tuple[TensorSpec, ...]:
    """As the methods answer to one sample of zeros; as scikit-learn has it where that is no sample for them."""
    return tuple(_seen(estimator, takes, assumed) for assumed in _assumed(estimator))


def _seen(estimator: object, takes: TensorSpec, assumed: TensorSpec) -> TensorSpec:
    if takes.datatype is DataType.BYTES:
        return assumed
    zeros = np.zeros([1 if side == -1 else side for side in takes.shape], numpy_dtype(takes.datatype))
    try:
        given = _dense(getattr(estimator, assumed.name)(zeros))
        datatype = datatype_of(given)
    except Exception:  # whatever it makes of zeros: requests may suit it better
        return assumed
    shape = assumed.shape if len(assumed.shape) == given.ndim else (-1,) * given.ndim
    return TensorSpec(assumed.name, datatype, shape)


def _assumed(estimator: object) -> tuple[TensorSpec, ...]:
    classes = getattr(estimator, "classes_", None)
    labels = datatype_of(np.asarray(classes)) if classes is not None else DataType.FP64
    known = {
        "predict": TensorSpec("predict", labels, (-1,)),
        "predict_proba": TensorSpec("predict_proba", DataType.FP64, (-1, -1 if classes is None else len(classes))),
        "transform": TensorSpec("transform", DataType.FP64, (-1, -1)),
    }
    return tuple(output for method, output in known.items() if _has(estimator, method))


def _dense(given: Any) -> Array:
    return np.asarray(given.toarray() if hasattr(given, "toarray") else given)
