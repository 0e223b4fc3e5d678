"""Diagnosis of this machine or an engine's cluster: what jobs can use and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shoal.base.discover import find_one
from shoal.control.extensions.installed import installed_extensions, missing_components
from shoal.core import Capability


def examine(home: Path, *, engine: str, slots: int | None, settings: Any) -> list[Capability]:
    """`settings` is the engine's section. Tries for real, and blocks for some tenths of a second."""
    from shoal.engine import EngineOptions
    from shoal.engine.probe import probe_machine

    if engine == "local":
        return [*probe_machine(home), *_components(home)]
    probe = find_one("engine_probes", engine)
    return [] if probe is None else list(probe.load()(EngineOptions(home, slots, settings)))


def _components(home: Path) -> Iterator[Capability]:
    """What the installed components can do here."""
    yield from missing_components()
    for one in installed_extensions():
        try:
            yield from one.probe(home)
        except Exception as error:  # of a component of others: the answer on all else counts
            yield Capability(one.name, False, f"its probe failed: {type(error).__name__}: {error}")
