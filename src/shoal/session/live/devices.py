"""Whether the devices of this machine work, by NVIDIA's management library."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _load() -> Any:
    import pynvml

    return pynvml


class Devices:
    """`missing` says why nothing reports the use of devices; None where something does, and before the first look."""

    def __init__(self, load: Callable[[], Any] = _load) -> None:
        self.missing: str | None = None
        self._load = load
        self._nvml: Any = None

    def probe(self) -> None:
        """Blocks."""
        if self._nvml is not None:
            return
        try:
            library = self._load()
            library.nvmlInit()
        except ImportError:
            self.missing = "NVML's bindings are not installed"
        except Exception as problem:  # a driver's library may raise anything
            self.missing = f"NVML: {problem}"
        else:
            self._nvml, self.missing = library, None

    def busy(self, devices: Iterable[str]) -> frozenset[str]:
        """Those, of these, on which something ran in the last second or less. Blocks."""
        self.probe()
        return frozenset(one for one in devices if self._nvml is not None and _busy(self._nvml, one))


def _busy(pynvml: Any, device: str) -> bool:
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(device)
        return bool(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
    except pynvml.NVMLError:  # it is no device of this library, or a slice of one, which says nothing of its use
        return False
