"""The token bucket in a shared page: native and plain Python do the same."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from shoal.core import Invalid
from shoal.host.native import Native, load
from shoal.host.pacing import CHUNK_BYTES, ENVIRONMENT, Pace, Rate
from shoal.host.types import Missing

PLAIN = Missing("as if it were not built")


@pytest.fixture(params=["native", "plain"])
def native(request: pytest.FixtureRequest) -> Native | Missing:
    if request.param == "plain":
        return PLAIN
    found = load()
    if isinstance(found, Missing):
        pytest.skip(found.reason)
    return found


@pytest.fixture
def rate(tmp_path: Path) -> Iterator[Rate]:
    made = Rate(tmp_path / "rate")
    yield made
    made.close()


def test_without_a_rate_nothing_waits(tmp_path: Path, rate: Rate, native: Native | Missing) -> None:
    with Pace(tmp_path / "rate", native=native) as pace:
        pace.take(1 << 30)
    assert rate.waited_s == 0
    assert rate.taken_bytes == 1 << 30


def test_bytes_are_booked_at_the_rate(tmp_path: Path, rate: Rate, native: Native | Missing) -> None:
    rate.set(100e6, lease_s=60)
    began = time.monotonic_ns()
    with Pace(tmp_path / "rate", native=native) as pace:
        pace.take(2_000_000)
    booked_s = (rate._page.bucket.next_ns - began) / 1e9
    assert booked_s >= 0.020 - 0.003  # 2 MB at 100 MB/s, less the burst of 256 KiB
    assert rate.waited_s > 0
    assert time.monotonic_ns() - began >= (0.020 - 0.004) * 1e9  # the last chunk's own time is not waited for


def test_takers_share_one_rate(tmp_path: Path, rate: Rate, native: Native | Missing) -> None:
    rate.set(200e6, lease_s=60)
    began = time.monotonic_ns()
    pace = Pace(tmp_path / "rate", native=native)
    threads = [threading.Thread(target=pace.take, args=(1_000_000,)) for _ in range(2)]
    code = (
        "import sys; from shoal.host.pacing import Pace; from shoal.host.types import Missing;"
        "Pace(sys.argv[1], native=Missing('no') if sys.argv[2] == 'plain' else None).take(1_000_000)"
    )
    kind = "plain" if isinstance(native, Missing) else "native"
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "rate"), kind])
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert process.wait(30) == 0
    assert rate.taken_bytes == 3_000_000
    assert rate._page.bucket.next_ns - began >= (0.015 - 0.004) * 1e9


def test_a_rate_lapses_with_its_lease(tmp_path: Path, rate: Rate, native: Native | Missing) -> None:
    rate.set(1000, lease_s=0.05)  # a chunk would take a minute
    with Pace(tmp_path / "rate", native=native) as pace:
        pace.take(10 * CHUNK_BYTES)
    assert rate.taken_bytes == 10 * CHUNK_BYTES
    assert rate.waited_s < 60


def test_a_closed_controller_limits_nobody(tmp_path: Path, native: Native | Missing) -> None:
    rate = Rate(tmp_path / "rate")
    rate.set(1000, lease_s=3600)
    rate.close()
    with Pace(tmp_path / "rate", native=native) as pace:
        pace.take(10 * CHUNK_BYTES)


@given(size=some.integers(0, 300_000), seed=some.integers(0, 2**32 - 1), readonly=some.booleans())
def test_copies_are_exact(tmp_path_factory: pytest.TempPathFactory, size: int, seed: int, readonly: bool) -> None:
    source = np.random.default_rng(seed).integers(0, 256, size, np.uint8)
    source.flags.writeable = not readonly
    path = tmp_path_factory.mktemp("pace") / "rate"
    rate = Rate(path)
    rate.set(10e9, lease_s=60)
    for native in (load(), PLAIN):
        target = np.zeros(size, np.uint8)
        with Pace(path, native=native) as pace:
            pace.copy(target, source)
        assert np.array_equal(source, target)
    assert rate.taken_bytes == 2 * size
    rate.close()


def test_copy_refuses_what_does_not_fit(tmp_path: Path, rate: Rate) -> None:
    pace = Pace(tmp_path / "rate")
    with pytest.raises(Invalid, match="do not fit"):
        pace.copy(bytearray(3), b"four")
    with pytest.raises(Invalid, match="cannot be written"):
        pace.copy(b"once", b"four")


def test_without_a_page_nothing_is_limited(tmp_path: Path) -> None:
    for environment in ({}, {ENVIRONMENT: str(tmp_path / "nowhere")}):
        with Pace.from_environment(environment) as pace:
            target = bytearray(4)
            pace.take(1 << 40)
            pace.copy(target, b"four")
        assert target == b"four"


def test_the_environment_names_the_page(tmp_path: Path, rate: Rate) -> None:
    with Pace.from_environment({ENVIRONMENT: str(tmp_path / "rate")}) as pace:
        pace.take(7)
    assert rate.taken_bytes == 7


def test_bad_pages_and_rates_are_refused(tmp_path: Path, rate: Rate) -> None:
    (tmp_path / "short").write_bytes(b"x")
    with pytest.raises(Invalid, match="no page of a pacing rate"):
        Pace(tmp_path / "short")
    for wrong in (0.0, -1.0, float("nan")):
        with pytest.raises(Invalid, match="at least one byte"):
            rate.set(wrong)
