"""Joins, groups and distinct values by Polars: whatever the data, what pandas shows is shown."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import shoal.offload
from shoal.offload import OffloadSettings
from shoal.offload.profile import PROFILE
from shoal.offload.settings import CompileMode

pd = pytest.importorskip("pandas")
pytest.importorskip("polars")

from shoal.offload.frames import trial  # noqa: E402
from shoal.offload.frames.calls import same  # noqa: E402

PANDAS_3 = int(pd.__version__.partition(".")[0]) >= 3


@pytest.fixture
def captured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Polars takes each call from the second one on, however long it takes."""
    monkeypatch.setattr(trial, "_FASTER", float("inf"))
    shoal.offload.uninstall()
    shoal.offload.install(OffloadSettings(threshold=1, threads=2, home=str(tmp_path), compile=CompileMode.WAIT))
    PROFILE.clear()
    yield
    shoal.offload.uninstall()


Call = Callable[[Any, Any], Any]
CALLS: dict[str, Call] = {
    "nunique of integers": lambda a, _: a["k"].nunique(),
    "nunique of numbers": lambda a, _: a["x"].nunique(),
    "value_counts": lambda a, _: a["k"].value_counts(),
    "inner join": lambda a, b: pd.merge(a, b),
    "left join": lambda a, b: a.merge(b, how="left", on="k"),
    "groups of a column": lambda a, _: a.groupby("k")["x"].sum(),
    "means by two keys": lambda a, _: a.groupby(["k", "l"])["n"].mean(),
    "least": lambda a, _: a.groupby("k").min(),
    "greatest": lambda a, _: a.groupby(["l"]).agg("max"),
    "counts": lambda a, _: a.groupby("l").count(),
    "aggregate": lambda a, _: a.groupby("k")[["x", "n"]].agg("sum"),
    "pivot": lambda a, _: a.pivot_table("x", index="k", columns="l", aggfunc="sum"),
}


def tables(seed: int, rows: int, kinds: int) -> tuple[Any, Any]:
    rng = np.random.Generator(np.random.PCG64(seed))
    x = rng.normal(size=rows).round(1)
    x[rng.random(rows) < 0.3] = np.nan
    x[rng.random(rows) < 0.1] = np.inf
    a = {"k": rng.integers(-kinds, kinds, rows), "l": rng.integers(0, 3, rows), "x": x, "n": rng.integers(-9, 9, rows)}
    b = {"k": rng.permutation(np.arange(-kinds, 2 * kinds)), "y": rng.random(3 * kinds)}
    some = pd.DataFrame(b).iloc[: int(rng.integers(1, 3 * kinds + 1))]
    return pd.DataFrame(a, index=pd.Index(rng.permutation(rows))), pd.concat([some, some.iloc[:1]])


@pytest.mark.parametrize("name", CALLS)
@settings(deadline=None, max_examples=6, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(0, 10**6), st.integers(1, 60), st.integers(1, 6))
def test_every_call_shows_what_pandas_shows(captured: None, name: str, seed: int, rows: int, kinds: int) -> None:
    call = CALLS[name]
    shoal_on = [call(*tables(seed, rows, kinds)) for _ in range(2)]
    engine_off = _plainly(lambda: call(*tables(seed, rows, kinds)))
    for found in shoal_on:
        assert same(engine_off, found), (engine_off, found)


def _plainly(work: Callable[[], Any]) -> Any:
    before = trial.Engine.call
    trial.Engine.call = lambda self, name, key, size, plain, other, equal: plain()  # type: ignore[method-assign]
    try:
        return work()
    finally:
        trial.Engine.call = before  # type: ignore[method-assign]


def test_the_second_call_of_a_kind_is_done_by_the_other_engine(captured: None) -> None:
    for call in CALLS.values():
        for _ in range(2):
            call(*tables(0, 500, 4))
    done = {each.call for each in PROFILE.records() if each.backend == "polars"}
    assert done == {"nunique", "merge", "groupby"} | ({"value_counts"} if PANDAS_3 else set())


