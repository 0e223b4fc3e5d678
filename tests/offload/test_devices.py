"""Programs on a device: the one behind a slow link has a memory that ends, others that take of it, and can be lost."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal.offload
from shoal.offload import OffloadSettings, installation
from shoal.offload.devices.choice import Devices
from shoal.offload.profile import PROFILE
from tests.offload.slow_link import SlowLink

N = 300_000

Installed = Callable[..., SlowLink]


@pytest.fixture
def installed(tmp_path: Path) -> Iterator[Installed]:
    """Installs capture with a device that is much faster than the host, but for its link."""

    def install(device: Any, **settings: Any) -> Any:
        shoal.offload.uninstall()
        given: dict[str, Any] = {"threads": 2, "home": str(tmp_path), "compile": "never", **settings}
        shoal.offload.install(OffloadSettings(**given))
        chooser = installation._current._evaluator.chooser  # type: ignore[union-attr]
        chooser.devices = Devices(chooser.settings, chooser.trust, device)
        PROFILE.clear()
        return device

    yield install
    shoal.offload.uninstall()


def backends() -> set[str]:
    return {each.backend for each in PROFILE.records() if each.call in ("sin", "exp", "add", "multiply", "hypot")}


def program() -> Any:
    a = np.linspace(0.1, 3.0, N)
    return np.exp(np.sin(a) * 2.0) + np.hypot(a, 1.0)


def expected() -> Any:
    shoal.offload.uninstall()
    return program()


def test_a_fast_link_repays_the_copies_and_a_slow_one_does_not(installed: Installed) -> None:
    wanted = expected()
    device = installed(SlowLink(rate=1e11))
    np.testing.assert_array_equal(np.asarray(program()), wanted)
    assert backends() == {"slow"}
    assert device.moved >= 2 * 8 * N
    device = installed(SlowLink(rate=1e6))
    np.testing.assert_array_equal(np.asarray(program()), wanted)
    assert "slow" not in backends()
    assert device.pages == 0


@pytest.mark.parametrize("share", [2, 8, 16])
def test_a_program_that_is_larger_than_the_memory_is_paged(installed: Installed, share: int) -> None:
    wanted = expected()
    device = installed(SlowLink(rate=1e11, memory=6 * 8 * N // share))
    np.testing.assert_array_equal(np.asarray(program()), wanted)
    assert backends() == {"slow"}
    assert device.most_used <= device.memory
    assert device.pages > share
    assert device.used == 0


def test_pages_shrink_where_another_job_takes_the_memory(installed: Installed) -> None:
    wanted = expected()
    device = installed(SlowLink(rate=1e11, memory=4 * 8 * N))
    device.others = device.memory - 8 * 60_000
    np.testing.assert_array_equal(np.asarray(program()), wanted)
    assert device.most_used <= 8 * 60_000
    device.others = device.memory
    np.testing.assert_array_equal(np.asarray(program()), wanted)  # nothing fits: every page is NumPy's


def test_without_memory_for_the_smallest_page_the_host_does_it(installed: Installed) -> None:
    wanted = expected()
    device = installed(SlowLink(rate=1e11, memory=1000))
    np.testing.assert_array_equal(np.asarray(program()), wanted)
    assert "slow" not in backends()
    assert device.most_used <= 1000


def test_a_lost_device_leaves_the_work_to_the_host(installed: Installed) -> None:
    wanted = expected()
    device = installed(SlowLink(rate=1e11, memory=6 * 8 * N // 8))
    device.pages_left = 9  # the comparisons before the first use, and a few pages
    np.testing.assert_array_equal(np.asarray(program()), wanted)
    chooser = installation._current._evaluator.chooser  # type: ignore[union-attr]
    assert any("slow: it fell off the bus" in each for each in chooser.absent())
    before = device.pages
    np.testing.assert_array_equal(np.asarray(program()), wanted)
    assert device.pages == before


def test_a_wrong_operation_stays_at_home_and_the_others_go(installed: Installed) -> None:
    wanted = expected()
    device = installed(SlowLink(rate=1e11))
    device.wrong = {"sin"}
    np.testing.assert_array_equal(np.asarray(program()), wanted)
    assert backends() == {"slow"}
    chooser = installation._current._evaluator.chooser  # type: ignore[union-attr]
    assert chooser.trust.refused == ["slow for sin of d"]


def test_faults_are_told_as_numpy_tells_them(installed: Installed) -> None:
    installed(SlowLink(rate=1e11))
    a = np.arange(float(N))
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        x = np.asarray(np.exp(np.sin(1.0 / a)))
    assert [str(each.message) for each in heard] == [
        "divide by zero encountered in divide", "invalid value encountered in sin"
    ]  # fmt: skip
    assert math.isnan(x[0])
    assert backends() == {"slow"}


def test_a_sum_comes_back_as_one_number(installed: Installed) -> None:
    shoal.offload.uninstall()
    a = np.linspace(0.1, 3.0, N)
    wanted = np.exp(np.sin(np.exp(np.sin(a)))).sum()
    device = installed(SlowLink(rate=1e10))
    a = np.linspace(0.1, 3.0, N)
    found = np.exp(np.sin(np.exp(np.sin(a)))).sum()  # not in the assert, which keeps what is in between
    assert found == pytest.approx(wanted, rel=1e-12)
    assert device.pages > 2
    assert device.moved < 1.1 * 8 * N + 10**6


def test_strict_and_a_setting_keep_everything_at_home(installed: Installed) -> None:
    for settings in ({"strict": True}, {"backends": "chunks"}):
        device = installed(SlowLink(rate=1e11), **settings)
        np.asarray(program())
        assert device.pages == 0


def test_tables_and_rows_and_rolled_arrays(installed: Installed) -> None:
    def table() -> Any:
        a = np.linspace(0.1, 3.0, N).reshape(100, -1)
        row = np.linspace(0.0, 1.0, N // 100)
        return np.exp(np.sin(a)) + np.roll(np.cos(a) * 1.0, 3, 1) * row

    shoal.offload.uninstall()
    wanted = table()
    installed(SlowLink(rate=1e11, memory=8 * N))
    np.testing.assert_array_equal(np.asarray(table()), wanted)
    assert "slow" in backends()
