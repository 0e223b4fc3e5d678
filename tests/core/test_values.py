"""Clocks, reasons, errors and tenants."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import core
from shoal.core import (
    Fault,
    Invalid,
    ManualClock,
    NotFound,
    Overloaded,
    PriorityClass,
    Quota,
    Reason,
    Resources,
    ShoalError,
    SystemClock,
    Tenant,
)

ERRORS = [kind for kind in vars(core).values() if isinstance(kind, type) and issubclass(kind, ShoalError)]

words = st.text(min_size=1)


@given(st.floats(0, 1e9), st.lists(st.floats(0, 1e6), max_size=20))
def test_a_manual_clock_moves_only_when_told_and_only_forward(start: float, steps: list[float]) -> None:
    clock, expected = ManualClock(start), start
    for step in steps:
        clock.advance(step)
        expected += step
        assert clock.now() == clock.monotonic() == expected


def test_a_manual_clock_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        ManualClock().advance(-1)


def test_the_system_clock_never_goes_back() -> None:
    clock = SystemClock()
    readings = [clock.monotonic() for _ in range(100)]
    assert readings == sorted(readings)
    assert clock.now() > 1_700_000_000


@given(words, words, words)
def test_an_error_says_where_what_and_what_to_do(what: str, where: str, hint: str) -> None:
    for kind in ERRORS:
        assert str(kind(what)) == what
        assert str(kind(what, where=where)) == f"{where}: {what}"
        assert str(kind(what, hint=hint)) == f"{what} ({hint})"
        assert str(kind(what, where=where, hint=hint)) == f"{where}: {what} ({hint})"


def test_error_codes_tell_the_kinds_apart() -> None:
    codes = [kind.code for kind in ERRORS]
    assert len(set(codes)) == len(codes)
    assert all(code == code.lower() and " " not in code for code in codes)


def test_invalid_lists_every_problem_and_overload_says_when_to_return() -> None:
    problems = (NotFound("no such field", where="a"), Invalid("too large", where="b"))
    assert Invalid("two problems", problems=problems).problems == problems
    assert Overloaded("busy", retry_after_s=7).retry_after_s == 7


def test_a_reason_is_json_and_a_copy() -> None:
    facts = {"needs": 8, "free": 5}
    shown = Reason("shape", "needs 8 a100, 5 free", facts).as_json()
    assert json.loads(json.dumps(shown)) == {"code": "shape", "text": "needs 8 a100, 5 free", "facts": facts}
    shown["facts"]["free"] = 0
    assert facts["free"] == 5


@pytest.mark.parametrize("weight", [0, -1, math.inf, math.nan])
def test_a_weight_must_be_positive_and_finite(weight: float) -> None:
    with pytest.raises(ValueError, match="tenant ada: a weight must be positive and finite"):
        Tenant("ada", weight)


def test_no_limit_is_none_not_zero() -> None:
    assert all(value in (None, ()) for value in dataclasses.asdict(Quota()).values())
    assert Quota(accelerators=0) != Quota()


@pytest.mark.parametrize(
    "value",
    [
        Tenant("ada", 2.0, Quota(by_type=(("a100", 2),))),
        Reason("code", "text"),
        Resources({"a100": 1}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_frozen(value: object) -> None:
    name = dataclasses.fields(value)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(value, name, None)


def test_the_first_word_of_an_enum_is_what_people_write() -> None:
    assert [str(fault) for fault in Fault] == ["user", "platform", "infrastructure"]
    assert PriorityClass("best-effort") is PriorityClass.BEST_EFFORT


def test_the_public_face_is_complete() -> None:
    public = {name for name, value in vars(core).items() if name[0] != "_" and not isinstance(value, type(core))}
    assert set(core.__all__) == public
