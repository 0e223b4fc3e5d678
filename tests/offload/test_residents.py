"""Results that stay on a device: what moves is counted, looks bring them home, memory ends, and the device is lost."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.offload import installation
from shoal.offload.arrays.program import Program
from shoal.offload.arrays.residents import RESIDENTS
from shoal.offload.costs import CostModel
from tests.offload.slow_link import SlowLink
from tests.offload.test_devices import Installed, N, backends, installed

__all__ = ["installed"]

SIZE = 8 * N


def heavy(x: Any) -> Any:
    return np.exp(np.sin(x) * 0.5)


def plain(values: Any) -> Any:
    """A copy that no operation is captured of."""
    found: Any = np.ndarray(np.shape(values), np.float64)
    found[...] = np.asarray(values)
    return found


def line(start: float = 0.1, stop: float = 3.0, count: int = N) -> Any:
    return plain(np.linspace(start, stop, count))


class AsDeclared(CostModel):
    """Rates that nothing changes: the stand-in is no faster than NumPy."""

    def observe(self, program: Program, backend: str, seconds: float, estimate: float) -> None:
        pass


def put(installed: Installed, device: SlowLink, **options: Any) -> SlowLink:
    installed(device, threshold=60_000, **options)
    installation._current._evaluator.chooser.costs = AsDeclared()  # type: ignore[union-attr]
    return device


@pytest.fixture
def device(installed: Installed) -> SlowLink:
    """A device whose operations were compared before, and which has moved nothing."""
    found = put(installed, SlowLink(rate=1e11))
    np.asarray(heavy(np.linspace(0.1, 3.0, N)))
    assert heavy(np.linspace(0.1, 3.0, N)).sum() > 0
    gc.collect()
    assert found.used == 0
    found.moved = 0
    return found


def test_a_chain_with_totals_on_the_way_moves_its_data_once(device: SlowLink) -> None:
    x = np.linspace(0.1, 3.0, N)
    wanted = heavy(line())
    found = heavy(x)
    for _ in range(4):
        assert found.sum() == pytest.approx(wanted.sum())
        assert found.mean() == pytest.approx(wanted.mean())
        assert device.moved == SIZE
        found, wanted = heavy(found), heavy(wanted)
    np.testing.assert_array_equal(plain(found), wanted)
    assert device.moved == 2 * SIZE
    assert backends() == {"slow"}
    del found
    gc.collect()
    assert device.used == 0


def test_a_look_brings_one_result_home_and_no_other(device: SlowLink) -> None:
    x = np.linspace(0.1, 3.0, N)
    y = heavy(x)
    z = heavy(y)
    wanted = heavy(line())
    assert z[5] == heavy(wanted)[5]
    assert device.moved == 2 * SIZE
    assert device.used == SIZE
    w = np.asarray(heavy(y))
    assert device.moved == 3 * SIZE
    assert w.tobytes() == np.asarray(z).tobytes()
    np.testing.assert_array_equal(plain(y), wanted)
    assert device.moved == 4 * SIZE
    assert device.used == 0


def test_what_a_result_was_made_of_may_be_written(device: SlowLink) -> None:
    x = np.linspace(0.1, 3.0, N)
    wanted = heavy(line())
    y = heavy(x)
    y.sum()
    assert device.used == SIZE
    x[:] = 0
    np.testing.assert_array_equal(plain(y), wanted)
    y[:10] = wanted[:10] = 7
    np.testing.assert_array_equal(plain(heavy(y)), heavy(wanted))


@pytest.mark.parametrize("results", [1.5, 3, 6])
def test_results_beyond_the_memory_come_home_and_the_oldest_first(installed: Installed, results: float) -> None:
    device = put(installed, SlowLink(rate=1e11, memory=int(SIZE * (results + 2))))
    x = np.linspace(0.1, 3.0, N)
    found = []
    for step in range(8):
        found.append(heavy(x + float(step)))
        assert np.asarray(found[-1] * 2.0)[0] > 0
        assert device.used <= device.memory
    assert device.most_used <= device.memory
    assert device.used <= SIZE * (results + 1)
    some = [RESIDENTS.of(each) is not None for each in found]
    assert some == sorted(some)
    assert some[-1]
    for step, each in enumerate(found):
        np.testing.assert_array_equal(plain(each), heavy(line() + float(step)))
    del each
    assert device.used == 0


def test_pages_that_another_job_cuts_short_fit_together_again(device: SlowLink) -> None:
    x = np.linspace(0.1, 3.0, N)
    y = heavy(x)
    y.sum()
    device.others = device.memory - device.used - 8 * 60_000
    z = heavy(y)
    wanted = heavy(heavy(line()))
    assert z.sum() == pytest.approx(wanted.sum())
    device.others = device.memory
    np.testing.assert_array_equal(plain(heavy(z)), heavy(wanted))


@pytest.mark.parametrize("look", [np.asarray, lambda a: np.asarray(heavy(a) + a), lambda a: a.sum(), lambda a: a.max()])
@pytest.mark.parametrize("pages", [0, 1, 3])
def test_results_on_a_lost_device_are_computed_anew(device: SlowLink, look: Callable[[Any], Any], pages: int) -> None:
    y = heavy(np.linspace(0.1, 3.0, N))
    z = heavy(y)
    assert z.mean() > 0
    assert y.mean() > 0
    device.pages_left = pages
    wanted = heavy(line())
    np.testing.assert_allclose(plain(look(z)), look(heavy(wanted)), rtol=1e-13)
    np.testing.assert_array_equal(plain(y), wanted)


def test_faults_and_other_shapes_and_rolled_arrays_take_it_home(device: SlowLink) -> None:
    x = np.linspace(-1.0, 3.0, N)
    y = heavy(x)
    y.sum()
    with pytest.warns(RuntimeWarning, match="invalid value encountered in log"):
        z = np.asarray(np.log(np.sin(y * 9.0)) + y)
    wanted = heavy(line(-1.0))
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(plain(z), np.log(np.sin(wanted * 9.0)) + wanted)
    y = heavy(np.linspace(-1.0, 3.0, N))
    y.sum()
    np.testing.assert_array_equal(plain(np.roll(y, 3) * y), np.roll(wanted, 3) * wanted)
    table = np.linspace(0.0, 1.0, 2 * N).reshape(2, N)
    y = heavy(np.linspace(-1.0, 3.0, N))
    y.sum()
    np.testing.assert_array_equal(plain(table * 2.0 + y), plain(table) * 2.0 + wanted)


STEPS = ("heavy", "add", "sum", "max", "look", "write", "drop", "roll")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 7), st.integers(0, 7)), max_size=16),
    memory=st.sampled_from([3, 5, 8, 100]),
    lost=st.sampled_from([1 << 30, 40, 60]),
)
def test_random_programs_see_what_numpy_shows(
    installed: Installed, steps: list[tuple[str, int, int]], memory: int, lost: int
) -> None:
    size = 70_000
    device = put(installed, SlowLink(rate=1e11, memory=8 * size * memory))
    device.pages_left = lost
    captured: list[Any] = [np.linspace(0.1, 3.0, size), np.linspace(-1.0, 1.0, size)]
    wanted: list[Any] = [plain(each) for each in captured]
    captured = [each * 1.0 for each in captured]
    for name, i, j in steps:
        i, j = i % len(wanted), j % len(wanted)
        a, b, x, y = captured[i], captured[j], wanted[i], wanted[j]
        if name == "heavy":
            captured.append(heavy(a))
            wanted.append(heavy(x))
        elif name == "add":
            captured.append(a * 0.5 + np.cos(b))
            wanted.append(x * 0.5 + np.cos(y))
        elif name == "roll":
            captured.append(np.roll(a, j + 1) * b)
            wanted.append(np.roll(x, j + 1) * y)
        elif name == "sum":
            assert a.sum() == pytest.approx(x.sum(), rel=1e-9, abs=1e-6)
        elif name == "max":
            assert a.max() == x.max()
        elif name == "look":
            assert a[j] == x[j]
        elif name == "write":
            a[j] = x[j] = float(i)
        elif len(wanted) > 1:
            del captured[i], wanted[i]
        del a, b, x, y
        assert device.used <= device.memory
    for one, other in zip(captured, wanted, strict=True):
        np.testing.assert_array_equal(plain(one), other)
