"""Jobs that name their software: the way into it is put before their commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from shoal.contract.gangs import RUN, parse_gang_name
from shoal.core import Capability, Sandbox
from shoal.engine import Gang, Mount
from shoal.environment.activate import in_conda, in_venv
from shoal.environment.section import EnvironmentJob
from shoal.environment.settings import EnvironmentSection
from shoal.extension import Extension, LiveJob, Section, Server


class Environments(Extension):
    """Runs a job's command in the environment that its manifest names."""

    name: ClassVar[str] = "environment"
    settings: ClassVar[type[Section]] = EnvironmentSection
    manifest: ClassVar[type[BaseModel] | None] = EnvironmentJob

    def __init__(self, server: Server, settings: EnvironmentSection) -> None:
        self._server = server
        self._settings = settings

    @classmethod
    def off(cls) -> Sequence[Capability]:
        lost = "jobs that name a virtual environment, a lock file or an image are refused"
        return (Capability("environment", False, "environment.enabled is false", lost),)

    # --- act ---

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        asked = asked_by(job)
        named = parse_gang_name(gang.name)
        if asked is None or named is None or named.phase != RUN:
            return gang
        hidden = self._server.sandbox(job.job.tenant) is Sandbox.BUBBLEWRAP
        hint = ". The sandbox bubblewrap shows what the setting environment.shown names" if hidden else ""
        if asked.venv is not None:
            argv = in_venv(asked.venv, gang.argv, hint=hint)
        else:
            assert asked.conda is not None
            argv = in_conda(asked.conda, self._settings.conda, gang.argv, hint=hint)
        shown = tuple(Mount(one, one) for one in self._shown()) if hidden else ()
        return replace(gang, argv=argv, mounts=(*gang.mounts, *shown))

    def _shown(self) -> list[Path]:
        """Folders that the settings name, of those that are there: no part of them comes from a manifest."""
        found = [Path(one).resolve() for one in self._settings.shown]
        return [one for one in found if one.is_dir()]

    def mount_roots(self) -> Sequence[Path]:
        return [one.parent for one in self._shown()]


def asked_by(job: LiveJob) -> EnvironmentJob | None:
    """The job's section, which was checked when it came; most jobs' manifests are not read for this."""
    if '"environment"' not in job.job.manifest:
        return None
    given = job.manifest.extensions.get(Environments.name)
    return None if given is None else EnvironmentJob.model_validate(given)
