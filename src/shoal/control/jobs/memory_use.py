"""Memory of a job that asks for none, and the words that tell it.

Jobs of one tenant, name and program mostly need the same. So the next one gets what the last ones needed, with some to
spare. Where none has succeeded yet, it gets the default for what else it asks for (`shoal.control.limits`).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from shoal.admission import Blocker, Explanation
from shoal.contract.lifecycle import ErrorCode, Outcome
from shoal.contract.manifest import JobManifest, ResourceRequest
from shoal.contract.manifest.quantities import MAX_MEMORY_BYTES, write_size
from shoal.contract.records import JobEnd
from shoal.control.jobs.cache import Live
from shoal.core import Reason
from shoal.extension import Manifest

_SPARE = 1.5
"""A job that differs a little from the last one (other data, another seed) is not killed for that."""
_AFTER_A_KILL = 2.0
"""One that was killed at its limit needs more, and nobody knows how much: doubling finds it in a few tries."""
_FULL = 0.95
"""With this part of its limit in use, the kernel had begun to drop files that it kept for the job. What it needs is
then the limit or less: more would only keep more files."""
_LAST = 10
"""The number of ends of a kind that count, the last ones. What a job needed long ago says little."""
_SURE = 3
"""The number of ends that must be known before a job gets less than the default: one run may be a mere try."""
_KINDS = 4096
"""A sweep may give each of its jobs a name: only those that ended last are remembered."""
LOADED = 1000
"""The number of ends that are read when the server starts."""

_MIB = 1 << 20
_ROOM = frozenset({"shape", "quota", "reserved"})
"""Causes of a wait for which less memory may be the remedy. A default is never what makes a job impossible."""


@dataclass(frozen=True, slots=True)
class Needed:
    """The most memory in bytes that one of the last jobs of a kind needed, and how many of them said so."""

    memory_bytes: int
    ends: int

    @property
    def sure(self) -> bool:
        """Whether the next job may get less than one of which nothing is known."""
        return self.ends >= _SURE


class MemoryUse:
    """What jobs that ended needed, by kind: tenant, name, and command up to the first long option."""

    def __init__(self) -> None:
        self._needs: OrderedDict[_Kind, deque[int]] = OrderedDict()

    def load(self, ends: Iterable[JobEnd]) -> None:
        """Those of earlier servers, the one that ended first first."""
        for end in ends:
            self._add(end)

    def ended(self, live: Live) -> None:
        """An attempt of this job is over."""
        job, attempt = live.job, live.attempt
        if attempt is not None and job.owner_id is None:
            most = max((rank.get("memory_bytes", 0) for rank in attempt.ranks), default=0)
            command = _command(live.manifest)
            self._add(JobEnd(job.tenant, job.name, command, job.resources, attempt.outcome, attempt.error_code, most))

    def of(self, tenant: str, manifest: Manifest) -> Needed | None:
        """What the next job of its kind may need; None if nothing is known of any."""
        if not isinstance(manifest, JobManifest):
            return None
        needs = self._needs.get(_kind(tenant, manifest.name, _command(manifest)))
        return None if needs is None else Needed(max(needs), len(needs))

    def _add(self, end: JobEnd) -> None:
        if (needed := need(end)) is None:
            return
        kind = _kind(end.tenant, end.name, end.command)
        self._needs.setdefault(kind, deque(maxlen=_LAST)).append(needed)
        self._needs.move_to_end(kind)
        if len(self._needs) > _KINDS:
            self._needs.popitem(last=False)


_Kind = tuple[str, str, int]


def _kind(tenant: str, name: str, command: Sequence[str]) -> _Kind:
    """Jobs that differ in the values of long options only, as those of a sweep, are of one kind."""
    return tenant, name, hash(tuple(takewhile(lambda word: not word.startswith("--"), command)))


def _command(manifest: JobManifest) -> Sequence[str]:
    return manifest.command or (manifest.entrypoint or "",)


def need(end: JobEnd) -> int | None:
    """What a job like one that ended so needs in bytes; None where its end does not say."""
    limit = end.resources.memory_bytes
    if end.error_code is ErrorCode.OUT_OF_MEMORY and limit:
        return _whole(limit * _AFTER_A_KILL)
    if end.outcome is not Outcome.SUCCEEDED or not end.memory_bytes:
        return None  # what was stopped or failed may have been about to need more
    return limit if 0 < limit * _FULL <= end.memory_bytes else _whole(end.memory_bytes * _SPARE)


def _whole(size: float) -> int:
    return min(MAX_MEMORY_BYTES, -(-int(size) // _MIB) * _MIB)


def out_of_memory(message: str, asked: ResourceRequest | None) -> str:
    """The message of an end at the memory limit, with the limit, where that comes from, and what to write."""
    if asked is None or asked.memory is None:
        return message
    whose = "as its manifest says" if asked.memory_from is None else asked.memory_from.words
    more = write_size(_whole(asked.memory * _AFTER_A_KILL))
    return (
        f"{message}; the limit was {write_size(asked.memory)}, {whose}: write `resources: {{memory: {more}}}` in the "
        f"manifest, or give `--memory {more}`"
    )


def with_default(explanation: Explanation, manifest: JobManifest) -> Explanation:
    """Of a job that waits for room, say that its memory is a default: nobody has asked for this amount."""
    asked = manifest.resources
    if asked.memory is None or asked.memory_from is None:
        return explanation
    if not any(cause.blocking and cause.cause in _ROOM for cause in explanation.causes):
        return explanation
    text = (
        f"{write_size(asked.memory)} is {asked.memory_from.words}; if it needs less, write `resources: {{memory: "
        "SIZE}` in the manifest, or give `--memory SIZE`"
    )
    told = Blocker("memory", False, Reason("default-memory", text, {"memory_bytes": asked.memory}))
    return replace(explanation, causes=(*explanation.causes, told))
