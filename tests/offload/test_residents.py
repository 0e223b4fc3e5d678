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
    first = plain = np.exp(np.sin(np.array(x)) * 0.5)
    found = heavy(x)
    for _ in range(4):
        assert found.sum() == pytest.approx(plain.sum())
        assert found.mean() == pytest.approx(plain.mean())
        assert device.moved == SIZE
        found, plain = heavy(found), np.exp(np.sin(plain) * 0.5)
    assert np.asarray(found).tobytes() == np.asarray(plain).tobytes()
    assert device.moved == 2 * SIZE
    assert backends() == {"slow"}
    del found, first
    gc.collect()
    assert device.used == 0


def test_a_look_brings_one_result_home_and_no_other(device: SlowLink) -> None:
    x = np.linspace(0.1, 3.0, N)
    y = heavy(x)
    z = heavy(y)
    assert z[5] == pytest.approx(np.exp(np.sin(np.exp(np.sin(x[5]) * 0.5)) * 0.5))
    assert device.moved == 2 * SIZE
    assert device.used == SIZE
    w = np.asarray(heavy(y))
    assert device.moved == 3 * SIZE
    assert w.tobytes() == np.asarray(z).tobytes()
    np.testing.assert_array_equal(y, np.exp(np.sin(np.linspace(0.1, 3.0, N)) * 0.5))
    assert device.moved == 4 * SIZE
    assert device.used == 0


def test_what_a_result_was_made_of_may_be_written(device: SlowLink) -> None:
    x = np.linspace(0.1, 3.0, N)
    wanted = np.exp(np.sin(np.linspace(0.1, 3.0, N)) * 0.5)
    y = heavy(x)
    y.sum()
    assert device.used == SIZE
    x[:] = 0
    np.testing.assert_array_equal(y, wanted)
    y[:10] = 7
    np.testing.assert_array_equal(heavy(y)[:10], np.exp(np.sin(np.full(10, 7.0)) * 0.5))


@pytest.mark.parametrize("results", [1.5, 3, 6])
def test_results_beyond_the_memory_come_home_and_the_oldest_first(installed: Installed, results: float) -> None:
    device = put(installed, SlowLink(rate=1e11, memory=int(SIZE * (results + 2))))
    x = np.linspace(0.1, 3.0, N)
    found = []
    for step in range(8):
        found.append(heavy(x + float(step)))
        found[-1].sum()
        assert device.used <= device.memory
    assert device.most_used <= device.memory
    assert device.used <= SIZE * (results + 1)
    some = [RESIDENTS.of(each) is not None for each in found]
    assert some == sorted(some)
    assert some[-1]
    for step, each in enumerate(found):
        np.testing.assert_array_equal(each, np.exp(np.sin(np.linspace(0.1, 3.0, N) + float(step)) * 0.5))
    del each
    assert device.used == 0


def test_pages_that_another_job_cuts_short_fit_together_again(device: SlowLink) -> None:
    x = np.linspace(0.1, 3.0, N)
    y = heavy(x)
    y.sum()
    device.others = device.memory - device.used - 8 * 60_000
    z = heavy(y)
    assert z.sum() == pytest.approx(np.exp(np.sin(np.asarray(y)) * 0.5).sum())
    device.others = device.memory
    np.testing.assert_array_equal(heavy(z), np.exp(np.sin(np.asarray(z)) * 0.5))


@pytest.mark.parametrize("look", [np.asarray, lambda a: np.asarray(heavy(a) + a), lambda a: a.sum(), lambda a: a.max()])
@pytest.mark.parametrize("pages", [0, 1, 3])
def test_results_on_a_lost_device_are_computed_anew(device: SlowLink, look: Callable[[Any], Any], pages: int) -> None:
    y = heavy(np.linspace(0.1, 3.0, N))
    z = heavy(y)
    assert z.mean() > 0
    assert y.mean() > 0
    device.pages_left = pages
    x = np.linspace(0.1, 3.0, N)
    plain = np.exp(np.sin(np.exp(np.sin(np.array(x)) * 0.5)) * 0.5)
    expected = {0: plain}
    np.testing.assert_allclose(look(z), look(expected[0]), rtol=1e-13)
    np.testing.assert_array_equal(y, np.exp(np.sin(np.linspace(0.1, 3.0, N)) * 0.5))


def test_faults_and_other_shapes_and_rolled_arrays_take_it_home(device: SlowLink) -> None:
    x = np.linspace(-1.0, 3.0, N)
    y = heavy(x)
    y.sum()
    with pytest.warns(RuntimeWarning, match="invalid value encountered in log"):
        z = np.asarray(np.log(np.sin(y * 9.0)) + y)
    plain = np.exp(np.sin(np.linspace(-1.0, 3.0, N)) * 0.5)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(z, np.log(np.sin(plain * 9.0)) + plain)
    y = heavy(np.linspace(-1.0, 3.0, N))
    y.sum()
    rolled = np.asarray(np.roll(y, 3) * y)
    np.testing.assert_array_equal(rolled, np.roll(plain, 3) * plain)
    table = np.linspace(0.0, 1.0, 2 * N).reshape(2, N)
    y = heavy(np.linspace(-1.0, 3.0, N))
    y.sum()
    np.testing.assert_array_equal(np.asarray(table * 2.0 + y), table * 2.0 + plain)


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
    plain: list[Any] = [np.array(np.asarray(each)) for each in captured]
    captured = [each * 1.0 for each in captured]
    for name, i, j in steps:
        i, j = i % len(plain), j % len(plain)
        a, b, x, y = captured[i], captured[j], plain[i], plain[j]
        if name == "heavy":
            captured.append(heavy(a))
            plain.append(np.exp(np.sin(x) * 0.5))
        elif name == "add":
            captured.append(a * 0.5 + np.cos(b))
            plain.append(x * 0.5 + np.cos(y))
        elif name == "roll":
            captured.append(np.roll(a, j + 1) * b)
            plain.append(np.roll(x, j + 1) * y)
        elif name == "sum":
            assert a.sum() == pytest.approx(x.sum(), rel=1e-9, abs=1e-6)
        elif name == "max":
            assert a.max() == x.max()
        elif name == "look":
            assert a[j] == x[j]
        elif name == "write":
            a[j] = x[j] = float(i)
        elif len(plain) > 1:
            del captured[i], plain[i]
        del a, b, x, y
        assert device.used <= device.memory
    for one, other in zip(captured, plain, strict=True):
        np.testing.assert_array_equal(one, other)
