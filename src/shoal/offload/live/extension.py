"""Turns capture on in the jobs that ask for it, within their cores."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from shoal.admission import Blocker, Snapshot
from shoal.core import Capability, Reason
from shoal.engine import Gang
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.offload.launch import environment
from shoal.offload.summaries import from_metrics, told


class OffloadSection(Section):
    """Library calls of jobs run where they are fastest, for jobs that ask for it."""

    enabled: bool = True
    threshold: int = Field(65_536, ge=1, description="elements below which an array of a job is left alone")


class OffloadJob(BaseModel):
    """Capture of a job's array, frame and estimator calls."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = True
    strict: bool = Field(False, description="the plain libraries' own functions and order of summation only")


class Offload(Extension):
    """Gives a job's processes the environment that turns capture on."""

    name: ClassVar[str] = "offload"
    settings: ClassVar[type[Section]] = OffloadSection
    manifest: ClassVar[type[BaseModel] | None] = OffloadJob

    def __init__(self, server: Server, settings: Any) -> None:  # noqa: ARG002
        self._settings: OffloadSection = settings

    @classmethod
    def off(cls) -> Sequence[Capability]:
        lost = "jobs that ask for it run with the plain libraries"
        return (Capability("offload", False, "offload.enabled is false", lost),)

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:  # noqa: ARG003
        from shoal.offload.capabilities import capabilities
        from shoal.offload.settings import OffloadSettings

        return [replace(each, name=f"offload: {each.name}") for each in capabilities(OffloadSettings())]

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        section = job.manifest.extensions.get(self.name)
        if section is None:
            return gang
        asked = OffloadJob.model_validate(section)
        if not asked.enabled:
            return gang
        given: dict[str, object] = {"threshold": self._settings.threshold, "strict": asked.strict, "summary": True}
        if gang.cpu_milli:
            given["threads"] = max(1, gang.cpu_milli // 1000)
        if gang.device_memory_bytes:
            given["device_memory"] = gang.device_memory_bytes
        path = {"PYTHONPATH": gang.env.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))}
        return replace(gang, env={**gang.env, **environment(path, **given)})

    async def explain(self, snapshot: Snapshot, job: LiveJob) -> Sequence[Blocker]:  # noqa: ARG002
        found = from_metrics(job.job.progress.get("metrics", {}))
        if found is None:
            return ()
        reason = Reason("offload-summary", f"its calls so far: {told(found)}", {"saved_s": found.saved})
        return (Blocker("offload", False, reason, f"`shoal offload report {job.job.id}`"),)
