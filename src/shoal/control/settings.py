"""The server's settings, declared once: this module is where the file, the environment, the flags and the reference
page take them from.

A flag beats SHOAL_* in the environment, which beats the settings file, which beats the default. An extension's settings
stand below its name: `guard: {enabled: on}` in the file, SHOAL_GUARD__ENABLED=on, `--set guard.enabled=on`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    create_model,
)  # fmt: skip
from pydantic_core import PydanticCustomError
from pydantic_settings import BaseSettings, EnvSettingsSource

from shoal.admission import Policy, Spread
from shoal.base.discover import find
from shoal.base.home import default_home
from shoal.base.http import Limits as HttpLimits
from shoal.contract.manifest.quantities import read_duration, read_memory, write_duration, write_size
from shoal.control.bundles import BundleLimits
from shoal.control.home import Home
from shoal.control.limits import JobLimits
from shoal.control.retention import Retention
from shoal.core import Invalid
from shoal.extension import Extension, Section

DEFAULT_PORT = 7070
LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
PREFIX, LEVEL = "SHOAL_", "__"
_POLICY = Policy()


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach it."""
    return host in LOOPBACK or host.startswith("127.")


def _database(url: str) -> str:
    if not url.startswith(("sqlite:", "postgresql:", "postgresql+psycopg:")):
        raise ValueError("must be sqlite:///PATH or postgresql://USER@HOST/NAME")
    return url


_LEAST_KEPT_S = 7200.0


def _period(value: Any) -> float:
    """What ended a moment ago is still read, and the last use of a bundle is kept to the hour."""
    try:
        seconds = read_duration(int(value) if isinstance(value, str) and value.strip().isdecimal() else value)
    except PydanticCustomError:
        seconds = 0.0
    if seconds < _LEAST_KEPT_S:
        raise ValueError(f"must be a duration of at least 2h, such as 30d, not {value!r}")
    return seconds


def _size(value: Any) -> int:
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value)
    try:
        return read_memory(value)
    except PydanticCustomError:
        raise ValueError(f"must be a size such as 512MiB or 4GiB, not {value!r}") from None


def _lower(value: Any) -> Any:
    return value.strip().lower() if isinstance(value, str) else value


Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Text = Annotated[str, Field(min_length=1)]


