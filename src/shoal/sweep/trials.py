"""The section of a manifest that says what is swept over, and the values of each trial. Pure.

The values of a trial follow from the section and the number of the trial alone: nothing of them is stored.
"""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping
from itertools import product
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo, field_validator, model_validator

from shoal.contract.manifest import JobManifest
from shoal.core import Invalid

MOST_TRIALS = 10_000
"""As many as a job array may have tasks."""

Value = bool | int | float | str
Values = Mapping[str, Value]

NAME = r"^[A-Za-z_][A-Za-z0-9_]{0,62}$"
Name = Annotated[str, StringConstraints(pattern=NAME)]
Scalar = Annotated[Value, Field(union_mode="left_to_right")]

_PLACE = re.compile(r"\$\{sweep\.([^}]*)\}")


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, strict=True)


class Range(_Section):
    """Numbers between two others, both included."""

    min: float = Field(description="the lowest")
    max: float = Field(description="the highest")
    log: bool = Field(False, description="evenly by the logarithm: as many from 0.001 to 0.01 as from 0.01 to 0.1")
    integer: bool = Field(False, description="whole numbers only")

    @model_validator(mode="after")
    def _grows(self) -> Self:
        if not self.min < self.max:
            raise ValueError(f"min is {self.min:g}, which is not below max, {self.max:g}")
        if self.log and self.min <= 0:
            raise ValueError("a logarithmic range begins above 0")
        if self.integer and (
            not self.min.is_integer() or not self.max.is_integer() or abs(self.min) + self.max > 2**52
        ):
            raise ValueError("a range of whole numbers begins and ends with one")
        return self

    def at(self, part: float) -> Value:
        """What lies at this part of the range, from 0 to below 1."""
        low, high = self.min, self.max
        if self.integer:
            low, high = low - 0.5 if self.log else low, high + (0.5 if self.log else 1)
        if self.log:
            found = math.exp(math.log(low) + part * (math.log(high) - math.log(low)))
        else:
            found = low + part * (high - low)
        if not self.integer:
            return min(max(found, self.min), self.max)
        return round(min(max(math.floor(found + (0.5 if self.log else 0)), self.min), self.max))


Choices = Annotated[tuple[Scalar, ...], Field(min_length=1, max_length=MOST_TRIALS)]


class Stop(_Section):
    """Trials that are hopeless end early, by asynchronous successive halving or by Optuna's median rule."""

    rule: Literal["halving", "median"] = Field(
        "halving", description="who goes on from a rung: the best `1/eta`, or those no worse than the median"
    )
    eta: int = Field(3, ge=2, le=100, description="of `halving`, one of this number of trials at a rung goes on")
    least: int = Field(
        4, ge=1, le=MOST_TRIALS, description="of `median`, all go on until this number of trials were at the rung"
    )
    first: int = Field(1, ge=1, le=2**40, description="the step of the first rung; each later one has `eta` times it")


def _array(manifest: JobManifest) -> tuple[int, ...]:
    return () if manifest.tasks is None else manifest.tasks.indices


