"""Configuration of a guard: which groups there are, what they were promised, which policy decides and what it may turn.

    groups:
      - {name: feed, class: guaranteed, label: ROLE=feed, ring: /run/feed.ring, slo: {max_slowdown: 1.05}}
      - {name: batch, class: best-effort, cgroup: batch.slice, weight: 2, min_share: 0.05}
    policy: model
    actuators: {allow: [pace, freeze, weight]}

YAML, JSON or TOML, by the file's ending. Everything wrong with it is reported at once, by the name of the field.
"""

from __future__ import annotations

import json
import os
import pwd
import tomllib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)

from shoal.base.validation import problems
from shoal.core import Invalid, PriorityClass
from shoal.host.guard.contradictions import contradictions
from shoal.host.guard.loop import CHANGES_PER_MINUTE
from shoal.host.linux.members import Members
from shoal.host.policy import make_policy, policy_problems
from shoal.host.types import TICK_S, Control, Group, Policy

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
MECHANISMS: Mapping[str, Control] = MappingProxyType({
    "cpus-cpuset": Control.CPUS,
    "cpus-affinity": Control.CPUS,
    "weight": Control.WEIGHT,
    "placement-cpuset": Control.DOMAINS,
    "placement-affinity": Control.DOMAINS,
    "mba": Control.SHARE,
    "pace": Control.SHARE,
    "quota": Control.SHARE,
    "prefetchers": Control.PREFETCHING,
    "cores-cpuset": Control.CORES,
    "cores-affinity": Control.CORES,
    "freeze": Control.FREEZE,
    "stop-signal": Control.FREEZE,
})  # fmt: skip
"""The names by which a configuration allows single mechanisms."""
_MOST_BYTES = 10 << 20
_EXAMPLE = "see docs/how-to/guard-neighbours.md for an example"
_GATEWAY = r"^(http://[^/@\s]+/\S*)?$"
_SHAPES = {
    NAME: "must be up to 63 letters, digits, dots, dashes and underscores, a letter or digit first",
    _GATEWAY: "must be http://HOST:PORT/PATH, without a user",
}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Slo(_Section):
    """What a guaranteed group is promised: its units of work take at most `max_slowdown` times as long as alone."""

    max_slowdown: Annotated[float, Field(gt=1.0, le=10.0)] = 1.05


class ReportsConfig(_Section):
    """Where a group's work is reported: `lines` (a file that `shoal.train` writes), or the `gateway` that serves it
    (the URL of its metrics), of which the work of a `tenant`'s `models` is the group's. The gateway's operator token
    is read from `token_file`, and sent to no other address."""

    lines: Path | None = None
    gateway: Annotated[str, Field(pattern=_GATEWAY)] = ""
    token_file: Path | None = None
    tenant: str = ""
    models: frozenset[str] = frozenset()


class GroupConfig(_Section):
    """A group and its processes: exactly one of `cgroup` (a path), `pids` (with all their children) and `label`
    (`NAME=VALUE` in their environment). Only processes of `owners` count (users by name or number); by default all do,
    but of those with a label only root's and those of the guard's own user. `ring` is where its program writes its
    steps (`shoal.ring`), or a directory of such files; `reports` where its work is reported otherwise. `cpus` is how
    many CPUs it was promised: a guaranteed group that says so gets them to itself while best-effort work runs."""

    name: Annotated[str, Field(pattern=NAME)]
    priority_class: Annotated[PriorityClass, Field(alias="class")]
    cgroup: str = ""
    pids: frozenset[Annotated[int, Field(gt=0)]] = frozenset()
    label: str = ""
    owners: Annotated[tuple[StrictInt | StrictStr, ...], Field(min_length=1)] | None = None
    ring: Path | None = None
    reports: ReportsConfig | None = None
    slo: Slo = Slo()
    weight: Annotated[float, Field(gt=0, le=1000)] = 1.0
    min_share: Annotated[float, Field(ge=0, le=1)] = 0.02
    cpus: Annotated[float, Field(gt=0, le=100_000)] | None = None

    @field_validator("label")
    @classmethod
    def _label(cls, value: str) -> str:
        name, equals, _ = value.partition("=")
        if value and not (name and equals):
            raise ValueError(f"must be NAME=VALUE as in the environment of its processes, not {value!r}")
        return value

    @field_validator("owners")
    @classmethod
    def _users(cls, value: tuple[int | str, ...] | None) -> tuple[int, ...] | None:
        """As numbers."""
        if value is None:
            return None
        found = {one: _user(one) for one in value}
        if unknown := [one for one, user in found.items() if user is None]:
            raise ValueError(f"there is no user {' or '.join(map(repr, unknown))} on this host")
        return tuple(user for user in found.values() if user is not None)

    @property
    def members(self) -> Members:
        owners = None if self.owners is None else frozenset(int(one) for one in self.owners)
        return Members(self.cgroup, self.pids, self.label, owners)

    @property
    def group(self) -> Group:
        return Group(self.name, self.priority_class, self.weight, self.min_share, self.slo.max_slowdown, self.cpus)


