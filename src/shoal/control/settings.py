"""Sources of the server's settings.

A flag beats SHOAL_* in the environment, which beats the settings file, which beats the default. An extension's settings
stand below its name: `guard: {enabled: on}` in the file, SHOAL_GUARD__ENABLED=on, `--set guard.enabled=on`.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError, create_model

from shoal.admission import Policy
from shoal.base.home import Home, default_home
from shoal.base.imports import absent
from shoal.base.validation import details, sentence
from shoal.control.extensions.installed import engine_sections, installed_extensions
from shoal.control.server_settings import ServerSettings, is_loopback
from shoal.core import Invalid
from shoal.extension import Extension

with absent("rich", "colorama"):  # extensions log too, and it would load these for colours that nothing asks for
    import structlog  # noqa: F401

PREFIX, LEVEL = "SHOAL_", "__"


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
            default_runtime_s=one.default_runtime_s, together=tuple(filter(None, one.together.split(","))),
        )  # fmt: skip

    @property
    def loopback(self) -> bool:
        return is_loopback(self.values.host)


def settings_model(extensions: Sequence[type[Extension]]) -> type[ServerSettings]:
    """The server's settings and a field for each section of an extension or an engine."""
    sections: dict[str, Any] = {one.name: (one.settings, Field(default_factory=one.settings)) for one in extensions}
    for name, section in engine_sections().items():
        sections[name] = (section, Field(default_factory=section))
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
        problems += [_problem(detail, model, sources) for detail in details(error)]
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


def _from_environment(model: type[BaseModel], environ: Mapping[str, str]) -> dict[str, Any]:
    """Texts as they are: each field's own validator reads them."""
    given = {name.lower(): value for name, value in environ.items() if value}
    found: dict[str, Any] = {}
    for name, field in model.model_fields.items():
        variable = f"{PREFIX}{name}".lower()
        if variable in given:
            found[name] = given[variable]
        elif isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            start = variable + LEVEL
            inner = [
                _nested(key[len(start) :].split(LEVEL), given[key]) for key in sorted(given) if key.startswith(start)
            ]
            found |= {name: _merged(inner)} if inner else {}
    return found


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


def _problem(detail: dict[str, Any], model: type[BaseModel], sources: Sequence[_Source]) -> Invalid:
    path = tuple(str(step) for step in detail["loc"])
    source, path = _origin(path, sources)
    where = source.name(path) if source is not None else None
    if detail["type"] == "extra_forbidden":
        known = _names(model, path[:-1])
        near = difflib.get_close_matches(path[-1], known, 1)
        hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
        return Invalid(f"there is no setting {'.'.join(path)!r}", where=where, hint=hint)
    return Invalid(sentence(detail), where=where)


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