class Group(BaseModel):
    """Settings of the server that stand below one name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


_JOBS, _HTTP, _BUNDLES, _KEEP = JobLimits(), HttpLimits(), BundleLimits(), Retention()
Bytes = Annotated[int, BeforeValidator(_size), PlainSerializer(write_size, return_type=str, when_used="json")]


class JobSettings(Group):
    """What a job gets that does not say what it needs, and what no job may exceed."""

    default_cpus: Seconds = Field(_JOBS.default_cpus, description="cores of a job that names none")
    default_memory: Bytes | None = Field(
        None, description="memory of a job that names none, such as 2GiB [a share of the node's memory for each core]"
    )
    max_processes: int = Field(_JOBS.processes, ge=4, le=4_194_304, description="processes and threads of a rank")
    max_open_files: int = Field(_JOBS.open_files, ge=64, le=1_048_576, description="open files of a process")
    max_log: Bytes = Field(_JOBS.log_bytes, description="size of a rank's log, such as 1GiB")
    max_disk: Bytes | None = Field(
        None, description="disk that a job's run directories may take [half of the home's file system]"
    )

    max_unpacked: Bytes = Field(_JOBS.unpacked_bytes, description="what an archive of working files unpacks to")

    def limits(self) -> JobLimits:
        return JobLimits(
            default_cpus=self.default_cpus, default_memory_bytes=self.default_memory, processes=self.max_processes,
            open_files=self.max_open_files, log_bytes=self.max_log, disk_bytes=self.max_disk,
            unpacked_bytes=self.max_unpacked,
        )  # fmt: skip


class BundleSettings(Group):
    """Archives of working files."""

    max_upload: Bytes = Field(_BUNDLES.upload_bytes, description="largest archive of working files")
    max_count: int = Field(_BUNDLES.count, ge=1, le=10_000_000, description="archives of a tenant")
    max_size: Bytes = Field(_BUNDLES.stored_bytes, description="size of all archives of a tenant")

    def limits(self, jobs: JobSettings) -> BundleLimits:
        return BundleLimits(self.max_upload, jobs.max_unpacked, self.max_count, self.max_size)


Period = Annotated[float, BeforeValidator(_period), PlainSerializer(write_duration, return_type=str, when_used="json")]


class KeepSettings(Group):
    """How long the garbage collector leaves what is over. A period is at least 2 hours."""

    jobs: Period = Field(_KEEP.jobs_s, description="finished jobs: record, events, metrics, logs, checkpoints; as 30d")
    runs: Period = Field(_KEEP.runs_s, description="run directories of finished jobs")
    events: Period = Field(_KEEP.events_s, description="events of no job and no live service")
    bundles: Period = Field(_KEEP.bundles_s, description="archives that nothing live names, after their last use")
    jobs_per_tenant: int = Field(_KEEP.jobs_per_tenant, ge=1, le=100_000_000, description="finished jobs of a tenant")
    runs_size: Bytes | None = Field(None, description="run directories of a tenant's finished jobs together [any size]")

    def retention(self) -> Retention:
        return Retention(self.jobs, self.runs, self.events, self.bundles, self.jobs_per_tenant, self.runs_size)


Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class HttpSettings(Group):
    """What one client, one address and all clients may take of the API, and of the gateway of services."""

    head_kib: int = Field(_HTTP.head >> 10, ge=1, le=1024, description="size of a request's first line and headers")
    head_s: Positive = Field(_HTTP.head_s, description="seconds for a request's first line and headers")
    body_s: Positive = Field(_HTTP.body_s, description="seconds for a body, to which its size at the slowest rate adds")
    slowest_kib_per_s: int = Field(
        int(_HTTP.slowest_bytes_per_s) >> 10, ge=1, le=1 << 20, description="the slowest rate of a large body"
    )
    idle_s: Positive = Field(_HTTP.idle_s, description="seconds for which an idle connection is kept")
    connections: int = Field(_HTTP.connections, ge=1, le=1 << 20, description="open connections of all clients")
    connections_per_address: int | None = Field(
        None, ge=1, le=1 << 20, description="open connections of one address [half of all]"
    )
    reserved_files: int = Field(
        _HTTP.reserved_files, ge=16, le=1 << 20, description="descriptors that no connection may use"
    )

    def limits(self) -> HttpLimits:
        return HttpLimits(
            head=self.head_kib << 10, head_s=self.head_s, body_s=self.body_s,
            slowest_bytes_per_s=float(self.slowest_kib_per_s << 10), idle_s=self.idle_s, connections=self.connections,
            per_address=self.connections_per_address, reserved_files=self.reserved_files,
        )  # fmt: skip


class TokenLimits(Group):
    """What the holder of one token may ask of the API."""

    requests_per_s: Positive = Field(200.0, description="requests of one token per second, on average")
    burst: int = Field(1000, ge=1, le=1 << 20, description="requests of one token at once")
    questions_per_s: Positive = Field(
        5.0,
        description="explanations, and checks of manifests over 4 KiB, of one token per second, on average",
    )
    question_burst: int = Field(30, ge=1, le=1 << 20, description="explanations and such checks of one token at once")
    streams: int = Field(
        256, ge=1, le=1 << 20, description="requests of one token that wait: event streams, followed logs, long polls"
    )


class ServerSettings(BaseModel):
    """Of the server itself. Each field's description is its help text and its row in the reference."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    db: Annotated[Text, AfterValidator(_database)] | None = Field(
        None, description="database: sqlite:///PATH, or postgresql://USER@HOST/NAME [sqlite:///HOME/shoal.db]"
    )
    host: Text = Field("127.0.0.1", description="address to listen on; there is no TLS, so keep to loopback or a proxy")
    port: int = Field(DEFAULT_PORT, ge=0, le=65535, description="port to listen on; 0: any free one")
    engine: Text = Field("local", description="where processes run")
    slots: int | None = Field(
        None, ge=1, le=4096, description="CPU slots to offer instead of what the machine has [accelerators, else cores]"
    )
    placement: Annotated[Spread, BeforeValidator(_lower)] = Field(
        _POLICY.placement, description="pack (keep nodes free for gangs) or spread"
    )
    preemption: bool = Field(_POLICY.preemption, description="may guaranteed work displace best-effort work?")
    backfill_s: Seconds = Field(
        _POLICY.backfill_s, description="how long jobs of unknown length may overtake a blocked gang"
    )
    quantum_s: Seconds = Field(_POLICY.quantum_s, description="seconds of an accelerator that a tenant's turn is worth")
    default_runtime_s: Seconds = Field(
        _POLICY.default_runtime_s, description="taken for a job's length while nothing is known of it"
    )
    log_level: Annotated[str, BeforeValidator(_lower), Field(pattern="^(debug|info|warning|error)$")] = Field(
        "info", description="debug, info, warning or error"
    )
    jobs: JobSettings = Field(default_factory=lambda: JobSettings.model_validate({}))
    bundles: BundleSettings = Field(default_factory=lambda: BundleSettings.model_validate({}))
    keep: KeepSettings = Field(default_factory=lambda: KeepSettings.model_validate({}))
    http: HttpSettings = Field(default_factory=lambda: HttpSettings.model_validate({}))
    tokens: TokenLimits = Field(default_factory=lambda: TokenLimits.model_validate({}))

    def section(self, extension: type[Extension]) -> Section:
        """An extension's own settings."""
        return cast("Section", getattr(self, extension.name))


