"""The protocol of a device. One comes with PyTorch; others by entry points of the group `shoal.offload.devices`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

import numpy as np

from shoal.offload.arrays.recipe import Step
from shoal.placement import Link


class DeviceFull(Exception):
    """A page does not fit into what is left of the device's memory: a smaller one may."""


class DeviceLost(Exception):
    """The device answers no more."""


class Page(Protocol):
    """One page of a program on the device, in one thread. Copies and operations may be under way when a method ends;
    `fetch`, `finite` and `total` wait. Each raises DeviceFull or DeviceLost."""

    def send(self, values: np.ndarray) -> Any:
        """A copy on the device. The array may be any view."""
        ...

    def fetch(self, value: Any, out: np.ndarray) -> None:
        """Copy a value of the device into an array of the host."""
        ...

    def keep(self, value: Any) -> Any:
        """What holds a value of this page on the device for as long as it is referenced."""
        ...

    def kept(self, held: Any) -> Any:
        """The value that another page kept, for this one."""
        ...

    def apply(self, step: Step, arguments: Sequence[Any]) -> Any:
        """The result of an operation. Arguments are values of the device, in any type, and numbers of Python."""
        ...

    def finite(self, values: Sequence[Any]) -> bool:
        """Whether no value is a NaN or an infinity."""
        ...

    def total(self, value: Any) -> float:
        """The sum of all elements."""
        ...


class Device(Protocol):
    """`link` is one way between the host's memory and the device's. `name` is what `explain` shows."""

    name: str
    link: Link

    def can(self, step: Step) -> bool:
        """Whether it has this operation for these types."""
        ...

    def element_s(self, step: Step) -> float:
        """Seconds of an operation for one element of a large array."""
        ...

    def free_bytes(self) -> int:
        """Memory that this process may still take: asked of the driver, within the job's limit. Raises DeviceLost."""
        ...

    def page(self) -> AbstractContextManager[Page]: ...
