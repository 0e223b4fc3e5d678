"""Compiled kernels: what NumPy gives, for every type, special value, warning and layout; and the doubt about them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal.offload
from shoal.offload import OffloadSettings
from shoal.offload.arrays.kernel_text import functions_of
from shoal.offload.arrays.recipe import NAMES, Recipe, Step
from shoal.offload.profile import PROFILE
from shoal.offload.settings import CompileMode
from shoal.offload.trust import agree

pytest.importorskip("llvmlite")

Program = Callable[..., Any]

_CACHE: list[Path] = []


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One folder of kernels for all tests here."""
    _CACHE.append(tmp_path_factory.mktemp("offload"))
    yield
    _CACHE.pop()


def both(program: Program, inputs: Callable[[], list[np.ndarray]], **settings: Any) -> tuple[Any, Any, set[str]]:
    """What plain NumPy gives, what capture gives, and the backends that worked. Each with its warnings."""

    def run() -> Any:
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            found = program(*inputs())
            shown = [np.array(each) for each in (found if isinstance(found, tuple) else (found,))]
        return shown, sorted((str(each.message), each.lineno) for each in heard)

    shoal.offload.uninstall()
    expected = run()
    PROFILE.clear()
    given_settings = {"threshold": 1, "threads": 2, "compile": CompileMode.WAIT, "home": str(_CACHE[-1])}
    shoal.offload.install(OffloadSettings(**{**given_settings, **settings}))
    try:
        found = run()
    finally:
        shoal.offload.uninstall()
    return expected, found, {each.backend for each in PROFILE.records()}


def draw(*chars: str, size: int = 300_000, special: bool = False) -> Callable[[], list[np.ndarray]]:
    def make() -> list[np.ndarray]:
        rng, found = np.random.default_rng(0), []
        for char in chars:
            array = np.empty(size, char)
            array[...] = (
                rng.uniform(0.1, 0.9, size) if char in "df" else rng.integers(0, 2 if char == "?" else 50, size)
            )
            if special and char in "df":
                array[:7] = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, 1e300 if char == "d" else 1e38])
            found.append(array)
        return found

    return make


def test_the_largest_value_of_a_chain_needs_no_kernel() -> None:
    def extremes(a: Any) -> Any:
        for _ in range(3):
            y, z = np.exp(a * 2.0) + a, np.sin(a) - a
            found = np.array([y.max(), z.min(), np.max(y * 2.0)])
        return found

    (expected, _), (found, _), _ = both(extremes, draw("d"))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-14)


def test_a_chain_is_compiled_within_the_tolerance() -> None:
    def distance(a: Any, b: Any) -> Any:
        return np.arcsin(np.sqrt(np.sin(a / 2) ** 2 + np.cos(a) * np.sin(b / 2) ** 2 * 0.5)) * 2.5

    (expected, _), (found, heard), backends = both(distance, draw("d", "d"))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-13)
    assert "compiled" in backends
    assert not heard


@pytest.mark.parametrize("strict", [False, True])
def test_arithmetic_is_equal_bit_by_bit(strict: bool) -> None:
    def chain(a: Any, b: Any) -> Any:
        return np.where(a > b, a / b - 3, np.maximum(a, b) * -b) + np.floor(a * 7) + np.sqrt(b)

    (expected, _), (found, _), backends = both(chain, draw("d", "d"), strict=strict)
    assert found[0].tobytes() == expected[0].tobytes()
    assert "compiled" in backends


def test_functions_stay_numpys_own_where_the_settings_are_strict() -> None:
    (expected, _), (found, _), backends = both(lambda a: np.exp(a) * 2 + 1, draw("d"), strict=True)
    assert found[0].tobytes() == expected[0].tobytes()
    assert "compiled" not in backends


OPERATIONS: tuple[Callable[[Any, Any], Any], ...] = (
    lambda a, b: a + b, lambda a, b: a - b, lambda a, b: a * b, lambda a, b: a < b, lambda a, b: a >= b,
    lambda a, b: a == b, lambda a, b: a != b, np.maximum, np.minimum, lambda a, b: np.where(a, b, a),
    lambda a, b: np.logical_and(a, b), lambda a, b: np.logical_xor(a, b), lambda a, _: -a if a.dtype != bool else a,
    lambda a, _: np.isnan(a * 1.0), lambda a, _: np.isfinite(a * 1.0), lambda a, _: abs(a * 1.0),
    lambda a, b: a / (b + 100.5), lambda a, _: a * 1.0 + 2, lambda a, _: np.rint(a * 1.5), lambda _, b: ~(b > 1),
)  # fmt: skip


@given(
    st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=5), st.sampled_from(["dd", "ff", "df", "dl", "fi", "l?"])
)
def test_types_mix_as_in_numpy(operations: list[Program], chars: str) -> None:
    def chain(a: Any, b: Any) -> Any:
        for operation in operations:
            a = operation(a, b)
        return a

    try:
        (expected, said), (found, heard), _ = both(chain, draw(*chars, size=1003, special=True))
    except TypeError:
        return  # NumPy has no such operation
    assert agree(expected[0], found[0], 0.0)
    assert heard == said