@dataclass(frozen=True, slots=True)
class Settings:
    """What a server starts from: its home, its settings, and the extensions that are installed."""

    home: Home
    values: ServerSettings
    extensions: tuple[type[Extension], ...] = ()

    @property
    def database(self) -> str:
        return self.values.db or self.home.database

    @property
    def policy(self) -> Policy:
        """How admission decides."""
        one = self.values
        return Policy(
            placement=one.placement, preemption=one.preemption, backfill_s=one.backfill_s, quantum_s=one.quantum_s,
            default_runtime_s=one.default_runtime_s,
        )  # fmt: skip

    @property
    def loopback(self) -> bool:
        return is_loopback(self.values.host)


def installed_extensions() -> tuple[type[Extension], ...]:
    return tuple(one.load() for one in find("shoal.extensions").values())


def settings_model(extensions: Sequence[type[Extension]]) -> type[ServerSettings]:
    """The server's settings and a field for each extension's section."""
    sections: dict[str, Any] = {one.name: (one.settings, Field(default_factory=one.settings)) for one in extensions}
    return create_model("Settings", __base__=ServerSettings, **sections)


def load_settings(
    flags: Mapping[str, Any],
    *,
    sets: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
    config: Path | None = None,
    extensions: Sequence[type[Extension]] | None = None,
) -> Settings:
    """`flags` holds what was given on the command line (None: not given), `sets` its `--set NAME=VALUE`. Raises
    Invalid with every problem, each at the place where the value came from."""
    environ = os.environ if environ is None else environ
    extensions = installed_extensions() if extensions is None else extensions
    home = Home(Path(flags["home"]).expanduser().absolute() if flags.get("home") else default_home(environ))
    model = settings_model(extensions)
    problems: list[Invalid] = []
    sources = [
        _Source("--set {}=", _pairs(sets, problems)),
        _Source("--{}", {name: value for name, value in flags.items() if value is not None and name != "home"}),
        _Source(PREFIX + "{}", _from_environment(model, environ)),
        _from_file(home, config, problems),
    ]
    values = _merged([source.values for source in sources])
    for one in extensions:
        section = values.get(one.name)
        if isinstance(section, dict) and section and "enabled" not in section:
            values[one.name] = {**section, "enabled": True}
    try:
        found = model.model_validate(values)
    except ValidationError as error:
        problems += [_problem(dict(detail), model, sources) for detail in error.errors(include_url=False)]
    if problems:
        first = problems[0]
        what = first.what if len(problems) == 1 else f"{len(problems)} settings are wrong"
        only = first.where if len(problems) == 1 else None
        raise Invalid(what, where=only, hint=first.hint, problems=tuple(problems))
    return Settings(home, found, tuple(extensions))


