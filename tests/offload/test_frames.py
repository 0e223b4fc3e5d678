"""Pending Series against pandas, and what must stay with pandas."""

from __future__ import annotations

import copy
import operator
import pickle
import random
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.offload import OffloadSettings, install, uninstall
from shoal.offload.frames.series import PendingSeries, copy_on_write

pytestmark = pytest.mark.skipif(not copy_on_write(), reason="without copy-on-write nothing is captured")

OPERATORS = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.lt,
    operator.ge,
    operator.eq,
    operator.ne,
)


def series(seed: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    values = rng.uniform(-3, 3, 40)
    values[:4] = (np.nan, np.inf, -0.0, 0.0)
    labels = pd.Index([f"r{i}" for i in range(40)])
    return [
        pd.Series(values, name="a"), pd.Series(rng.uniform(-3, 3, 40), name="b"),
        pd.Series(rng.integers(-5, 5, 40), name="a"), pd.Series(rng.random(40) < 0.5),
        pd.Series(values, index=labels), pd.Series(values.astype("f4")), pd.Series(["x"] * 40),
        pd.Series(pd.array([1, None] * 20, dtype="Int64")), pd.Series(values, index=range(1, 41)),
        pd.Series(pd.Categorical([1, 2] * 20)), pd.Series(pd.date_range("2020", periods=40, tz="UTC")),
    ]  # fmt: skip


LOOKS = (
    repr,
    lambda s: str(s.dtype),
    len,
    lambda s: s.name,
    lambda s: s.describe().to_dict(),
    lambda s: type(s.to_numpy()),
)


def run(seed: int) -> list[Any]:
    rng = random.Random(seed)
    values, said = series(seed), []
    for _ in range(15):
        try:
            step = rng.choice(("op", "op", "op", "scalar", "scalar", "mask", "logic", "write", "look", "sum", "frame"))
            one, other = rng.choice(values), rng.choice(values)
            if step == "op":
                values.append(rng.choice(OPERATORS)(one, other))
            elif step == "scalar":
                pair = (one, rng.choice((2, 0.5, -1, 0, True, np.float64(3), 2**60)))
                values.append(rng.choice(OPERATORS)(*(pair if rng.random() < 0.7 else pair[::-1])))
            elif step == "mask":
                values.append(rng.choice((one.mask, one.where))(one > 0.5, rng.choice((0.25, 3, np.nan))))
            elif step == "logic":
                values.append((one > 0) & (other < 1) | (one == 0))
            elif step == "write":
                one.iloc[rng.randrange(40)] = 7
            elif step == "look":
                said.append(rng.choice(LOOKS)(one))
            elif step == "sum":
                said.append((round(float(one.sum()), 9), round(float(one.mean()), 9)))
            else:
                values.append(pd.DataFrame({"x": one, "y": other})["x"])
        except (TypeError, ValueError, ArithmeticError, NotImplementedError) as error:
            said.append(type(error).__name__)
    for each in values:
        said.append((str(each.dtype), each.name, each.index.tolist(), repr(each.tolist())))
    return [repr(each) for each in said]


@settings(deadline=None)
@given(st.integers(0, 10**9))
def test_a_captured_program_of_series_shows_what_pandas_shows(seed: int) -> None:
    uninstall()
    expected = run(seed)
    install(OffloadSettings(threshold=10, threads=2))
    try:
        found = run(seed)
    finally:
        uninstall()
    assert found == expected


@pytest.fixture
def pair(captured: None) -> tuple[Any, Any]:
    return pd.Series(np.arange(100.0), name="a"), pd.Series(np.arange(100.0) * 2, name="b")


def test_an_expression_is_a_series_and_pends(pair: tuple[Any, Any]) -> None:
    a, b = pair
    x = a + b * 2
    assert type(x) is PendingSeries
    assert isinstance(x, pd.Series)
    assert len(x) == 100
    assert "_pending" in vars(x)
    assert x.iloc[3] == 15.0
    assert type(x) is pd.Series
    assert x.name is None


def test_writing_into_an_operand_or_a_result_changes_nothing_else(pair: tuple[Any, Any]) -> None:
    a, b = pair
    x = a + b
    y = x + 1
    a.iloc[1] = 100
    assert x.iloc[1] == 3.0
    x.iloc[2] = 50
    assert y.iloc[2] == 7.0
    assert (x + 1).iloc[2] == 51.0


def test_pickles_and_copies_are_ordinary(pair: tuple[Any, Any]) -> None:
    a, b = pair
    assert type(pickle.loads(pickle.dumps(a + b))) is pd.Series
    assert type(copy.deepcopy(a + b)) is pd.Series
    assert (a + b).sum() == 14850.0


@pytest.mark.parametrize("make", [
    lambda a: a.set_flags(allows_duplicate_labels=False), lambda a: a.astype("Float64"), lambda a: a.astype(str),
    lambda a: a.astype("category"), lambda a: type("Mine", (pd.Series,), {})(a), lambda a: a.rename(("x", "y")),
])  # fmt: skip
def test_what_is_not_captured(pair: tuple[Any, Any], make: Any) -> None:
    assert type(make(pair[0]) == make(pair[0])) is not PendingSeries


def test_other_labels_stay_with_pandas(pair: tuple[Any, Any]) -> None:
    a, b = pair
    assert type(a + b.set_axis(range(1, 101))) is pd.Series
    assert type(a + b.iloc[::-1]) is pd.Series


def test_attributes_are_kept(pair: tuple[Any, Any]) -> None:
    a, _ = pair
    a.attrs["unit"] = "m"
    assert (a + 1).attrs == {"unit": "m"}


def test_uninstall_puts_every_method_back() -> None:
    uninstall()
    before = dict(vars(pd.Series))
    install(OffloadSettings(threshold=1))
    assert dict(vars(pd.Series)) != before
    uninstall()
    assert dict(vars(pd.Series)) == before
