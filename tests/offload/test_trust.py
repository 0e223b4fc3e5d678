"""What another backend gives is compared at first use; the special values come first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import erf

import shoal.offload
from shoal.offload import OffloadSettings
from shoal.offload.profile import PROFILE
from shoal.offload.settings import CompileMode
from shoal.offload.trust import Trust, agree, special_values


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda x: np.where(np.isnan(x), 0.0, x), "NaN"),
        (lambda x: np.where(np.isinf(x), np.finfo(float).max, x), "infinities"),
        (lambda x: np.abs(x) * np.sign(x), "the sign of zero"),
        (lambda x: x * (1 + 1e-9), "nine digits"),
        (lambda x: x.astype("f4").astype("f8"), "precision"),
        (lambda x: x.astype("f4"), "type"),
        (lambda x: np.where(np.abs(x) < 1e-308, 0.0, x) + 0 * x, "subnormal numbers"),
        (lambda x: x[:-1], "shape"),
    ],
)
def test_a_wrong_backend_is_refused(wrong: Any, why: str) -> None:
    trust = Trust()
    smallest_ok = why == "subnormal numbers"  # a few of the smallest steps are within every tolerance
    tolerance = 1e-12
    if smallest_ok:
        assert not agree(np.array([1e-309]), np.array([0.0]), tolerance)
    assert trust.of("other", why, "d", lambda: (lambda x: x, wrong), tolerance) is False
    assert trust.refused == [f"other for {why} of d"]


def test_an_equal_backend_is_trusted_and_asked_once() -> None:
    trust, asked = Trust(), []

    def functions() -> Any:
        asked.append(1)
        return (lambda x: np.sqrt(x)), (lambda x: np.sqrt(x) * (1 + 1e-16))

    assert trust.of("other", "sqrt", "d", functions, 1e-12)
    assert trust.of("other", "sqrt", "d", functions, 1e-12)
    assert asked == [1]


def test_a_backend_that_raises_is_refused() -> None:
    assert not Trust().of("other", "x", "f", lambda: ((lambda x: x), (lambda x: 1 // 0)), 1e-6)


def test_integers_must_be_equal() -> None:
    assert agree(np.arange(3), np.arange(3), 0.5)
    assert not agree(np.arange(3), np.array([0, 1, 3]), 0.5)


def test_special_values_have_both_signs() -> None:
    values = special_values("f")
    assert np.isnan(values).any()
    assert np.signbit(values[values == 0]).any()
    assert {np.inf, -np.inf} <= set(values.tolist())


@pytest.fixture
def waiting(tmp_path: Path) -> Any:
    """As soon as a backend could gain it is made ready, in the foreground."""
    pytest.importorskip("torch")
    shoal.offload.uninstall()
    PROFILE.clear()
    shoal.offload.install(
        OffloadSettings(threshold=1000, compile=CompileMode.WAIT, home=str(tmp_path), backends="chunks,torch")
    )
    yield
    shoal.offload.uninstall()


def test_vectorised_functions_of_torch_take_the_place_of_scalar_ones(waiting: None) -> None:
    x = np.linspace(-5, 5, 300_000)
    found = np.asarray(erf(x) * 2)
    shoal.offload.uninstall()
    expected = erf(np.linspace(-5, 5, 300_000)) * 2
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    assert ("erf", "torch") in {(each.call, each.backend) for each in PROFILE.records()}


def test_a_wrong_function_is_out_of_use(waiting: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    def wrong(values: Any, out: Any) -> None:
        out.copy_(values)

    monkeypatch.setattr(torch, "erf", wrong)
    x = np.linspace(-5, 5, 300_000)
    found = np.asarray(erf(x) * 2)
    shoal.offload.uninstall()
    np.testing.assert_array_equal(found, erf(np.linspace(-5, 5, 300_000)) * 2)
    assert {each.backend for each in PROFILE.records()} <= {"chunks", "plain"}