@dataclass(frozen=True, slots=True)
class Described:
    """One setting: its dotted name, its variable, its value and its default as a settings file takes them, and what it
    means."""

    name: str
    variable: str
    value: Any
    default: Any
    text: str


def describe(settings: Settings) -> list[Described]:
    """All settings of a server with these extensions: for `shoal settings`, and for the reference page."""
    model = settings_model(settings.extensions)
    values, defaults = settings.values.model_dump(mode="json"), model.model_validate({}).model_dump(mode="json")
    found = [Described("home", "SHOAL_HOME", str(settings.home.path), "~/.shoal", "database, logs and tokens")]
    for name, field in model.model_fields.items():
        kind = field.annotation
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            found.append(_described((name,), values[name], defaults[name], field.description))
            continue
        for inner, part in kind.model_fields.items():
            text = part.description or f"whether `{name}` is on"
            found.append(_described((name, inner), values[name][inner], defaults[name][inner], text))
    return found


def _described(path: tuple[str, ...], value: Any, default: Any, text: str | None) -> Described:
    return Described(".".join(path), PREFIX + LEVEL.join(path).upper(), value, default, text or "")


# --- where values come from ---


@dataclass(frozen=True, slots=True)
class _Source:
    """Values from one place. `where` is how an error names one of them, `{}` standing for its name."""

    where: str
    values: Mapping[str, Any]

    def name(self, path: tuple[str, ...]) -> str:
        if self.where.startswith("--set"):
            return self.where.format(".".join(path)).rstrip("=")
        if self.where.startswith("--"):
            return self.where.format("-".join(path).replace("_", "-"))
        if self.where.startswith(PREFIX):
            return self.where.format(LEVEL.join(path).upper())
        return self.where.format(".".join(path))

    def has(self, path: tuple[str, ...]) -> bool:
        values: Any = self.values
        for step in path:
            if not isinstance(values, Mapping) or step not in values:
                return False
            values = values[step]
        return True


