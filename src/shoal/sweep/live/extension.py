"""Sweeps as an extension of the server."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.contract.events import EventKinds
from shoal.contract.gangs import RUN, parse_gang_name
from shoal.contract.manifest import JobManifest
from shoal.core import Fault, Invalid
from shoal.engine import Gang, LaunchFailed
from shoal.extension import Extension, LiveJob, NoSection, Section, Server
from shoal.store import Tables
from shoal.sweep.live.events import SweepEvent
from shoal.sweep.live.needs import Watching
from shoal.sweep.live.stopping import Stopping
from shoal.sweep.live.tables import TABLES
from shoal.sweep.median import require
from shoal.sweep.trials import Sweep, Values, as_json, substitute

if TYPE_CHECKING:
    from fastapi import APIRouter


class Sweeps(Extension, Watching):
    """Gives each task of a sweep its values, and ends those that are hopeless."""

    name: ClassVar[str] = "sweep"
    settings: ClassVar[type[Section]] = NoSection
    manifest: ClassVar[type[BaseModel] | None] = Sweep
    paths: ClassVar[Sequence[str]] = ("/v1/sweeps",)
    in_planes: ClassVar[bool] = True
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = SweepEvent

    def __init__(self, server: Server, settings: NoSection) -> None:  # noqa: ARG002
        self.server = server
        self.stopping = Stopping(server)

    async def open(self) -> None:
        await self.stopping.load()

    def accept(self, manifest: JobManifest) -> None:
        stop = (manifest.extensions.get(self.name) or {}).get("stop")
        if isinstance(stop, dict) and stop.get("rule") == "median":
            require()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("rungs", self.stopping.watch),)

    def reported(self, job: LiveJob) -> None:
        self.stopping.reported(job)

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        section = job.manifest.extensions.get(self.name)
        named = parse_gang_name(gang.name)
        if section is None or named is None:
            return gang
        try:
            values = values_of(section, job.job.array_index)
            own = job.manifest.env  # what the server itself says stays as it is
            env = {name: substitute(text, values) if name in own else text for name, text in gang.env.items()}
            argv = tuple(substitute(word, values) for word in gang.argv) if named.phase == RUN else gang.argv
        except Invalid as problem:
            raise LaunchFailed(problem.what, fault=Fault.USER, where=problem.where, hint=problem.hint) from problem
        return replace(gang, argv=argv, env={**env, "SHOAL_SWEEP": as_json(values)})

    def routers(self) -> Sequence[APIRouter]:
        from shoal.sweep.live.api import router_of

        return (router_of(),)


def values_of(section: Mapping[str, object], index: int | None) -> Values:
    """The values of a task. Raises Invalid for a job that is no task of an array that fits its sweep."""
    sweep = Sweep.model_validate(section)
    if index is None:
        raise Invalid(
            "a sweep is a job array, and this job is none", where="array",
            hint=f"`shoal sweep run` writes it: array: 0-{sweep.count - 1}",
        )  # fmt: skip
    return sweep.trial(index)
