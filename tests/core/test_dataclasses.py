"""Dataclasses whose methods are made later are what Python's own are."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from dataclasses import field
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import dataclass


def _defined(dataclass: Any) -> SimpleNamespace:
    @dataclass(frozen=True, slots=True)
    class Slotted:
        number: float
        name: str = "x"
        left_out: int = field(default=0, compare=False)
        unseen: int = field(default=0, repr=False)
        several: list[int] = field(default_factory=list, hash=False)

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

    @dataclass(slots=True, kw_only=True)
    class Named:
        name: str = "x"
        number: float

    @dataclass(frozen=True, slots=True)
    class Own:
        number: float
        doubled: float = field(init=False)
        fixed: list[int] = field(init=False, default_factory=list)

        def __post_init__(self) -> None:
            object.__setattr__(self, "doubled", 2 * self.number)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.number == -other.number

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return f"own {self.number}"

    made = {name: kind for name, kind in locals().items() if isinstance(kind, type)}
    for name, kind in made.items():
        kind.__qualname__ = name
    return SimpleNamespace(**made)


PYTHONS, OURS = _defined(dataclasses.dataclass), _defined(dataclass)
KINDS = sorted(vars(PYTHONS))
NUMBERS = st.one_of(st.just(float("nan")), st.sampled_from([0.0, -0.0, 1.0, 2.0]))


def told(act: Any) -> object:
    try:
        return act()
    except Exception as error:
        return type(error), str(error)


def make(kind: Any, number: float, name: str, other: int) -> Any:
    values = {"number": number, "name": name, "left_out": other, "unseen": other, "several": [other]}
    return kind(**{one.name: values[one.name] for one in dataclasses.fields(kind) if one.name in values})


@pytest.mark.parametrize("kind", KINDS)
@given(a=st.tuples(NUMBERS, st.sampled_from("ab"), st.integers(0, 1)),
       b=st.tuples(NUMBERS, st.sampled_from("ab"), st.integers(0, 1)))  # fmt: skip
def test_they_compare_and_hash_and_show_as_python_has_it(kind: str, a: Any, b: Any) -> None:
    pairs = [(make(made, *a), make(made, *b), make(made, *a)) for made in (vars(PYTHONS)[kind], vars(OURS)[kind])]
    for act in (
        lambda x: x[0] == x[1], lambda x: x[0] == x[2], lambda x: x[0] != x[1], lambda x: x[0] == 7,
        lambda x: x[0] < x[1], lambda x: x[0] >= x[1], lambda x: repr(x[0]), lambda x: len({x[0], x[1]}),
        lambda x: repr(dataclasses.asdict(x[0])), lambda x: dataclasses.replace(x[0]) == x[0],
        lambda x: type(x[0]).__match_args__, lambda x: copy.deepcopy(x[0]) == x[0],
    ):  # fmt: skip
        python, ours = (told(lambda: act(pair)) for pair in pairs)  # noqa: B023
        assert python == ours


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["number", "something"])
def test_what_is_frozen_stays(kind: str, name: str) -> None:
    for act in (lambda one: setattr(one, name, 3), lambda one: delattr(one, name)):
        made = [make(vars(each)[kind], 1.0, "a", 0) for each in (PYTHONS, OURS)]
        python, ours = (told(lambda: act(one)) for one in made)  # noqa: B023
        if "obj must be an instance" in str(python):  # Python 3.11's own stumbles over slots
            assert isinstance(ours, tuple)
            assert ours[0] is dataclasses.FrozenInstanceError
        else:
            assert python == ours


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_made_of_the_same_arguments(kind: str) -> None:
    python, ours = (vars(each)[kind] for each in (PYTHONS, OURS))
    assert [(one.name, one.kind, one.annotation) for one in inspect.signature(ours).parameters.values()] == [
        (one.name, one.kind, one.annotation) for one in inspect.signature(python).parameters.values()
    ]
    for words in ((), (1.0,), (1.0, "a", 2, 3, [4], "more"), (1.0, "a", 2, 3, [4], "more", "too much")):
        shown, expected = (str(told(lambda: repr(one(*words)))) for one in (ours, python))  # noqa: B023
        assert shown == expected.replace("_defined.<locals>.", "")


def test_what_a_factory_makes_is_shared_by_none() -> None:
    one, other = OURS.Slotted(1.0), OURS.Slotted(1.0)
    assert one.several == []
    assert one.several is not other.several
    assert OURS.Own(2.0).doubled == 4.0


def test_one_that_holds_itself_is_shown() -> None:
    one = OURS.Changing(1.0)
    one.name = one
    assert repr(one).endswith("name=...)")


@pytest.mark.parametrize("kind", ["Slotted", "Grown", "Single", "Changing"])
def test_they_are_pickled(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = vars(OURS)[kind]
    monkeypatch.setattr(sys.modules[__name__], made.__name__, made, raising=False)
    one = make(made, 1.0, "a", 0)
    assert pickle.loads(pickle.dumps(one)) == one
    assert copy.copy(one) == one
