"""The part of a job's manifest that decisions read. It is the same for all jobs that differ only in who and what they
run, so that of many waiting jobs few manifests are parsed, at their submission as after a restart.
"""

from __future__ import annotations

from typing import NamedTuple

from shoal.admission import Spread
from shoal.contract.manifest import After, JobManifest, parse_stored
from shoal.contract.records import JobRecord
from shoal.core import Affinity


class Asked(NamedTuple):
    """`tasks_limit` is how many tasks of its array run at a time; the rest is as the manifest has it."""

    placement: Spread | None
    per_node: int
    affinity: Affinity
    endless: bool
    longest_s: float | None
    after: tuple[After, ...]
    tasks_limit: int | None


_FIRST = ',"resources":{'
"""Where in a stored manifest the part begins that is read here. In JSON text a quote is `\\"`, so this is a key;
and what has a key before it (`labels`, `env`, `secrets`) has texts as values."""

_MOST, _LONGEST = 1024, 8192
"""Parts of manifests that are remembered, and the characters of one at most: tenants must not fill the memory."""
_known: dict[str, Asked] = {}


def asked_by(job: JobRecord, manifest: JobManifest | None = None) -> Asked:
    """What this job asks of deciding. Its manifest is parsed if it is not given and none like it was before."""
    at = job.manifest.find(_FIRST)
    part = job.manifest[at:] if at > 0 else job.manifest
    known = _known.get(part)
    if known is None:
        known = asked_in(manifest or parse_stored(job.manifest, source=job.id))
        if len(_known) >= _MOST:
            _known.clear()
        if len(part) <= _LONGEST:
            _known[part] = known
    return known


def asked_in(manifest: JobManifest) -> Asked:
    tasks = manifest.tasks
    return Asked(
        Spread(manifest.placement) if manifest.placement is not None else None, manifest.ranks_per_node or 0,
        manifest.affinity, manifest.endless, manifest.max_runtime_s, manifest.after,
        None if tasks is None else tasks.limit,
    )  # fmt: skip
