"""Hostile uses of captured arrays, each against what plain NumPy does."""

from __future__ import annotations

import copy
import ctypes
import gc
import operator
import os
import pickle
import resource
import sys
import threading
import types
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib import recfunctions

import shoal.offload
from shoal.offload import OffloadSettings
from shoal.offload.arrays.lazy import Lazy
from shoal.offload.profile import PROFILE
from shoal.offload.settings import Fallback

pytestmark = pytest.mark.usefixtures("captured")

N = 1000


def is_pending(array: Any) -> bool:
    return type(array).__name__ == "Lazy" and array.pending


@pytest.fixture(autouse=True)
def the_program_is_this_file(captured: None) -> None:
    PROFILE.clear()


def values() -> Any:
    return np.arange(N, dtype=float)


def test_a_result_is_an_array_to_isinstance_and_is_computed_at_the_first_look() -> None:
    result = values() * 2 + 1
    assert isinstance(result, np.ndarray)
    assert (result.shape, result.dtype, result.size, result.nbytes) == ((N,), np.dtype(float), N, 8 * N)
    assert is_pending(result)
    assert result[3] == 7.0
    assert not is_pending(result)


def test_what_is_written_after_an_operation_is_not_seen_by_it() -> None:
    a, b = values(), values()
    x = a + b
    view = a[::2]
    y = view * 3
    a[:] = 0
    assert x[5] == 10.0
    assert y[2] == 12.0
    assert (a + 1)[5] == 1.0


ALIASES = [
    lambda a: np.asarray(a), lambda a: a.view(np.ndarray), lambda a: np.asarray(a[:]),
    lambda a: np.asarray(a).reshape(10, -1)[0], lambda a: a.flat,
    lambda a: np.ctypeslib.as_array(a.ctypes.data_as(DOUBLES), (N,)), lambda a: np.real(a), lambda a: a[:500],
]  # fmt: skip
DOUBLES = ctypes.POINTER(ctypes.c_double)


@pytest.mark.parametrize("take", ALIASES)
@pytest.mark.parametrize("of_view", [False, True])
def test_writing_past_the_tracked_array(take: Any, of_view: bool) -> None:
    first = values()
    a = first[:] if of_view else first
    before = take(a)
    x = a + 1
    before[0] = 100.0
    assert x[0] == 1.0
    b = values()
    y = b + 1
    take(b)[0] = 100.0
    assert (y[0], b[0]) == (1.0, 100.0)


def test_an_overlapping_sum_is_as_in_numpy() -> None:
    shoal.offload.uninstall()
    expected = np.arange(N, dtype=float)
    expected[1:] += expected[:-1]
    shoal.offload.install(OffloadSettings(threshold=1, threads=2))
    found = values()
    found[1:] += found[:-1]
    assert found.tobytes() == expected.tobytes()
    backwards = values()
    result = np.add(backwards, 1.0, out=backwards[::-1])
    assert (result[0], result[-1], backwards[0]) == (1.0, float(N), float(N))


