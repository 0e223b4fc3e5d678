"""What the shared server is told of a gang of a plane: enough to place it, and nothing of what it runs. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from shoal.contract.manifest import JobManifest
from shoal.contract.records import JobRecord
from shoal.core import Resources
from shoal.engine import Gang
from shoal.engine.pool import wanted


class Asked(NamedTuple):
    """A manifest, and what would be worked out of it for every job that has it."""

    manifest: JobManifest
    text: str
    resources: Resources


def asked_for(gang: Gang, own: JobRecord | None) -> Asked:
    """`own` is the plane's job that the gang is of."""
    kind, count = next(iter(wanted(gang.ranks[0]).items()), ("any", 0))
    named = ("gang", "best-effort", 0) if own is None else (own.name, own.priority_class.value, own.priority)
    return _asked(*named, kind, count, gang.cpu_milli, gang.memory_bytes, len(gang.ranks), gang.grace_s)


@lru_cache(maxsize=4096)
def _asked(
    name: str, priority_class: str, priority: int, kind: str, count: int, cpu_milli: int, memory_bytes: int, ranks: int,
    grace_s: float,
) -> Asked:  # fmt: skip
    manifest = JobManifest.model_validate(
        {
            "name": name,
            "command": ["handed-over"],
            "resources": {
                "accelerators": {"type": kind, "count": count}, "cpus": cpu_milli / 1000,
                "memory": memory_bytes or None,
            },
            "ranks": ranks,
            "priority_class": priority_class,
            "priority": priority,
            "restart": {"limits": {"user": 0, "platform": 100, "infrastructure": 0}},
            "grace": grace_s,
        }
    )  # fmt: skip
    return Asked(manifest, manifest.canonical_json(), manifest.resources_per_rank())
