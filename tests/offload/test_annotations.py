"""Annotated functions: cut, run on all cores or on a device, and put together as the library would have done it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Invalid
from shoal.offload.annotations import (
    Backend,
    Broadcast,
    DataFrameSplit,
    Deferred,
    Generic,
    NdArraySplit,
    SplitType,
    SumSplit,
    alloc,
    annotate,
    evaluate,
    mut,
    oa,
    oa_alloc,
    sa,
)
from shoal.placement import Link

S = Generic("S")
ROWS = NdArraySplit()


def counted(function: Callable[..., Any]) -> Any:
    """The function with the sizes of what it was called with."""

    def call(*args: Any, **options: Any) -> Any:
        call.sizes.append(tuple(np.shape(each) for each in args))  # type: ignore[attr-defined]
        return function(*args, **options)

    call.sizes = []  # type: ignore[attr-defined]
    return call


def test_a_chain_runs_piece_by_piece_when_its_value_is_looked_at() -> None:
    first, second = counted(np.multiply), counted(np.sqrt)
    multiply, sqrt = sa((S, S), {}, S)(first), sa((S,), {}, S)(second)
    x = np.arange(100.0)
    found = sqrt(multiply(x, 2.0))
    assert isinstance(found, Deferred)
    assert first.sizes == []
    evaluate(workers=1, batch=30)
    assert [each[0] for each in first.sizes] == [each[0] for each in second.sizes] == [(30,), (30,), (30,), (10,)]
    np.testing.assert_array_equal(found.value, np.sqrt(x * 2))


def test_reductions_are_put_together_and_then_used_whole() -> None:
    total = sa((ROWS,), {}, SumSplit())(np.sum)
    divide = sa((S, Broadcast()), {}, S)(np.divide)
    x = np.arange(1.0, 101.0)
    share = divide(x, total(x))
    evaluate(batch=7)
    np.testing.assert_allclose(share.value, x / x.sum())


def test_rows_of_tables_and_of_any_number_of_dimensions() -> None:
    pd = pytest.importorskip("pandas")
    add = sa((S, S), {}, S)(lambda a, b: a + b)
    frame = pd.DataFrame({"a": range(50), "b": 1.5})
    found = add(frame, frame)
    cube = np.arange(120.0).reshape(10, 3, 4)
    other = add(cube, 1)
    evaluate(batch=4)
    pd.testing.assert_frame_equal(found.value, frame + frame)
    np.testing.assert_array_equal(other.value, cube + 1)
    groups = sa((DataFrameSplit(),), {}, SumSplit())(lambda each: each["a"].sum())
    assert groups(frame).value == frame["a"].sum()


def test_a_mutated_argument_is_written_where_it_is() -> None:
    add = sa((ROWS, ROWS), {"out": mut(ROWS)}, ROWS)(np.add)
    empty = alloc(ROWS)(np.empty)
    a, out = np.arange(50.0), np.zeros(50)
    add(a, a, out=out)
    after = add(out, a, out=empty(50))
    evaluate(batch=8)
    np.testing.assert_array_equal(out, a * 2)
    np.testing.assert_array_equal(after.value, a * 3)


def test_overlapping_memory_is_not_cut() -> None:
    add = sa((ROWS, ROWS), {"out": mut(ROWS)}, ROWS)(np.add)
    x, y = np.arange(100.0), np.arange(100.0)
    add(x[1:], x[:-1], out=x[1:])
    evaluate(batch=8)
    np.add(y[1:], y[:-1], out=y[1:])
    np.testing.assert_array_equal(x, y)


OPERATIONS: tuple[tuple[Any, int], ...] = (
    (np.add, 2),
    (np.subtract, 2),
    (np.sqrt, 1),
    (np.maximum, 2),
    (np.negative, 1),
)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9), st.integers(0, 9)), max_size=12), st.integers(1, 60))
def test_every_program_gives_what_the_library_gives(steps: list[tuple[int, int, int]], batch: int) -> None:
    plain: list[Any] = [np.arange(50.0), np.linspace(0, 1, 50), 3.0]
    noted: list[Any] = [plain[0].copy(), plain[1].copy(), 3.0]
    with np.errstate(all="ignore"):
        for number, first, second in steps:
            function, count = OPERATIONS[number]
            places = [each % len(plain) for each in (first, second)][:count]
            plain.append(function(*(plain[each] for each in places)))
            noted.append(sa((S,) * count, {}, S)(function)(*(noted[each] for each in places)))
        evaluate(batch=batch)
        for one, other in zip(plain, noted, strict=True):
            np.testing.assert_array_equal(one, other.value if isinstance(other, Deferred) else other)


def test_errors_belong_to_the_call_and_to_those_that_need_it() -> None:
    def fail(_: Any) -> Any:
        raise ZeroDivisionError("at piece")

    bad, good = sa((S,), {}, S)(fail), sa((S,), {}, S)(np.negative)
    x = np.ones(10)
    failed, fine = bad(x), good(np.ones(7))
    needs = good(failed)
    with pytest.raises(ZeroDivisionError):
        evaluate()
    np.testing.assert_array_equal(fine.value, -np.ones(7))
    for each in (failed, needs):
        with pytest.raises(ZeroDivisionError):
            assert each.value
    with pytest.raises(Invalid, match=r"the arguments of add have 3 and 4 elements"):
        assert sa((ROWS, ROWS), {}, ROWS)(np.add)(np.ones(3), np.ones(4)).value
    with pytest.raises(Invalid, match="argument 'where' of add has no split type"):
        sa((S, S), {}, S)(np.add)(x, x, where=True)


class OnDevice:
    """An array on a device that no function of the host takes."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.shape, self.ndim, self.nbytes = array.shape, array.ndim, array.nbytes