def test_out_is_the_callers_own_object() -> None:
    a, out = values(), np.empty(N)
    view = out[:]
    assert np.add(a, 1, out=view) is view
    assert np.sum(a.reshape(10, -1), axis=0, out=(target := np.empty(N // 10))) is target
    pending = a * 2
    assert np.multiply(a, 3, out=pending) is pending
    assert pending[1] == 3.0
    assert out[1] == 2.0


@pytest.mark.parametrize("make", [values, lambda: values() * 2])
def test_an_array_grows_and_shrinks_in_place(make: Any) -> None:
    array = make()
    expected = np.array(array).tolist()
    array.resize(2 * N)
    assert array.tolist() == [*expected, *[0.0] * N]
    array.resize((2, 3))
    assert array.shape == (2, 3)
    assert (array + 1)[0].tolist() == [each + 1 for each in expected[:3]]
    other = make()
    kept = other[1:]
    with pytest.raises(ValueError, match="refer"):
        other.resize(5)
    with pytest.raises(ValueError, match="own"):
        kept.resize(5)
    assert kept[0] == expected[1]
    other.resize((N // 2, 2))
    assert other.shape == (N // 2, 2)


def test_a_result_that_is_an_argument_is_the_callers_own_object() -> None:
    square, out = np.ones((40, 40)), np.empty((40, 40))
    assert np.dot(square, square, out) is out
    assert np.dot(square, square, out=out) is out
    assert (square * 1.4).round(out=out) is out
    assert out[0, 0] == 1.0

    class Decides:
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
            return ("its own", len(options.get("out", ())))

    assert np.sin(Decides(), out) == ("its own", 1)  # type: ignore[call-overload]


def test_promotion_and_overflow_are_those_of_numpy() -> None:
    small = np.ones(N, np.uint8)
    assert (small * 200 + np.uint8(100)).dtype == np.uint8
    assert (small + 1.5).dtype == np.float64
    assert (np.ones(N, np.float32) * 2.0).dtype == np.float32
    assert (np.ones(N, np.float32) * np.float64(2)).dtype == np.float64
    with pytest.raises(OverflowError, match="300 out of bounds for uint8"):
        small + 300
    with pytest.raises(ValueError, match="negative integer powers"):
        np.arange(N) ** -1


def test_shapes_that_do_not_fit_are_refused_at_the_call() -> None:
    a, b = np.ones((10, 100)), np.ones(N)
    with pytest.raises(ValueError, match="could not be broadcast"):
        a + b


def test_warnings_come_with_the_programs_line() -> None:
    a = values() - 3
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        x = 1 / a
        line = sys._getframe().f_lineno - 1
        str(x)
    assert [(str(one.message), one.lineno, one.filename) for one in heard] == [
        ("divide by zero encountered in divide", line, __file__)
    ]


def test_errors_of_the_error_state_come_at_the_call() -> None:
    a = values()
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        1 / a
    with np.errstate(all="ignore"):
        assert np.isinf((1 / a)[0])


def test_classes_that_decide_for_themselves_win() -> None:
    class Other:
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> str:
            assert all(type(each) in (np.ndarray, Other) for each in inputs)
            return "other"

    assert np.add(values(), Other()) == "other"

    class Subclass(np.ndarray):
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
            seen.append((inputs, options["out"]))
            plain = [each.view(np.ndarray) if type(each) is Subclass else each for each in inputs]
            return super().__array_ufunc__(ufunc, method, *plain, **options)

    seen: list[Any] = []
    for array in (values(), values()[10:], values() + 1):
        pending, expected = array * 2, np.asarray(array) * 2
        before = array = np.negative(array, out=array)
        other = np.ones(array.shape).view(Subclass)
        array += other
        (inputs, outs) = seen.pop()
        assert array is before
        assert outs[0] is inputs[0]
        assert outs[0] is (before.value if type(before) is Lazy else before)
        assert np.array_equal(array, 1 - expected / 2)
        assert np.array_equal(pending, expected)
        pending, expected = array + 1, np.asarray(array) + 1
        array[:] = 0
        assert np.array_equal(pending, expected)

    masked = np.ma.array(np.ones(N), mask=[True] + [False] * (N - 1))
    total = values() * 2 + masked
    assert isinstance(total, np.ma.MaskedArray)
    assert total.mask[0]


class Own(np.ndarray):
    """Arrays with operators of their own, as `np.matrix` has, but without `__array_ufunc__`."""

    def _told(name: str) -> Any:  # type: ignore[misc]
        return lambda *_: name

    for _name in ("__radd__", "__rmul__", "__rpow__", "__rmatmul__", "__rdivmod__", "__eq__", "__lt__", "__gt__"):
        locals()[_name] = _told(_name)


@pytest.mark.parametrize("left", ["tracked", "pending"])
@pytest.mark.parametrize("right", [Own, np.matrix, np.ma.MaskedArray])
@pytest.mark.parametrize("act", [
    operator.add, operator.sub, operator.mul, operator.pow, operator.matmul, operator.eq, operator.lt, operator.gt,
    divmod, operator.iadd, operator.imul, lambda x, y: y * x, lambda x, y: y - x, lambda x, y: y @ x,
])  # fmt: skip
def test_subclasses_have_their_own_operators(left: str, right: type, act: Any) -> None:
    captured = np.arange(1.0, 101.0).reshape(10, 10)
    array = captured + 1 if left == "pending" else captured
    other = np.full((10, 10), 2.0).view(right)
    plain = np.array(array.tolist()).view(np.ndarray)
    try:
        expected = act(plain, other)
    except TypeError as error:
        with pytest.raises(type(error)):
            act(array, other)
        return
    found = act(array, other)
    if isinstance(expected, str):
        assert found == expected
        return
    for one, another in zip(*(each if act is divmod else (each,) for each in (found, expected)), strict=True):
        assert isinstance(one, type(another))
        assert np.ma.allequal(one, another)


@pytest.mark.parametrize("make", [
    lambda: np.zeros(N, [("x", float), ("y", int)]), lambda: np.array(["a"] * N), lambda: np.array([object()] * N),
    lambda: np.zeros(N, "M8[s]"), lambda: np.ma.zeros(N), lambda: np.matrix(np.zeros((10, 100))),
])  # fmt: skip
def test_other_types_of_elements_and_classes_are_left_alone(make: Any) -> None:
    shoal.offload.uninstall()
    expected = type(make())
    shoal.offload.install(OffloadSettings(threshold=1))
    assert type(make()) is expected


def test_pickles_and_copies_are_plain() -> None:
    a = values()
    for each in (a, a + 1):
        again = pickle.loads(pickle.dumps(each))
        assert type(again) is np.ndarray
        assert again[1] == each[1]
        deep = copy.deepcopy(each)
        deep[1] = 50
        assert each[1] != 50
        assert copy.copy(each)[1] == each[1]


def test_in_place_operators_of_pending_results() -> None:
    a = values()
    x = a * 2
    other = x
    x += 1
    assert other is x or other[1] == 3.0
    y = a * 2
    y += 1
    assert is_pending(y)
    assert y[1] == 3.0
    z = a * 2
    reader = z + 1
    z -= 1
    assert reader[1] == 3.0
    assert z[1] == 1.0


def test_unused_results_are_forgotten() -> None:
    a = values()
    x = a + 1
    kept = sys.getrefcount(a)
    del x
    gc.collect()
    assert sys.getrefcount(a) == kept - 1


def test_a_long_loop_that_nobody_looks_into_is_computed_in_parts() -> None:
    x = values()
    for _ in range(500):
        x = x + 1
    assert x.depth <= 64
    assert x[0] == 500.0


@pytest.mark.slow
def test_a_hundred_thousand_operations_need_the_memory_of_a_few() -> None:
    x = np.ones(2000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(100_000):
        x = x + 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB; all results have 1.6 GB
    assert x[0] == 100_001.0


def test_many_readers_are_not_all_kept() -> None:
    from shoal.offload.arrays.tracked import memory

    a = values()
    for _ in range(3000):
        a + 1
    assert sum(len(entry[1]) for entry in memory._readers.values()) < 1500


def test_threads_look_at_the_same_result() -> None:
    a = values()
    x = np.sqrt(a) + a
    found: list[float] = []
    threads = [threading.Thread(target=lambda: found.append(float(x[4]))) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [6.0] * 8


def test_a_forked_child_computes_for_itself() -> None:
    a = values()
    assert (a + 1)[0] == 1.0  # the parent's threads are there
    x = a + 2
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, str(float(x[1])).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reading, 100) == b"3.0"
    assert x[1] == 3.0


def test_an_error_in_one_block_leaves_no_threads_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.offload.arrays import chunks

    a = np.ones((64, 1000))
    x = a + 1
    monkeypatch.setattr(chunks, "part", lambda *_: (_ for _ in ()).throw(MemoryError("no memory for a block")))
    with pytest.raises(MemoryError, match="no memory for a block"):
        str(x)
    monkeypatch.undo()
    assert is_pending(x)
    assert x[0, 0] == 2.0


def test_small_views_in_a_loop_are_left_alone_in_the_end(tmp_path: Path) -> None:
    shoal.offload.uninstall()
    shoal.offload.install(OffloadSettings(threshold=500, threads=2, home=str(tmp_path)))
    a = np.ones(3000)
    total = 0.0
    for i in range(300):
        total += (a[10 * i : 10 * i + 10] * 2).sum()
    assert total == 6000.0
    assert type(a) is np.ndarray
    assert type(a[:5] + 1) is type(a)
    assert type(pickle.loads(pickle.dumps(a))) is np.ndarray


def test_tables_of_short_rows_are_not_tracked() -> None:
    shoal.offload.uninstall()
    shoal.offload.install(OffloadSettings(threshold=500))
    assert type(np.ones((300, 10))) is np.ndarray
    assert type(np.ones((3, 1000))).__name__ == "Tracked"


def test_one_thread_is_enough_on_a_crowded_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.offload.arrays.choose import Chooser
    from shoal.offload.costs import CostModel

    chooser = Chooser(OffloadSettings(threads=2), CostModel())
    monkeypatch.setattr(os, "getloadavg", lambda: (100.0, 0.0, 0.0))
    assert chooser._threads() == 1
    chooser._asked = float("-inf")
    monkeypatch.setattr(os, "getloadavg", lambda: (1.0, 0.0, 0.0))
    assert chooser._threads() == min(2, len(os.sched_getaffinity(0)))


def test_random_numbers_are_the_same_stream() -> None:
    shoal.offload.uninstall()
    plain = np.random.default_rng(7)
    expected = [plain.random(N), plain.normal(size=N), plain.integers(0, 9, N), plain.random(), plain.permutation(N)]
    np.random.seed(3)
    legacy = np.random.rand(N)
    shoal.offload.install(OffloadSettings(threshold=1))
    rng = np.random.default_rng(7)
    found = [rng.random(N), rng.normal(size=N), rng.integers(0, 9, N), rng.random(), rng.permutation(N)]
    np.random.seed(3)
    for one, other in zip([*expected, legacy], [*found, np.random.rand(N)], strict=True):
        assert np.array_equal(one, other)
    assert isinstance(rng, np.random.Generator)
    target = np.empty(N)
    before = target + 0
    assert rng.random(out=target) is target
    rng.shuffle(target)
    assert before.shape == (N,)


def test_a_captured_array_is_a_seed_like_its_values() -> None:
    pending = np.arange(N) * 2
    expected = np.random.Generator(np.random.PCG64(np.asarray(pending + 0).tolist())).random()
    assert np.random.default_rng(pending + 0).random() == expected
    assert np.random.default_rng(seed=[*(pending + 0)]).random() == expected


def test_wrapped_functions_are_no_methods_of_a_class_that_has_them() -> None:
    class Maker:
        array = np.array
        empty = np.empty

    assert np.array_equal(Maker().array([1, 2]), [1, 2])
    assert Maker().empty(3).shape == (3,)
    assert pickle.loads(pickle.dumps(np.empty)) is np.empty


def test_small_draws_are_soon_left_to_the_generator_itself() -> None:
    shoal.offload.uninstall()
    shoal.offload.install(OffloadSettings(threshold=500))
    rng = np.random.default_rng(0)
    for _ in range(300):
        rng.random()
    assert "random" in vars(rng)
    assert type(rng.normal(size=600)).__name__ == "Tracked"


def test_uninstall_leaves_numpy_as_it_was() -> None:
    shoal.offload.uninstall()
    owners = (np, np.random, np.random.Generator, np.linalg, np.ma, np.ndarray)
    before = [dict(vars(each)) for each in owners]
    shoal.offload.install(OffloadSettings(threshold=1))
    shoal.offload.install(OffloadSettings(threshold=5))
    x = np.ones(N) + 1
    shoal.offload.uninstall()
    assert before == [dict(vars(each)) for each in owners]
    assert x[0] == 2.0


def test_modules_of_numpy_that_are_imported_meanwhile_get_numpys_own_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("numpy.imported_meanwhile")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    module.own = np.array  # type: ignore[attr-defined]
    shoal.offload.uninstall()
    assert module.own is np.array


def test_functions_that_a_program_makes_are_not_kept() -> None:
    def one(_: Any) -> int:
        return 1

    before = sys.getrefcount(one)
    for _ in range(5):
        assert np.frompyfunc(one, 1, 1)(values())[0] == 1
    assert sys.getrefcount(one) == before


def test_many_arrays_with_views_and_readers_at_once() -> None:
    arrays = [np.full(10, float(number)) for number in range(600)]
    views = [each[1:] for each in arrays]
    later = [each + 1 for each in arrays]
    of_one = [arrays[0] + each for each in range(600)]
    for each in views:
        each[:] = -1.0
    assert [each[1] for each in later] == [float(number) + 1 for number in range(600)]
    assert [each[1] for each in of_one] == [float(number) for number in range(600)]


def test_a_comparison_without_dimensions_is_a_number() -> None:
    x = np.array(3.0)
    assert type(x > 3) is np.bool
    assert type(x + 1) is np.float64
    assert np.piecewise(x, x > 3, [4, 0]) == 0


def test_an_array_within_a_list_that_is_given_back_is_the_same() -> None:
    x = values()
    assert recfunctions.stack_arrays((x,)) is x


def test_wrappers_take_themselves_out_where_no_array_is_large() -> None:
    shoal.offload.uninstall()
    original = np.zeros
    shoal.offload.install(OffloadSettings(threshold=100))
    assert np.zeros is not original
    for _ in range(10_002):
        np.zeros(3)
    assert np.zeros is original


def test_every_call_has_a_reason() -> None:
    from shoal.offload.profile import REASONS

    a = values()
    x = a + 1
    np.add(a, 1, out=a)
    np.dot(a, a)
    a[3:] + a[a > 3]
    str(x)
    records = PROFILE.records()
    assert {each.reason for each in records} <= set(REASONS)
    assert {each.call for each in records} >= {"add", "dot"}


def test_a_fallback_can_be_told_or_refused() -> None:
    shoal.offload.uninstall()
    shoal.offload.install(OffloadSettings(threshold=10, fallback=Fallback.WARN))
    with pytest.warns(UserWarning, match="add stays with NumPy: a large operand was made outside"):
        np.ones(N) + shoal_free(N)
    shoal.offload.uninstall()
    shoal.offload.install(OffloadSettings(threshold=10, fallback=Fallback.RAISE))
    with pytest.raises(RuntimeError, match="made outside the captured functions"):
        np.ones(N) + shoal_free(N)
    assert (np.ones(N) * 2)[0] == 2.0


def shoal_free(size: int) -> Any:
    """A large array that no captured function made."""
    return np.ndarray((size,), float, bytearray(8 * size))


def test_a_result_that_only_another_one_reads_is_not_stored() -> None:
    from shoal.offload.arrays.program import build

    last = np.exp(np.sin(values()))
    assert [node is last for node in build(last).outputs] == [True]
