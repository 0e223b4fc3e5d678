"""Imports that a process puts off: a server that was killed is back the sooner, the less it imports before it
answers.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def absent(*names: str) -> Iterator[None]:
    """For an import of what takes these where they are installed and does without them where not. Those that are loaded
    already stay."""
    hidden = [name for name in names if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # so the import system is told that it is not there
    try:
        yield
    finally:
        for name in hidden:
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)


@contextlib.contextmanager
def models_built_later() -> Iterator[None]:
    """For an import of a library that defines pydantic models of which few are used: each is built at its first use,
    unless it says otherwise itself. The models of OpenAPI alone take a third of the time in which FastAPI loads."""
    from pydantic import BaseModel

    before = BaseModel.model_config
    BaseModel.model_config = {**before, "defer_build": True}
    try:
        yield
    finally:
        BaseModel.model_config = before


def without_pydantic_plugins() -> None:
    """For a program of ours: pydantic looks into every installed package for plugins when it builds its first model.
    Such a plugin watches an application's own models; it has nothing to do with ours."""
    from pydantic.plugin import _loader

    if getattr(_loader, "_plugins", {}) is None:
        _loader._plugins = {}
