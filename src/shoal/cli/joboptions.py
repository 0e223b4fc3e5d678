"""Options of `shoal submit` and `shoal run` that components add: each becomes a section of the job's manifest."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.base.console.command import JobOption
from shoal.base.console.files import read_input
from shoal.base.discover import load_all
from shoal.core import Invalid


@functools.cache
def installed() -> Mapping[str, JobOption]:
    """By the name of the parameter, which has `_` for the `-` of the option."""
    options, _ = load_all("job_options")
    return {name.replace("-", "_"): one for name, one in options.items() if isinstance(one, JobOption)}


def option_types() -> Mapping[str, Any]:
    return {name: one.annotation() for name, one in installed().items()}


def sections(given: Mapping[str, Any]) -> dict[str, Any]:
    """What the options ask for, by extension."""
    options = installed()
    return {options[name].extension: dict(options[name].section(words)) for name, words in given.items() if words}


def with_sections(manifest: Path | str | dict[str, Any], added: Mapping[str, Any]) -> Path | str | dict[str, Any]:
    """The manifest with these sections. Raises Invalid where it has one of them already."""
    if not added:
        return manifest
    if isinstance(manifest, dict):
        values = dict(manifest)
    else:
        import yaml

        text, source = read_input(manifest) if isinstance(manifest, Path) else (manifest, "stdin")
        try:
            values = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise Invalid(f"the manifest is not YAML: {error}", where=source) from None
        if not isinstance(values, dict):
            raise Invalid("the manifest is no mapping", where=source)
    own = values.get("extensions") or {}
    if twice := [name for name in added if name in own]:
        raise Invalid(
            f"the manifest has `{twice[0]}` already", where=f"extensions.{twice[0]}", hint=f"leave out --{twice[0]}"
        )
    return {**values, "extensions": {**own, **added}}
