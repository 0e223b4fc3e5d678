"""PyTorch's device: copies through pinned memory and work in a stream of each thread, so that they overlap."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from shoal.offload.arrays.recipe import Step
from shoal.offload.devices.device import DeviceFull, DeviceLost
from shoal.placement import Link

_NAMES: Mapping[str, str] = {
    "divide": "true_divide", "negative": "neg", "absolute": "abs", "rint": "round", "less": "lt", "less_equal": "le",
    "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne", "invert": "bitwise_not",
    "arcsin": "asin", "arccos": "acos", "arctan": "atan", "arcsinh": "asinh", "arccosh": "acosh",
    "arctanh": "atanh", "power": "pow", "arctan2": "atan2",
}  # fmt: skip
"""NumPy's name and PyTorch's, where they differ."""

_MISSING = frozenset(("cbrt",))
_TYPES = {"d": "float64", "f": "float32", "l": "int64", "i": "int32", "?": "bool"}

_MEMORY_S = 3 * 8 / 1e12
"""Of an operation that reads two numbers and writes one, at 1 TB/s; half precision units are not counted on."""


class TorchDevice:
    """`device` by PyTorch's name. `limit_bytes`: what this process may take of its memory; 0 for all."""

    def __init__(self, device: str = "cuda:0", *, limit_bytes: int = 0, link: Link = Link(2e10, 2e-5)) -> None:  # noqa: B008
        import torch

        self._torch, self._device = torch, torch.device(device)
        self.name, self.link, self._limit = device, link, limit_bytes
        self._local = threading.local()

    def can(self, step: Step) -> bool:
        return step.name not in _MISSING

    def element_s(self, step: Step) -> float:  # noqa: ARG002
        return _MEMORY_S

    def free_bytes(self) -> int:
        if self._device.type != "cuda":
            return self._limit or 1 << 40
        with self._errors():
            free: int = self._torch.cuda.mem_get_info(self._device)[0]
            kept: int = self._torch.cuda.memory_reserved(self._device)
            used: int = self._torch.cuda.memory_allocated(self._device)
        free += kept - used  # PyTorch's own pool gives it again
        return min(free, max(0, self._limit - used)) if self._limit else free

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._torch.OutOfMemoryError as error:
            with contextlib.suppress(RuntimeError):
                self._torch.cuda.empty_cache()
            raise DeviceFull(str(error)) from None
        except RuntimeError as error:
            raise DeviceLost(str(error).partition("\n")[0]) from None

    @contextlib.contextmanager
    def page(self) -> Iterator[TorchPage]:
        """In this thread's own stream, with its own pinned buffers."""
        with self._errors():
            if self._device.type != "cuda":
                yield TorchPage(self._torch, self._device, {})
                return
            known = self._local.__dict__
            if "stream" not in known:
                known.update(stream=self._torch.cuda.Stream(self._device), pinned={})
            stream = known["stream"]
            with self._torch.cuda.stream(stream):
                yield TorchPage(self._torch, self._device, known["pinned"])
                stream.synchronize()


class TorchPage:
    """One page, in the stream of the thread. Pinned buffers are kept from page to page, one for each copy."""

    def __init__(self, torch: Any, device: Any, pinned: dict[int, Any]) -> None:
        self._torch, self._device, self._pinned = torch, device, pinned
        self._copies = 0

    def _staging(self, size: int) -> Any:
        """Pinned memory of at least this many bytes, which no other copy of this page uses."""
        number, self._copies = self._copies, self._copies + 1
        found = self._pinned.get(number)
        if found is None or found.numel() < size:
            pinned = self._device.type == "cuda"
            found = self._pinned[number] = self._torch.empty(size, dtype=self._torch.uint8, pin_memory=pinned)
        return found[:size]

    def send(self, values: np.ndarray) -> Any:
        if self._device.type != "cuda":
            return self._torch.from_numpy(np.ascontiguousarray(values).copy())
        staged = self._staging(values.nbytes)
        np.copyto(staged.numpy().view(values.dtype).reshape(values.shape), values)
        dtype = getattr(self._torch, _TYPES[values.dtype.char])
        return staged.view(dtype).reshape(values.shape).to(self._device, non_blocking=True)

    def keep(self, value: Any) -> Any:
        return value

    def kept(self, held: Any) -> Any:
        if self._device.type == "cuda":  # its memory is not given again before this stream is through
            held.record_stream(self._torch.cuda.current_stream(self._device))
        return held

    def fetch(self, value: Any, out: np.ndarray) -> None:
        value = value.expand(out.shape)
        if self._device.type != "cuda":
            np.copyto(out, value.numpy())
            return
        staged = self._staging(out.nbytes)
        there = staged.view(value.dtype).reshape(out.shape)
        there.copy_(value, non_blocking=True)
        self._torch.cuda.current_stream(self._device).synchronize()
        np.copyto(out, there.numpy())

    def apply(self, step: Step, arguments: Sequence[Any]) -> Any:
        values = [
            each.to(getattr(self._torch, _TYPES[char])) if isinstance(each, self._torch.Tensor)
            else self._torch.tensor(each, dtype=getattr(self._torch, _TYPES[char]), device=self._device)
            for each, char in zip(arguments, step.loop, strict=True)
        ]  # fmt: skip
        found = getattr(self._torch, _NAMES.get(step.name, step.name))(*values)
        return found.to(getattr(self._torch, _TYPES[step.char]))

    def finite(self, values: Sequence[Any]) -> bool:
        flags = [self._torch.isfinite(each).all() for each in values]
        return bool(self._torch.stack(flags).all())

    def total(self, value: Any) -> float:
        return float(value.sum())