def _user(name: int | str) -> int | None:
    """Its number; None if there is no such user."""
    if isinstance(name, int):
        return name if name >= 0 else None
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        return None


class PolicyConfig(_Section):
    """A policy by its name, and settings of its own."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str = "model"

    @model_validator(mode="after")
    def _known(self) -> PolicyConfig:
        if problems := policy_problems(self.name, self.model_extra or {}):
            raise ValueError("; ".join(problems))
        return self

    def make(self) -> Policy[Any]:
        return make_policy(self.name, **(self.model_extra or {}))


class Actuators(_Section):
    """`allow` names controls or single mechanisms; without it all that work are used."""

    allow: Annotated[tuple[str, ...], Field(min_length=1)] | None = None

    @field_validator("allow")
    @classmethod
    def _known(cls, value: tuple[str, ...] | None) -> tuple[str, ...] | None:
        if unknown := [name for name in value or () if name not in MECHANISMS and name not in list(Control)]:
            there = ", ".join(dict.fromkeys((*map(str, Control), *MECHANISMS)))
            raise ValueError(f"nothing is called {' or '.join(map(repr, unknown))}; there are {there}")
        return value

    @property
    def mechanisms(self) -> frozenset[str]:
        """Those that may be used, if they work here."""
        if self.allow is None:
            return frozenset(MECHANISMS)
        return frozenset(name for name, control in MECHANISMS.items() if {name, control.value} & set(self.allow))


class Limits(_Section):
    """`changes_per_minute`: beyond it limits are tightened, but not loosened."""

    changes_per_minute: Annotated[int, Field(ge=1, le=60_000)] = CHANGES_PER_MINUTE


class JournalConfig(_Section):
    """`max_bytes` of one file; `files` are kept."""

    path: Path | None = None
    max_bytes: Annotated[int, Field(ge=100_000, le=10 << 30)] = 32 << 20
    files: Annotated[int, Field(ge=1, le=1000)] = 4


class MetricsConfig(_Section):
    """Prometheus metrics: in a `file` for the node exporter, and at `port` of this machine's loopback."""

    file: Path | None = None
    port: Annotated[int, Field(ge=0, le=65535)] | None = None


class GuardConfig(_Section):
    groups: Annotated[tuple[GroupConfig, ...], Field(min_length=1)]
    policy: PolicyConfig = PolicyConfig()
    actuators: Actuators = Actuators()
    limits: Limits = Limits()
    tick_s: Annotated[float, Field(ge=0.02, le=60)] = TICK_S
    capacity: Mapping[int, Annotated[float, Field(gt=0)]] = Field(default_factory=dict)
    """Bytes per second that memory domains were calibrated to carry, by domain."""
    journal: JournalConfig = JournalConfig()
    metrics: MetricsConfig = MetricsConfig()

    @field_validator("policy", mode="before")
    @classmethod
    def _policy(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value


class FollowedConfig(GuardConfig):
    """One that is written again as work comes and goes: there may be none."""

    groups: tuple[GroupConfig, ...] = ()


def read_config(path: Path, *, kind: type[GuardConfig] = GuardConfig) -> GuardConfig:
    """Raises `Invalid` with every problem found."""
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise Invalid("this is too large for a configuration", where=str(path))
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise Invalid(f"it cannot be read: {error.strerror}", where=str(path), hint=_EXAMPLE) from None
    except UnicodeDecodeError:
        raise Invalid("this is no text", where=str(path), hint=_EXAMPLE) from None
    return parse_config(_parsed(path, text), where=str(path), kind=kind)


def parse_config(value: Any, *, where: str = "configuration", kind: type[GuardConfig] = GuardConfig) -> GuardConfig:
    if not isinstance(value, dict):
        raise Invalid("a configuration is a mapping with groups", where=where, hint=_EXAMPLE)
    found = list(contradictions(value, None if issubclass(kind, FollowedConfig) else os.cpu_count()))
    try:
        made = kind.model_validate(value)
    except ValidationError as error:
        found[:0] = [Invalid(one.what, where=one.where or where) for one in problems(error, shapes=_SHAPES)]
    if found:
        raise Invalid("the guard's configuration is wrong", where=where, hint=_EXAMPLE, problems=tuple(found))
    return made


def _parsed(path: Path, text: str) -> Any:
    if path.suffix.lower() == ".toml":
        try:
            return tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise Invalid(f"this is no TOML: {error}", where=str(path)) from None
    if path.suffix.lower() == ".json":
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise Invalid(f"this is no JSON: {error}", where=str(path)) from None
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        where = getattr(error, "problem_mark", None)
        line = f"{path}:{where.line + 1}" if where is not None else str(path)
        raise Invalid(f"this is no YAML: {getattr(error, 'problem', error)}", where=line) from None