def test_faults_are_told_as_numpy_tells_them() -> None:
    def chain(a: Any, b: Any) -> Any:
        inverse = 1 / a
        return np.where(a > 0, inverse, 0.0) + np.log(b - 0.5)

    (expected, said), (found, heard), backends = both(chain, draw("d", "d", special=True))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-13)
    assert heard == said
    assert {text for text, _ in said} >= {"divide by zero encountered in divide", "invalid value encountered in log"}
    assert "compiled" in backends


def test_data_with_missing_values_gets_a_kernel_that_expects_them() -> None:
    made = draw("d")

    def holes() -> list[np.ndarray]:
        values = made()
        values[0][::100] = np.nan
        return values

    def again(a: Any) -> Any:
        return tuple(np.array(np.exp(a * number) + 1) for number in (1.0, 2.0, 3.0))

    (expected, said), (found, heard), backends = both(again, holes)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13)
    assert heard == said == []
    assert "compiled" in backends


def test_rows_and_columns_are_repeated() -> None:
    def pairs(a: Any) -> Any:
        place = a[:1500]
        return np.exp(place[None, :] - place[:, None]) * place[:, None]

    (expected, _), (found, _), backends = both(pairs, draw("d"))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-13)
    assert "compiled" in backends


def test_constants_are_arguments() -> None:
    def loop(a: Any) -> Any:
        return tuple(np.array(a * number + np.float64(number)) for number in range(5))

    before = len(list(_CACHE[-1].rglob("*.o")))
    (expected, _), (found, _), _ = both(loop, draw("d"))
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]
    assert len(list(_CACHE[-1].rglob("*.o"))) <= before + 2


@pytest.mark.parametrize("size", [1, 5, 1023, 2047, 2048, 300_001])
def test_sums_do_not_store_what_they_add(size: int) -> None:
    (expected, _), (found, _), _ = both(
        lambda a: ((a * 2 + 1).sum(), (a * 3).mean(), (a.astype("f4") * 2).sum()), draw("d", size=size)
    )
    for one, other in zip(found, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-13 if one.dtype == "f8" else 1e-5)


def test_a_wrong_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(NAMES, "tan", "sin")  # type: ignore[attr-defined]
    (expected, _), (found, _), backends = both(lambda a: np.tan(a) * 2 + 1, draw("d"))
    assert found[0].tobytes() == expected[0].tobytes()
    assert "compiled" not in backends


def test_another_function_of_the_same_name_is_not_taken_for_numpys() -> None:
    special = pytest.importorskip("scipy.special")
    assert special.expm1 is not np.expm1
    (expected, _), (found, _), _ = both(lambda a: special.expm1(a) * 2, draw("d"))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-13)


def test_a_library_without_the_function_leaves_the_program_to_blocks() -> None:
    recipe = Recipe((("d", True),), (Step("exp", "d", "d", ()),), (0,), "")
    assert functions_of(recipe, 3) is None


def test_without_llvmlite_blocks_do_the_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "llvmlite" else sys)
    (expected, _), (found, _), backends = both(lambda a: a * 2 + 1, draw("d"), backends="chunks,compiled")
    assert found[0].tobytes() == expected[0].tobytes()
    assert "compiled" not in backends


def test_a_damaged_kernel_on_disk_is_made_anew() -> None:
    def chain(a: Any) -> Any:
        return np.cos(a) * 11 - a

    both(chain, draw("d"))
    for each in _CACHE[-1].rglob("*.o"):
        each.write_bytes(each.read_bytes()[:-9])
    (expected, _), (found, _), backends = both(chain, draw("d"))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
    assert "compiled" in backends


@pytest.mark.few(count=4)
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("shift", [1, -3, 0, 700])
def test_rolled_arrays_are_read_in_place(axis: int, shift: int) -> None:
    def stencil(flat: Any) -> Any:
        a = flat.reshape(500, 600) * 2
        moved = np.roll(a * 3, shift, axis)
        kept = np.roll(moved, 1, axis)
        return np.roll(a, shift, axis) - a * moved, np.roll(kept + a, shift, axis=axis) + np.sqrt(a), kept

    (expected, _), (found, _), backends = both(stencil, draw("d"))
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]
    assert "compiled" in backends


def test_a_rolled_array_is_read_before_its_source_is_written() -> None:
    def program(a: Any) -> Any:
        moved = np.roll(a, 5) + 1
        a[:] = 0
        return moved, a, np.roll(a + 1, shift=2), np.roll(a, (1,), (0,))

    (expected, _), (found, _), _ = both(program, draw("d"))
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]


def test_steps_of_a_simulation_do_not_wait_for_each_other_in_a_circle() -> None:
    def steps(flat: Any) -> Any:
        u, h = flat[:90_000].reshape(300, 300), flat[90_000:180_000].reshape(300, 300)
        for _ in range(4):
            slope = np.roll(h, -1, 1) - np.roll(h, 1, 1)
            flow = np.roll(u * h, -1, 1) - np.roll(u * h, 1, 0)
            u, h = u - slope * 0.1 - 0.1 * u, h - flow * 0.1
        return h, u

    (expected, _), (found, _), _ = both(steps, draw("d"))
    assert [each.tobytes() for each in found] == [each.tobytes() for each in expected]