class Sweep(_Section):
    """What is swept over: every combination of the values of `parameters`; or `random` draws of them; or `rows`."""

    parameters: dict[Name, Choices | Range] = Field(
        default={}, max_length=64, description="by name a list of values, or with `random` also a range"
    )
    random: Annotated[int, Field(ge=1, le=MOST_TRIALS)] | None = Field(None, description="the number of random draws")
    seed: int = Field(0, ge=0, le=2**62, description="other draws with another seed")
    rows: Annotated[tuple[dict[Name, Scalar], ...], Field(min_length=1, max_length=MOST_TRIALS)] | None = Field(
        None, description="the values of each trial, in place of `parameters`"
    )
    metric: Annotated[str, StringConstraints(min_length=1, max_length=128)] | None = Field(
        None, description="what trials report and are compared by"
    )
    goal: Literal["min", "max"] = Field("min", description="whether the lowest value is best, or the highest")
    stop: Stop | None = Field(None, description="end hopeless trials early; left out: all run to their end")

    @field_validator("parameters", "rows", mode="before")
    @classmethod
    def _lists(cls, given: object) -> object:
        """JSON has lists where tuples are meant."""
        if isinstance(given, dict):
            return {name: tuple(one) if isinstance(one, list) else one for name, one in given.items()}
        return tuple(given) if isinstance(given, list) else given

    @model_validator(mode="after")
    def _agrees(self, info: ValidationInfo) -> Self:
        if bool(self.parameters) == (self.rows is not None):
            raise ValueError("it has either `parameters` or `rows`")
        ranges = [name for name, one in self.parameters.items() if isinstance(one, Range)]
        if ranges and self.random is None:
            raise ValueError(f"{ranges[0]} is a range: say with `random` how many draws of it there are")
        if self.rows is not None and self.random is not None:
            raise ValueError("`rows` are run as they are: `random` does not go with them")
        if self.rows is not None and len({frozenset(row) for row in self.rows}) > 1:
            raise ValueError("all rows have the same names")
        if self.stop is not None and self.metric is None:
            raise ValueError("`stop` needs a `metric`")
        if self.count > MOST_TRIALS:
            raise ValueError(f"it has {self.count} trials, more than {MOST_TRIALS}")
        if info.context is not None and _array(info.context) != tuple(range(self.count)):
            raise ValueError(f"its array must be 0-{self.count - 1}: `shoal sweep run` writes that")
        return self

    @property
    def count(self) -> int:
        """The number of trials."""
        if self.rows is not None:
            return len(self.rows)
        if self.random is not None:
            return self.random
        return math.prod(len(one) for one in self.parameters.values() if isinstance(one, tuple))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self.rows[0]) if self.rows is not None else frozenset(self.parameters)

    @property
    def lower(self) -> bool:
        return self.goal == "min"

    def trial(self, index: int) -> Values:
        """The values of one trial. Raises Invalid for one that there is not."""
        if not 0 <= index < self.count:
            raise Invalid(f"the sweep has no trial {index}", where="array", hint=f"array: 0-{self.count - 1}")
        if self.rows is not None:
            return self.rows[index]
        if self.random is not None:
            return {name: self._drawn(name, index) for name in self.parameters}
        found: dict[str, Value] = {}
        for name, one in reversed(list(self.parameters.items())):
            assert isinstance(one, tuple)
            index, at = divmod(index, len(one))
            found[name] = one[at]
        return dict(reversed(found.items()))

    def _drawn(self, name: str, index: int) -> Value:
        part = random.Random(f"{self.seed}/{name}/{index}").random()  # noqa: S311 - draws are to come again
        one = self.parameters[name]
        return one.at(part) if isinstance(one, Range) else one[int(part * len(one))]


def every_trial(sweep: Sweep) -> list[Values]:
    """The values of all trials, in order."""
    if sweep.rows is None and sweep.random is None:
        names = list(sweep.parameters)
        lists = [one for one in sweep.parameters.values() if isinstance(one, tuple)]
        return [dict(zip(names, values, strict=True)) for values in product(*lists)]
    return [sweep.trial(index) for index in range(sweep.count)]


def text_of(value: Value) -> str:
    """As a program reads it."""
    return ("true" if value else "false") if isinstance(value, bool) else str(value)


def title(values: Values) -> str:
    """What a trial is called: `lr=0.1,layers=4`."""
    return ",".join(f"{name}={f'{value:.4g}' if isinstance(value, float) else value}" for name, value in values.items())


def substitute(text: str, values: Values) -> str:
    """The text with `${sweep.NAME}` replaced by values. What comes in is not looked at again, and no shell sees it.
    Raises Invalid for a name that is not swept over."""

    def found(match: re.Match[str]) -> str:
        if match[1] not in values:
            known = ", ".join(values) or "none"
            raise Invalid(f"the sweep has no parameter {match[1]!r}", where=match[0], hint=f"parameters: {known}")
        return text_of(values[match[1]])

    return _PLACE.sub(found, text)


def as_json(values: Values) -> str:
    return json.dumps(dict(values))
