"""What pydantic found, in words."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic_core import PydanticCustomError

from shoal.base.validation import place_of, problems, shown


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


class Times(BaseModel):
    model_config = ConfigDict(extra="forbid")

    batch: Annotated[int, Field(ge=1, le=64)] = 1


class Whole(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)

    name: Annotated[str, Field(min_length=1, max_length=5)] = "x"
    share: Annotated[float, Field(gt=0, lt=1)] = 0.5
    on: bool = False
    color: Color = Color.RED
    mode: Literal["fast", "slow"] = "fast"
    times: Annotated[list[Times], Field(min_length=1, max_length=2)] = [Times()]
    labels: dict[str, str] = {}
    level: Annotated[str, Field(pattern="^(low|high)$")] = "low"
    secret: Annotated[str, Field(pattern="^[a-z]+$")] = "a"
    even: int = 0
    odd: int = 1

    @field_validator("even")
    @classmethod
    def _even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("Must be even")
        return value

    @field_validator("odd")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise PydanticCustomError("ours", "{what}", {"what": "Even it is", "hint": "give an odd one"})
        return value


def found(value: Any) -> list[tuple[str | None, str, str | None]]:
    with pytest.raises(ValidationError) as raised:
        Whole.model_validate(value)
    told = problems(raised.value, shapes={"^[a-z]+$": "only letters are allowed"})
    return [(one.where, one.what, one.hint) for one in told]


@pytest.mark.parametrize(
    ("value", "where", "what"),
    [
        ({"name": 3}, "name", "must be text, not 3"),
        ({"name": ""}, "name", "must have 1 character or more"),
        ({"name": "abcdef"}, "name", "must have at most 5 characters"),
        ({"share": "much"}, "share", "must be a number, not 'much'"),
        ({"share": float("nan")}, "share", "must be a finite number, not nan"),
        ({"share": 0}, "share", "must be more than 0, not 0"),
        ({"share": 1}, "share", "must be less than 1, not 1"),
        ({"on": "perhaps"}, "on", "must be true or false, not 'perhaps'"),
        ({"color": "green"}, "color", "must be red or blue, not 'green'"),
        ({"mode": None}, "mode", "must be fast or slow, not null"),
        ({"times": {}}, "times", "must be a list, not a mapping"),
        ({"times": []}, "times", "there is nothing in it"),
        ({"times": [{}, {}, {}]}, "times", "must have at most 2 items"),
        ({"times": [7]}, "times[0]", "must be a mapping of fields, not 7"),
        ({"times": [{}, {"batch": 0}]}, "times[1].batch", "must be at least 1, not 0"),
        ({"times": [{}, {"batch": 65}]}, "times[1].batch", "must be at most 64, not 65"),
        ({"times": [{"batch": 1.5}]}, "times[0].batch", "must be a whole number, not 1.5"),
        ({"times": [{"batsh": 1}]}, "times[0].batsh", "there is no such field"),
        ({"labels": []}, "labels", "must be a mapping of names to values, not a list"),
        ({"level": "middle"}, "level", "must be low or high, not 'middle'"),
        ({"even": 1}, "even", "Must be even"),
        (3, None, "must be a mapping of fields, not 3"),
    ],
)
def test_a_sentence_and_its_place(value: Any, where: str | None, what: str) -> None:
    assert found(value) == [(where, what, None)]


def test_a_refused_text_with_a_shape_of_its_own_is_not_repeated() -> None:
    assert found({"secret": "PASSWORD1"}) == [("secret", "only letters are allowed", None)]


def test_an_error_of_our_own_is_told_as_it_is_with_its_hint() -> None:
    assert found({"odd": 2}) == [("odd", "Even it is", "give an odd one")]


def test_all_problems_are_told_and_none_twice() -> None:
    class Listed(BaseModel):
        items: Annotated[list[int], Field(min_length=1)]

    with pytest.raises(ValidationError) as raised:
        Listed.model_validate({"items": ["a", "b"]})
    assert [one.where for one in problems(raised.value)] == ["items[0]", "items[1]"]


def test_a_list_with_too_few_good_items_is_told_how_many_it_needs() -> None:
    class Paired(BaseModel):
        items: Annotated[list[int], Field(min_length=2)]

    with pytest.raises(ValidationError) as raised:
        Paired.model_validate({"items": [1]})
    assert [(one.where, one.what) for one in problems(raised.value)] == [("items", "must have 2 items or more")]


def test_a_missing_field_is_named() -> None:
    class Needed(BaseModel):
        here: int

    with pytest.raises(ValidationError) as raised:
        Needed.model_validate({})
    assert [(one.where, one.what) for one in problems(raised.value)] == [("here", "this field is missing")]


def test_a_place_starts_with_a_list() -> None:
    assert place_of((0, "a", 1, 2)) == "[0].a[1][2]"


def test_values_are_shown_short() -> None:
    assert shown("a" * 40) == repr("a" * 40)
    assert shown("a" * 41) == repr("a" * 37 + "...")
    assert [shown(one) for one in (None, True, False, 10**17, 10**18, 1e30, {"a": 1}, (1,), object())] == [
        "null", "true", "false", str(10**17), "a huge number", "1e+30", "a mapping", "a list", "object",
    ]  # fmt: skip
