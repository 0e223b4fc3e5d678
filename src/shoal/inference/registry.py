"""Registry of installed runtimes: each is declared by a value that imports nothing heavy.

A component declares its runtimes by their names. A package outside of Shoal adds one in the same way:

    from shoal.extension import Component
    TABLE = Component(runtimes={"table": "shoal_table:TABLE"})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from shoal.base import discover
from shoal.core import Invalid
from shoal.inference.types import ModelSpec, is_callable

if TYPE_CHECKING:
    from shoal.inference.runtime import Runtime


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeDeclaration:
    """A runtime, before anything of it is imported. Dotted names are `package.module:attribute`.

    `opener` makes a `Runtime` of a `ModelSpec`, or raises BadModel; it checks the file by itself. `check` looks at the
    file of a `ModelSpec` without loading it, and raises BadModel: it makes a mistake known before anything is started.
    `options` is the pydantic model of what a manifest may say under `options`; without one it may say nothing.

    `platform` is that of the model's metadata. A source with one of `suffixes` is for this runtime unless the manifest
    names another; a file with a suffix among the keys of `delegates` is run by the runtime that is named there.
    `packages` are modules that must be importable, and `extra` the extra of Shoal that brings them.

    `steady` says that equal batches take equal times, so that the scheduler may count on what it measured. A runtime
    with `code` runs `package.module:attribute` instead of a file. Where `declares_tensors` is set, the manifest must
    declare the model's inputs and outputs.
    """

    name: str
    platform: str
    opener: str
    suffixes: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    extra: str | None = None
    options: str | None = None
    check: str | None = None
    steady: bool = True
    code: bool = False
    declares_tensors: bool = False
    delegates: Mapping[str, str] = field(default_factory=dict)


@cache
def installed() -> Mapping[str, RuntimeDeclaration]:
    """All runtimes by name. One that cannot be loaded is left out: one broken package must not take the others away."""
    loaded, _ = discover.load_all("runtimes")
    return {
        name: declared
        for name, declared in loaded.items()
        if isinstance(declared, RuntimeDeclaration) and declared.name == name
    }


def runtime_named(name: str, where: str = "runtime") -> RuntimeDeclaration:
    """Raises Invalid with those that are installed."""
    declared = installed().get(name)
    if declared is None:
        broken = name in discover.find("runtimes")
        near = get_close_matches(name, installed(), 1)
        raise Invalid(
            f"the runtime {name!r:.80} is installed, but its declaration cannot be loaded"
            if broken
            else f"there is no runtime {name!r:.80}",
            where=where,
            hint=(f"did you mean {near[0]}? " if near else "")
            + f"installed here: {', '.join(installed())}; install the package whose component declares another",
        )
    return declared


def is_steady(name: str) -> bool:
    """Whether equal batches take equal times; not of a runtime that is not installed here."""
    declared = installed().get(name)
    return declared is not None and declared.steady


def runtime_of(source: str) -> str | None:
    """The name of the runtime that a source is for; None where it does not say."""
    code = is_callable(source)
    suffix = PurePosixPath(source).suffix.lower()
    for name, declared in installed().items():
        if declared.code if code else suffix and suffix in declared.suffixes:
            return name
    return None


def check_options(declared: RuntimeDeclaration, options: Mapping[str, Any], where: str = "options") -> dict[str, Any]:
    """The options as the runtime's model reads them, in plain values and with its defaults. Raises Invalid."""
    if declared.options is None:
        if options:
            what = f"the runtime {declared.name} has no options, and {', '.join(sorted(map(repr, options)))} are given"
            raise Invalid(what, where=where, hint="leave `options` out")
        return {}
    from pydantic import ValidationError

    model = load(declared.options)
    try:
        checked: dict[str, Any] = model.model_validate(dict(options)).model_dump(mode="json")
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        path = ".".join(map(str, (where, *first["loc"])))
        known = ", ".join(model.model_fields)
        raise Invalid(first["msg"], where=path, hint=f"options of the runtime {declared.name}: {known}") from None
    return checked


def check_file(declared: RuntimeDeclaration, spec: ModelSpec) -> None:
    """Look at a model's file before anything is started for it. Raises BadModel."""
    if declared.check is not None:
        load(declared.check)(spec)


def opener_of(declared: RuntimeDeclaration) -> Callable[[ModelSpec], Runtime]:
    """What opens its models; imports the runtime."""
    opener: Callable[[ModelSpec], Runtime] = load(declared.opener)
    return opener


def load(dotted: str) -> Any:
    """What `package.module:attribute` of a declaration names."""
    module, _, attribute = dotted.partition(":")
    found: Any = import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found
