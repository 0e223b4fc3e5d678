"""Annotated functions on the devices of `array_api_strict`, which refuses to mix them as a real device does."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shoal.offload.annotations import Backend, Broadcast, SplitType, SumSplit, evaluate, oa
from shoal.placement import Link

xp = pytest.importorskip("array_api_strict")

HOST, DEVICE = xp.Device("CPU_DEVICE"), xp.Device("device1")


class StrictRows(SplitType):
    """Arrays of the standard, by rows."""

    def elements(self, value: Any) -> int | None:
        return int(value.shape[0]) if getattr(value, "ndim", 0) else None

    def split(self, start: int, stop: int, value: Any) -> Any:
        return value[start:stop, ...]

    def combine(self, pieces: Any) -> Any:
        return xp.concat(list(pieces))

    def backend(self, value: Any) -> Backend:
        return Backend.GPU if value.device == DEVICE else Backend.CPU

    def to(self, value: Any, backend: Backend) -> Any:
        return value.to_device(DEVICE if backend is Backend.GPU else HOST)

    def size(self, value: Any) -> int:
        return int(value.size) * 8


ROWS = StrictRows()


def seconds(count: int, backend: Backend) -> float:
    return count * (1e-6 if backend is Backend.CPU else 1e-8)


@pytest.mark.parametrize("rate", [1e10, 1e4])
@pytest.mark.parametrize("inputs", [(HOST, HOST), (HOST, DEVICE), (DEVICE, DEVICE)])
def test_arrays_meet_on_one_device(rate: float, inputs: tuple[Any, Any]) -> None:
    multiply = oa((ROWS, ROWS), {}, ROWS, func=xp.multiply, estimator=seconds)(xp.multiply)
    double = oa((ROWS, Broadcast()), {}, ROWS, func=lambda a, b: a * b, estimator=seconds)(lambda a, b: a * b)
    total = oa((ROWS,), {}, SumSplit(), func=lambda a: float(xp.sum(a)), estimator=seconds)(lambda a: float(xp.sum(a)))
    a, b = (xp.asarray(np.arange(60.0).reshape(20, 3) + i, device=each) for i, each in enumerate(inputs))
    product = multiply(a, b)
    found = total(double(product, 2.0))
    evaluate(link=Link(rate), batch=7)
    expected = np.arange(60.0) * (np.arange(60.0) + 1)
    assert found.value == pytest.approx(expected.sum() * 2)
    np.testing.assert_array_equal(np.asarray(product.value).reshape(-1), expected)
    assert product.value.device == HOST


def test_devices_that_are_mixed_are_refused() -> None:
    with pytest.raises(ValueError, match="device"):
        assert xp.asarray([1.0], device=HOST) + xp.asarray([1.0], device=DEVICE)
