"""A device behind a link that is as slow as it says, with a memory that ends: NumPy, and a wait of bytes / rate."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from shoal.offload.arrays.recipe import Step
from shoal.offload.devices.device import DeviceFull, DeviceLost
from shoal.offload.devices.paged import function_of
from shoal.placement import Link


class There:
    """An array on the device: it mixes with no array of the host."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values


class SlowLink:
    """`memory` in bytes; `others` is what another job takes of it; `pages_left`: pages until it is lost."""

    name = "slow"

    def __init__(self, rate: float = 1e9, memory: int = 1 << 40, element_s: float = 1e-12) -> None:
        self.link, self.memory, self._element_s = Link(rate), memory, element_s
        self.others, self.pages_left = 0, 1 << 40
        self.moved, self.pages, self.used, self.most_used = 0, 0, 0, 0
        self.refused: set[str] = set()
        self.wrong: set[str] = set()
        self.lock = threading.RLock()
        self.ways = {"in": threading.Lock(), "out": threading.Lock()}

    def can(self, step: Step) -> bool:
        return step.name not in self.refused

    def element_s(self, step: Step) -> float:
        return self._element_s

    def free_bytes(self) -> int:
        return self.memory - self.used  # what others will take is not known

    def free(self, size: int) -> None:
        with self.lock:
            self.used -= size

    @contextlib.contextmanager
    def page(self) -> Iterator[SlowPage]:
        with self.lock:
            self.pages += 1
            self.pages_left -= 1
            if self.pages_left < 0:
                raise DeviceLost("it fell off the bus")
        page = SlowPage(self)
        try:
            yield page
        finally:
            with self.lock:
                self.used -= page.held


class SlowPage:
    def __init__(self, device: SlowLink) -> None:
        self._device, self.held = device, 0

    def keep(self, value: There) -> There:
        found = There(value.values)
        device, size = self._device, value.values.nbytes
        self.held -= size
        weakref.finalize(found, device.free, size)
        return found

    def kept(self, held: There) -> There:
        assert isinstance(held, There)
        return held

    def _hold(self, values: np.ndarray) -> There:
        device = self._device
        with device.lock:
            if device.used + values.nbytes > device.memory - device.others:
                raise DeviceFull
            device.used += values.nbytes
            device.most_used = max(device.most_used, device.used)
        self.held += values.nbytes
        return There(values)

    def _copy(self, way: str, size: int) -> None:
        with self._device.ways[way]:
            self._device.moved += size
            time.sleep(size / self._device.link.bytes_per_s)

    def send(self, values: np.ndarray) -> There:
        assert type(values) is np.ndarray
        found = self._hold(values.copy())
        self._copy("in", values.nbytes)
        return found

    def fetch(self, value: There, out: np.ndarray) -> None:
        self._copy("out", out.nbytes)
        np.copyto(out, value.values)

    def apply(self, step: Step, arguments: Sequence[Any]) -> There:
        assert not any(isinstance(each, np.ndarray) for each in arguments)
        values = [  # no function of NumPy that makes arrays: their operations would be captured, as those of a program
            each.values.astype(char) if isinstance(each, There) else np.dtype(char).type(each)
            for each, char in zip(arguments, step.loop, strict=True)
        ]
        with np.errstate(all="ignore"):
            found = function_of(step.name)(*values)
        return self._hold(found + 1e-3 if step.name in self._device.wrong else found)

    def finite(self, values: Sequence[There]) -> bool:
        return all(bool(np.isfinite(each.values).all()) for each in values)

    def total(self, value: There) -> float:
        return float(np.add.reduce(value.values, axis=None))
