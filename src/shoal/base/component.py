"""The declaration of a component: a value of dotted names, so that reading it imports nothing that the names mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?")

Names = Mapping[str, str]
"""Dotted names by the name that users type: `{"max-min": "package.module:attribute"}`."""


def _none() -> Names:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One component, as an entry point of the group `shoal.components` names it. Each value is a dotted name
    `package.module:attribute`, imported when it is first used. Raises ValueError for one that is malformed.
    """

    extension: str | None = None
    """A class derived from `shoal.extension.Extension`: the component's part in the server."""

    launcher: str | None = None
    """A function that runs a command line on this machine beside others, for `shoal run` where no server answers."""

    terminal: str | None = None
    """A function that runs a job at this terminal, for `shoal run --pty`."""

    commands: Names = field(default_factory=_none)
    """Commands after `shoal`: the name of a module, whose `register(app)` adds the command to a Typer application."""

    client: Names = field(default_factory=_none)
    """Attributes of `shoal.Client` and `AsyncClient`: classes derived from `shoal.contract.methods.Namespace`."""

    options: Names = field(default_factory=_none)
    """Options of `shoal up`: `shoal.base.console.command.SettingOption`s."""

    job_options: Names = field(default_factory=_none)
    """Options of `shoal submit` and `shoal run`: `shoal.base.console.command.JobOption`s."""

    manifests: Names = field(default_factory=_none)
    """Kinds of manifests beside jobs: `shoal.contract.manifest.Kind`s."""

    subjects: Names = field(default_factory=_none)
    """Functions of a client, a reference and a tenant. Each returns the service or the like that `shoal explain` and
    `shoal events` then show, or None where the reference means a job."""

    importers: Names = field(default_factory=_none)
    """Commands after `shoal import`: functions as `shoal.base.console.command.command` takes them."""

    runtimes: Names = field(default_factory=_none)
    """Runtimes that models are served by: `shoal.inference.RuntimeDeclaration`s."""

    simulators: Names = field(default_factory=_none)
    """Functions that return the simulated server of requests which `shoal measure plan` asks."""

    policies: Names = field(default_factory=_none)
    """Scheduling policies: `shoal.schedule.Policy`s."""

    engines: Names = field(default_factory=_none)
    """Values of the setting `engine`: functions from `shoal.engine.EngineOptions` to an engine."""

    engine_settings: Names = field(default_factory=_none)
    """Sections of the settings by the name of the engine: pydantic models, in `EngineOptions.settings`."""

    engine_probes: Names = field(default_factory=_none)
    """By the name of the engine: functions from `EngineOptions` to the capabilities that `shoal doctor` shows."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if value is None:
                continue
            named = {one.name: value} if one.default is None and isinstance(value, str) else value
            if not isinstance(named, Mapping):
                raise ValueError(f"{one.name}: {value!r} is no mapping from names to dotted names")
            for name, target in named.items():
                if not isinstance(name, str) or not name or name != name.strip():
                    raise ValueError(f"{one.name}: {name!r} is no name")
                if not isinstance(target, str) or not _TARGET.fullmatch(target):
                    raise ValueError(f"{one.name}: {name}: {target!r} is not like package.module:attribute")
            if named is value:
                object.__setattr__(self, one.name, MappingProxyType(dict(value)))
        for part in ("engine_settings", "engine_probes"):
            if unknown := sorted(set(getattr(self, part)) - set(self.engines)):
                raise ValueError(f"{part}: {', '.join(unknown)} is no engine of this component")

    def named(self, part: str, own_name: str) -> Names:
        """The dotted names of a part, which is one of the fields above. The extension, the launcher and the terminal
        have the component's own name."""
        value = getattr(self, part)
        if value is None:
            return {}
        return {own_name: value} if isinstance(value, str) else value