def _pairs(sets: Sequence[str], problems: list[Invalid]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for text in sets:
        name, equals, value = text.partition("=")
        path = name.strip().split(".")
        if not equals or not all(path):
            problems.append(Invalid(f"{text!r} is not NAME=VALUE", where="--set", hint="such as guard.enabled=on"))
            continue
        found = _merged([_nested(path, value), found])
    return found


def _nested(path: Sequence[str], value: Any) -> dict[str, Any]:
    return {path[0]: value if len(path) == 1 else _nested(path[1:], value)}


class _Environment(EnvSettingsSource):
    def __init__(self, model: type[BaseSettings], environ: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in environ.items() if value}
        super().__init__(model, env_prefix=PREFIX, env_nested_delimiter=LEVEL, case_sensitive=False)

    def _load_env_vars(self) -> Mapping[str, str | None]:
        return self._given

    def decode_complex_value(self, _name: str, _field: Any, value: Any) -> Any:
        return value  # texts as they are: each field's own validator reads them


def _from_environment(model: type[BaseModel], environ: Mapping[str, str]) -> dict[str, Any]:
    fields: dict[str, Any] = {name: (field.annotation, field) for name, field in model.model_fields.items()}
    return _Environment(create_model("Environment", __base__=BaseSettings, **fields), environ)()


def _from_file(home: Home, config: Path | None, problems: list[Invalid]) -> _Source:
    path = config or home.config_file
    source = f"{path}: {{}}"
    try:
        text = path.read_text()
    except FileNotFoundError:
        if config is not None:
            raise Invalid("there is no such settings file", where=str(path)) from None
        return _Source(source, {})
    except OSError as error:
        raise Invalid(f"the settings file cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise Invalid(f"the settings file is not UTF-8 at byte {error.start}", where=str(path)) from None
    import yaml

    try:
        found = yaml.safe_load(text)
        problems += _repeated(yaml.compose(text, yaml.SafeLoader), str(path))
    except yaml.YAMLError as error:
        raise Invalid(f"the settings file is not YAML: {error}", where=str(path)) from error
    if found is None:
        return _Source(source, {})
    if not isinstance(found, dict):
        raise Invalid("the settings file must be a mapping of settings", where=str(path), hint="such as `port: 7070`")
    return _Source(source, {str(key): value for key, value in found.items()})


def _repeated(node: Any, source: str, levels: int = 3) -> Iterator[Invalid]:
    """Settings that a file holds twice: YAML's reader would take the last one, without a word. No setting is more than
    three levels deep, and an alias may lead back to where it stands."""
    lines: dict[str, int] = {}
    for key, value in node.value if getattr(node, "id", "") == "mapping" else ():
        line = key.start_mark.line + 1
        if key.value in lines:
            what = f"{key.value} is given twice, first on line {lines[key.value]}"
            yield Invalid(what, where=f"{source}:{line}: {key.value}", hint="keep one of them")
        lines.setdefault(str(key.value), line)
        if levels > 1:
            yield from _repeated(value, source, levels - 1)


def _merged(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The first layer that has a value gives it; mappings are merged key by key."""
    found: dict[str, Any] = {}
    for layer in layers:
        for name, value in layer.items():
            if name not in found:
                found[name] = dict(value) if isinstance(value, Mapping) else value
            elif isinstance(found[name], dict) and isinstance(value, Mapping):
                found[name] = _merged([found[name], value])
    return found


# --- what is said of wrong ones ---

_WANTED = {
    "int_parsing": "a whole number", "int_type": "a whole number", "int_from_float": "a whole number",
    "float_parsing": "a number", "float_type": "a number", "finite_number": "a finite number",
    "bool_parsing": "on or off", "bool_type": "on or off", "string_type": "a text", "string_too_short": "a text",
    "model_type": "a mapping of settings", "model_attributes_type": "a mapping of settings",
}  # fmt: skip


def _problem(detail: dict[str, Any], model: type[BaseModel], sources: Sequence[_Source]) -> Invalid:
    path = tuple(str(step) for step in detail["loc"])
    source, path = _origin(path, sources)
    where = source.name(path) if source is not None else None
    if detail["type"] == "extra_forbidden":
        known = _names(model, path[:-1])
        near = difflib.get_close_matches(path[-1], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        return Invalid(f"there is no setting {'.'.join(path)!r}", where=where, hint=hint)
    return Invalid(_say(detail), where=where)


def _origin(path: tuple[str, ...], sources: Sequence[_Source]) -> tuple[_Source | None, tuple[str, ...]]:
    """The place that gave a value, and the value's name there: pydantic may name a part of it, or an alternative."""
    while path:
        for source in sources:
            if source.has(path):
                return source, path
        path = path[:-1]
    return None, path


def _names(model: type[BaseModel], path: tuple[str, ...]) -> list[str]:
    here: Any = model
    for step in path:
        here = here.model_fields[step].annotation
    return list(here.model_fields)


def _say(detail: dict[str, Any]) -> str:
    found, context, value = detail["type"], detail.get("ctx", {}), detail["input"]
    if found in _WANTED:
        return f"must be {_WANTED[found]}, not {value!r}"
    if found in ("enum", "literal_error"):
        return f"must be {context['expected'].replace(chr(39), '')}, not {value!r}"
    bounds = {"greater_than_equal": ("ge", "at least"), "less_than_equal": ("le", "at most"),
              "greater_than": ("gt", "more than"), "less_than": ("lt", "less than")}  # fmt: skip
    if found in bounds:
        key, words = bounds[found]
        return f"must be {words} {context[key]:g}, not {value}"
    if found == "string_pattern_mismatch":
        return f"must be {context['pattern'].strip('^()$').replace('|', ' or ')}, not {value!r}"
    return str(context.get("error", detail["msg"]))
