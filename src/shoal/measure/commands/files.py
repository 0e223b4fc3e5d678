"""The files of `shoal measure plan`: profiles, servers and rates, YAML or JSON, with every problem named."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from shoal.base.validation import problems
from shoal.contract.manifest.quantities import read_duration, read_duration_or_zero, read_size
from shoal.core import Invalid, Money, NotFound
from shoal.measure.planning.profiles import Demand, ExecutionTime, ModelProfile, ServerType

_MOST_BYTES = 64 << 20

Shape = TypeVar("Shape", bound=BaseModel)

Seconds = Annotated[float, BeforeValidator(read_duration)]
SecondsOrNone = Annotated[float, BeforeValidator(read_duration_or_zero)]
Size = Annotated[int, BeforeValidator(read_size)]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class _ExecutionTimes(_Strict):
    batch: int = Field(1, ge=1)
    seconds: Seconds | None = None
    """Constant; or else `quantiles`, by share as text: JSON has no other keys."""
    quantiles: dict[str, Seconds] | None = None
    measured: list[Seconds] | None = None


class _Profile(_Strict):
    name: Name
    memory: Size = 0
    load: SecondsOrNone = 0.0
    slots: int = Field(1, ge=1)
    times: list[_ExecutionTimes] = Field(min_length=1)


class _Profiles(_Strict):
    models: list[_Profile] = Field(min_length=1)


class _Server(_Strict):
    name: Name
    per_hour: Decimal = Field(ge=0)
    slots: int = Field(1, ge=1)
    memory: Size = 0
    speed: float = Field(1.0, gt=0)
    limit: int | None = Field(None, ge=0)


class _Servers(_Strict):
    servers: list[_Server] = Field(min_length=1)


class _Rate(_Strict):
    model: Name
    tenant: str = ""
    rate: float = Field(ge=0)
    slo: Seconds
    quantile: float = Field(0.99, gt=0, lt=1)
    burst: float = Field(1.0, ge=1)


class _Rates(_Strict):
    rates: list[_Rate] = Field(min_length=1)


def read_profiles(path: Path) -> dict[str, ModelProfile]:
    """By name. Raises NotFound, and Invalid with every problem."""
    found: dict[str, ModelProfile] = {}
    for at, one in enumerate(_parsed(path, _Profiles).models):
        where = f"{path}: models[{at}] ({one.name})"
        if one.name in found:
            raise Invalid("the model is there twice", where=where)
        try:
            times = tuple(_times(each) for each in sorted(one.times, key=lambda each: each.batch))
            found[one.name] = ModelProfile(one.name, times, one.memory, one.load, one.slots)
        except Invalid as error:
            raise Invalid(error.what, where=f"{where}: {error.where}", hint=error.hint) from None
    return found


def _times(one: _ExecutionTimes) -> ExecutionTime:
    given = [each for each in (one.seconds, one.quantiles, one.measured) if each is not None]
    if len(given) != 1 or not given[0]:
        raise Invalid(
            "say how long an execution takes, in one way", where="times", hint="seconds, quantiles or measured"
        )
    if one.seconds is not None:
        return ExecutionTime.constant(one.seconds, batch=one.batch)
    if one.measured is not None:
        return ExecutionTime.measured(one.measured, batch=one.batch)
    try:
        shares = sorted((float(share), seconds) for share, seconds in (one.quantiles or {}).items())
    except ValueError:
        raise Invalid("quantiles are named by shares", where="times", hint='"0.5": "10ms", "0.99": "14ms"') from None
    return ExecutionTime(one.batch, tuple(shares))


def read_servers(path: Path) -> list[ServerType]:
    return [
        ServerType(one.name, Money.usd(one.per_hour), one.slots, one.memory, one.speed, one.limit)
        for one in _parsed(path, _Servers).servers
    ]


def read_rates(path: Path, profiles: Mapping[str, ModelProfile]) -> list[Demand]:
    return [
        Demand(
            _profile(profiles, one.model, f"{path}: rates[{at}]"),
            one.rate,
            one.slo,
            one.quantile,
            one.burst,
            one.tenant,
        )
        for at, one in enumerate(_parsed(path, _Rates).rates)
    ]


def read_rate(text: str, profiles: Mapping[str, ModelProfile]) -> Demand:
    """`[TENANT/]MODEL=RATE,SLO[,p=0.95][,burst=4]`."""
    hint = "write it as vision/resnet50=120,50ms or resnet50=120,50ms,p=0.95,burst=4"
    name, _, rest = text.partition("=")
    tenant, _, model = name.rpartition("/")
    fields = rest.split(",")
    keys = {"p": "quantile", "burst": "burst"}
    extra = dict(one.partition("=")[::2] for one in fields[2:])
    if not model or len(fields) < 2 or not all(fields) or set(extra) - set(keys):
        raise Invalid(f"{text!r} does not say a rate and an objective", where="--rate", hint=hint)
    rate, slo = fields[:2]
    raw = {"model": model, "tenant": tenant, "rate": rate, "slo": slo, **{keys[key]: one for key, one in extra.items()}}
    one = _validated(raw, _Rate, f"--rate {text}", hint)
    return Demand(_profile(profiles, one.model, "--rate"), one.rate, one.slo, one.quantile, one.burst, one.tenant)


def _profile(profiles: Mapping[str, ModelProfile], name: str, where: str) -> ModelProfile:
    if name not in profiles:
        raise NotFound(f"there is no profile of {name!r}", where=where, hint=f"profiled: {', '.join(sorted(profiles))}")
    return profiles[name]


def _parsed(path: Path, shape: type[Shape]) -> Shape:
    """A list alone stands for the document's only field."""
    import yaml

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Invalid(f"larger than {_MOST_BYTES >> 20} MiB", where=str(path))
        value: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFound("there is no such file", where=str(path)) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"cannot be read: {error}", where=str(path)) from error
    except (yaml.YAMLError, RecursionError) as error:
        problem = getattr(error, "problem", None) or "nested too deeply"
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark is not None else str(path)
        raise Invalid(f"neither YAML nor JSON: {problem}", where=where) from None
    if isinstance(value, list):
        value = {next(iter(shape.model_fields)): value}
    return _validated(value, shape, str(path), None)


def _validated(value: Any, shape: type[Shape], where: str, hint: str | None) -> Shape:
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        found = tuple(
            Invalid(one.what, where=f"{where}: {one.where}" if one.where else where, hint=one.hint or hint)
            for one in problems(error)
        )
        if len(found) == 1:
            raise found[0] from None
        raise Invalid(f"{len(found)} problems", where=where, problems=found) from None
