"""Every split type: random programs against the library, and devices that refuse to be mixed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Invalid
from shoal.offload.annotations import (
    Backend,
    BlockSplit,
    Broadcast,
    DataFrameSplit,
    Generic,
    GroupMergeSplit,
    GroupSplit,
    MeanSplit,
    NdArraySplit,
    ReduceSplit,
    ScalarSplit,
    SplitType,
    SumSplit,
    UnknownSplit,
    VarSplit,
    evaluate,
    mut,
    oa,
    sa,
)
from shoal.placement import Link

xp = pytest.importorskip("array_api_strict")
pd = pytest.importorskip("pandas")

HOST, DEVICE = xp.Device("CPU_DEVICE"), xp.Device("device1")
S = Generic("S")


def placed(kind: type[SplitType]) -> Any:
    """The split type for arrays of the standard, which are on one of two devices."""

    class Placed(kind):  # type: ignore[misc, valid-type]
        def backend(self, value: Any) -> Backend:
            return Backend.GPU if value.device == DEVICE else Backend.CPU

        def to(self, value: Any, backend: Backend) -> Any:
            return value.to_device(DEVICE if backend is Backend.GPU else HOST)

        def size(self, value: Any) -> int:
            return int(value.size) * 8

    return Placed


Rows, Blocks = placed(NdArraySplit), placed(BlockSplit)
ROWS = Rows()


def seconds(count: int, backend: Backend) -> float:
    return count * (1e-6 if backend is Backend.CPU else 1e-8)


Made = Callable[[Callable[..., Any], tuple[SplitType, ...], SplitType, list[Any]], Any]


@pytest.fixture(params=[(1e12, Backend.GPU), (1e3, Backend.CPU)], ids=["fast link", "slow link"])
def device_call(request: pytest.FixtureRequest) -> Made:
    """Calls a function with arrays on the host, checks where it ran, and answers its value."""
    rate, wanted = request.param

    def call(function: Any, types: tuple[SplitType, ...], result: SplitType, arguments: list[Any]) -> Any:
        there: set[Backend] = set()

        def run(site: Backend) -> Callable[..., Any]:
            def counted(*args: Any) -> Any:
                there.add(site)
                at = DEVICE if site is Backend.GPU else HOST
                assert all(each.device == at for each in args if hasattr(each, "device"))
                return function(*args)

            return counted

        noted = oa(types, {}, result, func=run(Backend.GPU), estimator=seconds)(run(Backend.CPU))
        found = noted(*(xp.asarray(each, device=HOST) if isinstance(each, np.ndarray) else each for each in arguments))
        evaluate(link=Link(rate), batch=7)
        assert there == {wanted}
        if hasattr(found.value, "device"):
            assert found.value.device == HOST
        return np.asarray(found.value)

    return call


TABLE = np.random.default_rng(1).normal(1.0, 0.3, (21, 8))

REDUCTIONS: dict[str, tuple[Any, Any, SplitType]] = {
    "sum": (xp.sum, np.sum, SumSplit(ROWS)),
    "min": (xp.min, np.min, ReduceSplit(xp.minimum, ROWS)),
    "max": (xp.max, np.max, ReduceSplit(xp.maximum, ROWS)),
    "prod": (xp.prod, np.prod, ReduceSplit(xp.multiply, ROWS)),
    "any": (lambda a: xp.any(a > 1.7), lambda a: np.any(a > 1.7), ReduceSplit(xp.logical_or, ROWS)),
    "all": (lambda a: xp.all(a > 0.1), lambda a: np.all(a > 0.1), ReduceSplit(xp.logical_and, ROWS)),
    "mean": (xp.mean, np.mean, MeanSplit(ROWS)),
    "mean of columns": (lambda a: xp.mean(a, axis=0), lambda a: np.mean(a, axis=0), MeanSplit(ROWS)),
    "var": (xp.var, lambda a: np.var(a, ddof=1), VarSplit(xp.mean, 1, ROWS)),
    "var of columns": (
        lambda a: xp.var(a, axis=0), lambda a: np.var(a, axis=0), VarSplit(lambda a: xp.mean(a, axis=0), of=ROWS),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_on_devices(device_call: Made, name: str) -> None:
    function, plain, kind = REDUCTIONS[name]
    np.testing.assert_allclose(device_call(function, (ROWS,), kind, [TABLE]), plain(TABLE), rtol=1e-12)


@pytest.mark.parametrize("kind", [ROWS, Rows(1), Blocks((3, 2)), Blocks((5,))], ids=["rows", "axis", "blocks", "one"])
def test_cuts_on_devices(device_call: Made, kind: SplitType) -> None:
    found = device_call(lambda a, b: a * b + a, (kind, kind), kind, [TABLE, TABLE + 1])
    np.testing.assert_array_equal(found, TABLE * (TABLE + 1) + TABLE)


def test_whole_arrays_scalars_and_unknown_numbers_on_devices(device_call: Made) -> None:
    def chosen(a: Any, factor: Any, limit: float) -> Any:
        product = a * factor
        return product[product > limit]

    column, factor = TABLE[:, 0].copy(), np.array([1.1])
    given = [column, factor, 0.9]
    found = device_call(chosen, (ROWS, Broadcast(ROWS), ScalarSplit()), UnknownSplit(ROWS), given)
    np.testing.assert_array_equal(found, (column * 1.1)[column * 1.1 > 0.9])


def test_tables_are_moved_nowhere_without_a_type_that_does() -> None:
    group = oa(
        (GroupSplit("k"),), {}, GroupSplit("k"), func=lambda each: each, estimator=lambda n, at: float(at == "cpu")
    )
    with pytest.raises(Invalid, match=r"GroupSplit.* does not move values to gpu"):
        group(lambda each: each)(pd.DataFrame({"k": range(100)})).value  # noqa: B018


def test_what_is_written_on_the_host_is_written_there() -> None:
    def double(a: Any) -> Any:
        a *= 2
        return a

    x = np.arange(100.0)
    kind = NdArraySplit()
    oa((mut(kind),), {}, kind, func=double, estimator=seconds)(double)(x)
    evaluate(link=Link(1e12))
    np.testing.assert_array_equal(x, np.arange(100.0) * 2)


def test_a_value_is_whole_for_one_argument_and_cut_for_another() -> None:
    x = np.arange(12.0).reshape(4, 3)
    product = sa((NdArraySplit(), Broadcast()), {}, NdArraySplit())(lambda a, b: a @ b.T)
    found = product(x, x)
    evaluate(batch=1)
    np.testing.assert_array_equal(found.value, x @ x.T)


ARRAYS: tuple[tuple[Any, SplitType, SplitType], ...] = (
    (np.sum, NdArraySplit(), SumSplit()),
    (np.min, NdArraySplit(), ReduceSplit(np.minimum)),
    (lambda a: np.max(a, axis=0), NdArraySplit(), ReduceSplit(np.maximum)),
    (lambda a: np.mean(a, axis=1), NdArraySplit(1), MeanSplit()),
    (np.var, BlockSplit((3, 2)), VarSplit(np.mean)),
    (lambda a: np.var(a, axis=0), NdArraySplit(), VarSplit(lambda a: np.mean(a, axis=0))),
    (lambda a: np.any(a > 2), NdArraySplit(), ReduceSplit(np.logical_or)),
    (lambda a: np.all(a > -9, axis=0), NdArraySplit(), ReduceSplit(np.logical_and)),
    (np.abs, BlockSplit((2, 3)), BlockSplit((2, 3))),
    (np.abs, BlockSplit((4,)), BlockSplit((4,))),
    (np.cumsum, Broadcast(), Broadcast()),
    (lambda a: np.cumsum(a, axis=0), NdArraySplit(1), NdArraySplit(1)),
    (lambda a: a[a[:, 0] > 0], NdArraySplit(), UnknownSplit(NdArraySplit())),
)


@given(st.integers(0, len(ARRAYS) - 1), st.integers(6, 30), st.integers(3, 9), st.integers(1, 30), st.integers(0, 99))
def test_pieces_give_what_the_whole_gives(number: int, rows: int, columns: int, batch: int, seed: int) -> None:
    function, kind, result = ARRAYS[number]
    table = np.random.default_rng(seed).normal(0, 2, (rows, columns))
    found = sa((kind,), {}, result)(function)(table)
    evaluate(batch=batch)
    np.testing.assert_allclose(found.value, function(table), rtol=1e-10, atol=1e-12)


@given(st.lists(st.integers(-3, 3), max_size=60), st.integers(1, 20), st.integers(1, 5))
def test_filters_go_on_piece_by_piece_and_alone(values: list[int], batch: int, limit: int) -> None:
    x = np.array(values, float)
    sizes: list[int] = []

    def root(a: Any) -> Any:
        sizes.append(len(a))
        return np.sqrt(np.abs(a))

    above = sa((NdArraySplit(), ScalarSplit()), {}, UnknownSplit(NdArraySplit()))(lambda a, n: a[a < n])
    chosen = above(x, limit)
    after = sa((S,), {}, S)(root)(chosen)
    both = sa((S, S), {}, S)(np.add)(after, np.arange(float((x < limit).sum())))
    total = sa((S,), {}, SumSplit())(np.sum)(after)
    evaluate(batch=batch)
    expected = np.sqrt(np.abs(x[x < limit]))
    np.testing.assert_array_equal(after.value, expected)
    np.testing.assert_array_equal(both.value, expected + np.arange(len(expected)))
    assert total.value == pytest.approx(expected.sum())
    assert len(sizes) == max(1, -(-len(x) // batch))


GROUPED: tuple[tuple[Any, SplitType, SplitType], ...] = (
    (lambda each: each.groupby("k").agg("median"), GroupSplit("k"), GroupSplit("k")),
    (lambda each: each.groupby("k")["v"].nunique(), GroupSplit("k", 3), GroupSplit("k", 3)),
    (lambda each: each.groupby(["k", "s"])["v"].max(), GroupSplit(["k", "s"]), GroupSplit(["k", "s"])),
    (lambda each: each.assign(v=each.groupby("k")["v"].cumsum()), GroupSplit("k"), GroupSplit("k")),
    (lambda each: each.groupby("k")["v"].count(), DataFrameSplit(), GroupMergeSplit("sum")),
    (lambda each: each.groupby(["k", "s"])[["v"]].min(), DataFrameSplit(), GroupMergeSplit("min")),
    (lambda each: each.groupby("s")["v"].sum(), DataFrameSplit(), GroupMergeSplit("sum")),
    (lambda each: each.groupby("s").first(), DataFrameSplit(), GroupMergeSplit("first")),
)

ROW = st.tuples(st.integers(-4, 4), st.sampled_from(["a", "b", ""]), st.sampled_from([0.0, 1.5, -2.0, float("nan")]))


@given(st.integers(0, len(GROUPED) - 1), st.lists(ROW, min_size=1, max_size=40), st.integers(1, 40))
def test_groups_give_what_pandas_gives(number: int, rows: list[tuple[int, str, float]], batch: int) -> None:
    function, kind, result = GROUPED[number]
    frame = pd.DataFrame(rows, columns=["k", "s", "v"])
    if number == 0:
        frame = frame[["k", "v"]]
    found = sa((kind,), {}, result)(function)(frame)
    evaluate(batch=batch)
    equal = pd.testing.assert_frame_equal if isinstance(found.value, pd.DataFrame) else pd.testing.assert_series_equal
    equal(found.value, function(frame))


def test_what_differs_from_piece_to_piece_is_no_scalar_and_tables_have_no_mean() -> None:
    length = sa((NdArraySplit(),), {}, ScalarSplit())(len)(np.ones(10))
    with pytest.raises(Invalid, match="a scalar differs from piece to piece"):
        evaluate(batch=3)
    assert length.pending is False
    width = sa((NdArraySplit(),), {}, ScalarSplit())(lambda a: a.shape[1])(TABLE)
    evaluate(batch=3)
    assert width.value == 8
    with pytest.raises(Invalid, match="a mean of a table has no parts that can be merged"):
        sa((DataFrameSplit(),), {}, MeanSplit())(lambda each: each.mean())(pd.DataFrame({"a": [1.0]})).value  # noqa: B018
