"""String columns with few distinct values: every function gives what pandas gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import shoal.offload
from shoal.offload import OffloadSettings
from shoal.offload.profile import PROFILE

pd = pytest.importorskip("pandas", minversion="3")

Step = Callable[[Any], Any]

STEPS: tuple[Step, ...] = (
    lambda s: s.str.slice(0, 2), lambda s: s.str.len(), lambda s: s.str.startswith("a"), lambda s: s.str.upper(),
    lambda s: s.str.contains("b"), lambda s: s.str.contains("[ab]$", regex=True, na=True), lambda s: s.str.zfill(4),
    lambda s: s.str.replace("a", "xy"), lambda s: s.str.strip(), lambda s: s.str.isdigit(), lambda s: s.str.get(0),
    lambda s: s.str.split("b"), lambda s: s.str.encode("utf-8"), lambda s: s.str.findall("a"), lambda s: s.str[::-1],
    lambda s: s.str.fullmatch(re.compile("[a-c]+")), lambda s: s == "ab", lambda s: s != "", lambda s: s < "b",
    lambda s: s.mask(s == "ab"), lambda s: s.where(s.str.len() == 2), lambda s: s.nunique(), lambda s: s.isna().sum(),
    lambda s: s.unique(), lambda s: s.value_counts(), lambda s: s.groupby(s).size(), lambda s: s.drop_duplicates(),
    lambda s: s.to_frame("k").assign(v=range(len(s))).groupby("k")["v"].agg(["sum", "mean"]),
    lambda s: s.to_frame("k").assign(v=range(len(s))).groupby("k", sort=False, dropna=False)["v"].transform("sum"),
    lambda s: s.to_frame("k").assign(v=1.0).pivot_table("v", index="k", aggfunc="sum"),
    lambda s: s.to_frame("k").merge(s.drop_duplicates().to_frame("k").assign(w=1), on="k"),
    lambda s: s.sort_values(kind="stable"), lambda s: s.factorize(), lambda s: s.astype("category"),
    lambda s: s == s.iloc[::-1].reset_index(drop=True), lambda s: s.duplicated(), lambda s: s.str.cat(s),
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def after() -> Iterator[None]:
    yield
    shoal.offload.uninstall()


def shown(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(map(shown, found))
    if isinstance(found, pd.Series | pd.DataFrame | pd.Index):
        return found.copy()
    return found


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, pd.DataFrame):
        pd.testing.assert_frame_equal(one, other, check_exact=True)
    elif isinstance(one, pd.Series):
        pd.testing.assert_series_equal(one, other, check_exact=True)
    elif isinstance(one, pd.Index):
        pd.testing.assert_index_equal(one, other, exact=True)
    elif isinstance(one, tuple):
        for first, second in zip(one, other, strict=True):
            same(first, second)
    elif isinstance(one, np.ndarray | pd.api.extensions.ExtensionArray):
        same(pd.Series(one), pd.Series(other))
    else:
        assert one == other or (one != one and other != other)


@given(
    st.lists(st.sampled_from(["a", "ab", "", "b b", "caab", "12", None, "é"]), min_size=1, max_size=4, unique=True),
    st.integers(1, 60),
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=4),
    st.sampled_from(["str", "string"]),
    st.booleans(),
)
def test_every_function_gives_what_pandas_gives(
    values: list[Any], repeats: int, steps: list[Step], kind: str, objects_differ: bool
) -> None:
    def column() -> Any:
        some = values * repeats
        if objects_differ:
            some = [None if each is None else "".join(list(each)) for each in some]
        return pd.Series(some, dtype=kind, name="column")

    def run() -> list[Any]:
        found: list[Any] = []
        series = column()
        for step in steps:
            try:
                result = step(series)
            except (TypeError, ValueError, AttributeError) as error:
                found.append((type(error).__name__, str(error)))
                continue
            found.append(shown(result))
            if isinstance(result, pd.Series) and result.dtype == series.dtype and len(result) == len(series):
                series = result
        return found

    shoal.offload.uninstall()
    expected = run()
    shoal.offload.install(OffloadSettings(threshold=1))
    try:
        found = run()
    finally:
        shoal.offload.uninstall()
    for one, other in zip(expected, found, strict=True):
        same(one, other)


@pytest.fixture
def captured(tmp_path: Path) -> Iterator[None]:
    shoal.offload.uninstall()
    PROFILE.clear()
    shoal.offload.install(OffloadSettings(threshold=100, home=str(tmp_path)))
    yield
    shoal.offload.uninstall()


def test_the_function_sees_each_distinct_string_once(captured: None) -> None:
    series = pd.Series(["ab", "c"] * 5000)
    assert series.str.upper().tolist() == ["AB", "C"] * 5000
    assert ("str", "distinct") in {(each.call, each.backend) for each in PROFILE.records()}


def test_a_function_of_the_program_is_called_for_each_row(captured: None) -> None:
    calls = []

    def count(match: Any) -> str:
        calls.append(match)
        return "x"

    pd.Series(["ab", "ab"] * 500).str.replace("a", count, regex=True)
    assert len(calls) == 1000


def test_lists_of_rows_stay_apart(captured: None) -> None:
    parts = pd.Series(["a b", "a b"] * 500).str.split(" ")
    parts[0].append("more")
    assert parts[1] == ["a", "b"]


def test_writing_into_a_result_leaves_the_column_alone(captured: None) -> None:
    series = pd.Series(["ab", "c"] * 500)
    codes, values = series.factorize()
    codes[:] = 7
    series.loc[0] = "new"
    assert series.factorize()[0].tolist()[:4] == [0, 1, 2, 1]
    assert values.tolist() == ["ab", "c"]


def test_a_column_of_many_strings_is_left_to_pandas(captured: None) -> None:
    series = pd.Series([str(each) for each in range(5000)])
    assert series.str.len().sum() == sum(len(str(each)) for each in range(5000))
    assert not [each for each in PROFILE.records() if each.backend == "distinct"]
