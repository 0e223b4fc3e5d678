"""Dataclasses that are made quickly are what Python's own are."""

from __future__ import annotations

import copy
import dataclasses
import importlib
import pickle
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.base.value_classes import made_quickly


@dataclass(frozen=True, slots=True)
class Slotted:
    number: float
    name: str = "x"
    left_out: int = field(default=0, compare=False)
    unseen: int = field(default=0, repr=False)


@dataclass(frozen=True, order=True)
class Ordered:
    number: float
    name: str = "x"


@dataclass
class Changing:
    number: float
    name: str = "x"


@dataclass(frozen=True)
class Single:
    number: float


@dataclass(frozen=True)
class Empty:
    pass


@dataclass(eq=False)
class Itself:
    number: float
    name: str = "x"


@dataclass(frozen=True, slots=True)
class Grown(Slotted):
    more: str = ""


KINDS = ("Slotted", "Ordered", "Changing", "Single", "Empty", "Itself", "Grown")
NUMBERS = st.one_of(st.just(float("nan")), st.sampled_from([0.0, -0.0, 1.0, 2.0]))


@pytest.fixture(scope="module")
def quick() -> Iterator[SimpleNamespace]:
    """The classes of this module, made a second time and quickly, in the place that pickle knows."""
    before = dict(vars(dataclasses))
    this = sys.modules[__name__]
    own = dict(vars(this))
    made_quickly()
    try:
        made = {name: getattr(importlib.reload(this), name) for name in KINDS}
        yield SimpleNamespace(**made)
    finally:
        vars(dataclasses).update(before)
        vars(this).update(own)


def told(act: Any) -> object:
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def make(kind: Any, number: float, name: str, other: int) -> Any:
    values = {"number": number, "name": name, "left_out": other, "unseen": other}
    return kind(**{one.name: values[one.name] for one in dataclasses.fields(kind) if one.name in values})


@pytest.mark.parametrize("kind", KINDS)
@given(a=st.tuples(NUMBERS, st.sampled_from("ab"), st.integers(0, 1)),
       b=st.tuples(NUMBERS, st.sampled_from("ab"), st.integers(0, 1)))  # fmt: skip
def test_they_compare_and_hash_and_show_as_python_has_it(quick: Any, kind: str, a: Any, b: Any) -> None:
    one, other = (
        (make(made, *a), make(made, *b), make(made, *a)) for made in (globals()[kind], getattr(quick, kind))
    )  # fmt: skip
    for act in (
        lambda x: x[0] == x[1], lambda x: x[0] == x[2], lambda x: x[0] != x[1], lambda x: x[0] == 7,
        lambda x: x[0] < x[1], lambda x: x[0] >= x[1], lambda x: repr(x[0]), lambda x: len({x[0], x[1]}),
        lambda x: dataclasses.asdict(x[0]).__repr__(), lambda x: dataclasses.replace(x[0]) == x[0],
        lambda x: type(x[0]).__match_args__, lambda x: copy.deepcopy(x[0]) == x[0],
    ):  # fmt: skip
        assert told(lambda: act(one)) == told(lambda: act(other))  # noqa: B023


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["number", "something"])
def test_what_is_frozen_stays(quick: Any, kind: str, name: str) -> None:
    for act in (lambda one: setattr(one, name, 3), lambda one: delattr(one, name)):
        own, made = (told(lambda: act(make(each, 1.0, "a", 0))) for each in (globals()[kind], getattr(quick, kind)))  # noqa: B023
        assert own == made


def test_hashes_are_of_all_compared_fields(quick: Any) -> None:
    assert hash(quick.Ordered(1.0, "a")) == hash((1.0, "a"))
    assert hash(quick.Single(1.0)) == hash((1.0,))
    assert hash(quick.Slotted(1.0, "a", 5, 0)) == hash((1.0, "a", 0))
    with pytest.raises(TypeError, match="unhashable"):
        hash(quick.Changing(1.0))


def test_one_that_holds_itself_is_shown(quick: Any) -> None:
    one = quick.Changing(1.0)
    one.name = one
    assert repr(one).endswith("name=...)")


@pytest.mark.parametrize("kind", ["Slotted", "Grown", "Single"])
def test_they_are_pickled(quick: Any, kind: str) -> None:
    one = make(getattr(quick, kind), 1.0, "a", 0)
    vars(sys.modules[__name__])[kind] = getattr(quick, kind)
    assert pickle.loads(pickle.dumps(one)) == one
