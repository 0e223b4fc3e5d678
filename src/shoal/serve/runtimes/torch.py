"""torch models without Python's pickles: TorchScript (`.pt`), and weights alone
(`package.module:Module@weights.safetensors`, for a class or function that makes the module without arguments).

The specification declares the model's inputs and outputs. Inputs are passed in that order. Outputs are one tensor, a
tuple or list of as many as declared, or a mapping by name. Runs on CUDA where there is a device.

Not opened: `torch.save` files, and `torch.export` archives (`.pt2`), which torch unpickles (torch 2.15 itself warns of
it). TorchScript runs no Python, yet it is a program with all of torch's operators, those on files included: serve only
what you trust as you would trust code. Safetensors hold nothing but numbers.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.inference.checks import describe, first_line, need, place, read_model
from shoal.inference.errors import BadModel, ModelFailed
from shoal.inference.runtime import Array
from shoal.inference.types import DataType, ModelSpec
from shoal.serve.runtimes.callable import resolve


class TorchRuntime:
    """Raises BadModel for a file that torch cannot load without unpickling code."""

    def __init__(self, spec: ModelSpec) -> None:
        torch = need(spec, "torch")
        if not spec.inputs or not spec.outputs:
            raise BadModel(
                "a torch file does not say what the model takes and gives",
                where=place(spec),
                hint="declare `inputs` and `outputs` in the model's specification",
            )
        if DataType.BYTES in {each.datatype for each in (*spec.inputs, *spec.outputs)}:
            raise BadModel("torch has no strings", where=place(spec), hint="encode them as numbers")
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")  # inputs are others' memory
        self._torch = torch
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._threads = max(1, spec.threads)
        self._module = self._load(spec)
        self.metadata = describe(spec, "pytorch", spec.inputs, spec.outputs)
        self._inputs = [each.name for each in spec.inputs]
        self._outputs = [each.name for each in spec.outputs]

    def _load(self, spec: ModelSpec) -> Any:
        factory, at, weights = spec.source.partition("@")
        if spec.source.endswith(".pt2"):
            raise BadModel(
                "torch.export archives hold pickles, which run any code in them when they are opened",
                where=place(spec),
                hint="export to ONNX, or keep the weights as safetensors: package.module:Module@weights.safetensors",
            )
        file = read_model(spec, weights, ".safetensors") if at else read_model(spec, spec.source, ".pt")
        make = resolve(spec, factory) if at else None
        try:
            if make is None:
                return self._torch.jit.load(io.BytesIO(file.data), map_location=self._device).eval()
            module = make()
            module.load_state_dict(need(spec, "safetensors.torch").load(file.data))
            return module.eval().to(self._device)
        except BadModel:
            raise
        except Exception as error:  # torch's own have no common base
            raise BadModel(
                f"torch cannot load {file.path.name}: {type(error).__name__}: {first_line(error)}",
                where=place(spec),
                hint="save TorchScript with torch.jit.save; a file of torch.save is a pickle, which is not opened",
            ) from error

    def run(self, inputs: Mapping[str, Array], outputs: Sequence[str]) -> Mapping[str, Array]:
        torch = self._torch
        try:
            if torch.get_num_threads() != self._threads:  # the process's, which may hold several models
                torch.set_num_threads(self._threads)
            with torch.inference_mode():
                given = self._module(*(torch.from_numpy(inputs[name]).to(self._device) for name in self._inputs))
            named = self._named(given)
            return {name: self._array(named[name]) for name in outputs or self._outputs}
        except Exception as error:
            where = f"model {self.metadata.name!r}"
            raise ModelFailed(f"{type(error).__name__}: {first_line(error)}", where=where) from error

    def _named(self, given: Any) -> Mapping[str, Any]:
        if isinstance(given, Mapping):
            return given
        several = tuple(given) if isinstance(given, tuple | list) else (given,)
        if len(several) != len(self._outputs):
            raise ValueError(f"the model gave {len(several)} outputs, {len(self._outputs)} are declared")
        return dict(zip(self._outputs, several, strict=True))

    def _array(self, tensor: Any) -> Array:
        wide = tensor.float() if tensor.dtype is self._torch.bfloat16 else tensor
        array: Array = wide.detach().cpu().numpy()
        return array

    def close(self) -> None:
        del self._module