def test_equal_counts_come_in_the_order_of_pandas(captured: None) -> None:
    pd.Series(np.repeat(np.arange(20), np.arange(1, 21))).value_counts()  # no two are equal: the engine is trusted
    for seed in range(20):
        numbers = pd.Series(np.random.Generator(np.random.PCG64(seed)).integers(0, 40, 200))
        expected = _plainly(numbers.value_counts)
        assert same(expected, numbers.value_counts())


@pytest.mark.parametrize("make", [
    lambda a: a.assign(k=a["k"].astype(object)), lambda a: a.assign(k=a["k"].astype("category")),
    lambda a: a.assign(k=a["k"].astype("Int64")), lambda a: a.set_index(["l", "n"]), lambda a: a.assign(x="s"),
    lambda a: a.assign(x=pd.Timestamp("2020", tz="UTC")), lambda a: a.rename(columns={"n": "x"}),
    lambda a: a.iloc[:0], lambda a: type("Own", (pd.DataFrame,), {})(a), lambda a: a.rename(columns={"x": 5}),
])  # fmt: skip
def test_other_frames_are_equal_or_stay(captured: None, make: Any) -> None:
    def work() -> list[Any]:
        a, b = tables(3, 200, 4)
        a = make(a)
        said: list[Any] = []
        for call in CALLS.values():
            try:
                said.append(call(a, b))
            except Exception as error:
                said.append(f"{type(error).__name__}: {error}")
        return said

    expected = _plainly(work)
    for _ in range(2):
        found = work()
        for one, other in zip(expected, found, strict=True):
            assert type(one) is type(other)
            if isinstance(one, pd.DataFrame):
                pd.testing.assert_frame_equal(one, other)
            elif isinstance(one, pd.Series):
                pd.testing.assert_series_equal(one, other)
            else:
                assert one == other


def test_a_result_that_differs_keeps_pandas(captured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    a, _ = tables(0, 500, 4)
    monkeypatch.setattr(pl.Series, "n_unique", lambda _: 77)
    for _ in range(3):
        assert a["n"].nunique() == 18
    told = {(each.backend, each.reason) for each in PROFILE.records() if each.call == "nunique"}
    assert told == {("plain", "plain-faster"), ("plain", "untrusted")}


def test_an_engine_that_fails_is_asked_no_more(captured: None, monkeypatch: pytest.MonkeyPatch) -> None:
    import polars as pl

    def fails(_: Any) -> int:
        raise MemoryError

    a, _ = tables(0, 500, 4)
    monkeypatch.setattr(pl.Series, "n_unique", fails)
    for _ in range(3):
        assert a["n"].nunique() == 18
    assert "polars" not in {each.backend for each in PROFILE.records()}


def test_a_forked_child_does_without_its_threads(captured: None) -> None:
    a, _ = tables(0, 500, 4)
    for _ in range(2):
        a["n"].nunique()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, pickle.dumps(a["n"].nunique()))
        os._exit(0)
    os.waitpid(child, 0)
    assert pickle.loads(os.read(reading, 1000)) == 18


def test_nothing_is_tried_before_it_would_be_repaid(tmp_path: Path) -> None:
    shoal.offload.uninstall()
    shoal.offload.install(OffloadSettings(threshold=1, home=str(tmp_path)))
    PROFILE.clear()
    a, b = tables(0, 500, 4)
    for call in CALLS.values():
        call(a, b)
    shoal.offload.uninstall()
    assert {each.backend for each in PROFILE.records() if each.call in ("merge", "groupby", "nunique")} == {"plain"}


def test_uninstall_puts_every_function_back() -> None:
    from pandas.core.groupby.generic import DataFrameGroupBy, SeriesGroupBy

    owners = (pd, pd.Series, pd.DataFrame, DataFrameGroupBy, SeriesGroupBy)
    before = [dict(vars(each)) for each in owners]
    shoal.offload.install(OffloadSettings(threshold=1))
    assert [dict(vars(each)) for each in owners] != before
    shoal.offload.uninstall()
    assert [dict(vars(each)) for each in owners] == before