class Moved(SplitType):
    """Arrays, and how many bytes went over the link."""

    in_place = True
    moved = 0

    def elements(self, value: Any) -> int | None:
        return int(value.shape[0]) if getattr(value, "ndim", 0) else None

    def split(self, start: int, stop: int, value: Any) -> Any:
        return OnDevice(value.array[start:stop]) if isinstance(value, OnDevice) else value[start:stop]

    def combine(self, pieces: Any) -> Any:
        if isinstance(pieces[0], OnDevice):
            return OnDevice(np.concatenate([each.array for each in pieces]))
        return np.concatenate(pieces)

    def backend(self, value: Any) -> Backend:
        return Backend.GPU if isinstance(value, OnDevice) else Backend.CPU

    def to(self, value: Any, backend: Backend) -> Any:
        if backend is self.backend(value):
            return value
        Moved.moved += value.nbytes
        return OnDevice(value) if backend is Backend.GPU else value.array


def device(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function for arrays on the device; those of the host are refused, as a real device refuses them."""

    def call(*args: Any) -> Any:
        assert all(isinstance(each, OnDevice | float) for each in args)
        return OnDevice(function(*(each.array if isinstance(each, OnDevice) else each for each in args)))

    return call


def heavy(count: int, backend: Backend) -> float:
    """A hundred times faster on the device."""
    return count * (1e-6 if backend is Backend.CPU else 1e-8)


@pytest.mark.parametrize(("rate", "gains"), [(1e10, True), (1e5, False)])
def test_a_chain_goes_to_the_device_where_the_link_repays_it(rate: float, gains: bool) -> None:
    kind = Moved()
    sine = oa((kind,), {}, kind, func=device(np.sin), estimator=heavy)(np.sin)
    scale = oa((kind, Broadcast()), {}, kind, func=device(np.multiply), estimator=heavy)(np.multiply)
    x = np.arange(4000.0)
    Moved.moved = 0
    found = scale(sine(sine(x)), 2.0)
    evaluate(link=Link(rate), batch=1000)
    np.testing.assert_array_equal(found.value, np.sin(np.sin(x)) * 2)
    assert Moved.moved == (2 * x.nbytes if gains else 0)


def test_a_result_stays_where_it_is_wanted_and_force_cpu_stays_home() -> None:
    kind = Moved()
    sine = oa((kind,), {}, kind, func=device(np.sin), estimator=heavy)(np.sin)
    x = np.arange(100.0)
    found = sine(x)
    found.materialize = Backend.GPU
    evaluate(link=Link(1e10))
    assert isinstance(found.value, OnDevice)
    Moved.moved = 0
    home = sine(x)
    evaluate(link=Link(1e10), force_cpu=True)
    np.testing.assert_array_equal(home.value, np.sin(x))
    assert Moved.moved == 0


def test_without_an_estimator_a_function_stays_on_the_host() -> None:
    kind = Moved()
    sine = oa((kind,), {}, kind, func=device(np.sin))(np.sin)
    zeros = oa_alloc(kind, func=device(np.zeros))(np.zeros)
    np.testing.assert_array_equal(sine(zeros(5)).value, np.zeros(5))


def test_a_library_function_is_declared_for_the_whole_process() -> None:
    smooth = counted(lambda x, weight, shift=0.0: x * weight + shift)
    library = SimpleNamespace(smooth=smooth)
    undo = annotate(library, "smooth", (ROWS, Broadcast()), {"shift": Broadcast()}, ROWS, threshold=1000)
    x = np.arange(200_000.0)
    found = library.smooth(x, 2.0, shift=1.0)
    assert type(found) is np.ndarray
    np.testing.assert_array_equal(found, x * 2 + 1)
    assert len(smooth.sizes) > 1
    np.testing.assert_array_equal(library.smooth(x[:10], 2.0), x[:10] * 2)
    assert smooth.sizes[-1] == ((10,), ())
    undo()
    assert library.smooth is smooth


def test_a_loop_that_looks_at_nothing_needs_no_memory_that_grows() -> None:
    calls = counted(np.add)
    add = sa((S, S), {}, S)(calls)
    x: Any = np.ones(10)
    for _ in range(600):
        x = add(x, 1.0)
    assert len(calls.sizes) >= 512
    assert x.value[0] == 601
