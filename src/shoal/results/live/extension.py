"""Tracking: what jobs find in their environment, and the link to their runs once they are over."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar

import structlog
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.contract.events import EventKinds
from shoal.contract.gangs import RUN, parse_gang_name
from shoal.contract.records import NewEvent
from shoal.core import Capability
from shoal.engine import Gang
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.results.tracking import Servers, mlflow_page, variables, wandb_page

log = structlog.get_logger("shoal.results")

_MOST_WAITING = 10_000


def _address(text: str) -> str:
    if text and not text.startswith(("http://", "https://")):
        raise ValueError(f"{text!r} is no address of a server, such as http://mlflow:5000")
    return text


Address = Annotated[str, AfterValidator(_address)]


class ResultsSection(Section):
    """Where jobs report what they measure, beside this server."""

    mlflow: Address = Field("", description="address of an MLflow server, such as http://mlflow:5000")
    wandb: Address = Field("", description="address of Weights & Biases, such as https://api.wandb.ai")
    wandb_entity: str = Field("", description="the team there")
    address: Address = Field("", description="where people reach this server, for the link from a run to its job")


class ResultsJob(BaseModel):
    """How a job's runs are filed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str | None = Field(
        None,
        max_length=128,
        pattern=r"^[\w][\w .-]*$",
        description="experiment or project; left out: the tenant's name",
    )
    tracked: bool = Field(True, description="false: it is told of no tracking server")


class ResultsEvent(EventKinds):
    """Where results are."""

    TRACKED = "results.tracked", "A job that is over has runs on a tracking server; `data` has their pages."


class Results(Extension):
    """Tells jobs of the team's tracking servers, and people of the runs there."""

    name: ClassVar[str] = "results"
    settings: ClassVar[type[Section]] = ResultsSection
    manifest: ClassVar[type[BaseModel] | None] = ResultsJob
    events: ClassVar[type[EventKinds] | None] = ResultsEvent

    def __init__(self, server: Server, settings: ResultsSection) -> None:
        self._server = server
        self._servers = Servers(settings.mlflow, settings.wandb, settings.wandb_entity, settings.address)
        self._over: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue(_MOST_WAITING)

    @classmethod
    def off(cls) -> Sequence[Capability]:
        lost = "jobs report to a tracking server only where their scripts or manifests name it"
        return (Capability("results", False, "off: neither results.mlflow nor results.wandb is set", lost),)

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("links", self._link),)

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        asked, named = _asked(job), parse_gang_name(gang.name)
        if named is None or named.phase != RUN or not asked.tracked or job.job.owner_id is not None:
            return gang
        project = asked.project or job.job.tenant
        told = variables(
            self._servers, job=job.job.id, name=job.job.name, tenant=job.job.tenant, attempt=job.job.attempt,
            project=project,
        )  # fmt: skip
        given = {name: value for name, value in told.items() if name not in gang.secrets}
        return replace(gang, env={**given, **gang.env})

    def moved(self, job: LiveJob) -> None:
        if not job.job.state.terminal or job.job.owner_id is not None or job.attempt is None:
            return
        asked = _asked(job)
        if asked.tracked and not self._over.full():
            self._over.put_nowait((job.job.id, job.job.tenant, asked.project or job.job.tenant))

    async def _link(self) -> None:
        while True:
            job, tenant, project = await self._over.get()
            pages = await asyncio.to_thread(self._pages, job, project)
            if pages:
                event = NewEvent(
                    self._server.clock.now(), ResultsEvent.TRACKED, self.name, f"its runs: {', '.join(pages)}", tenant,
                    job, data={"pages": pages},
                )  # fmt: skip
                await self._server.store.record([event])

    def _pages(self, job: str, project: str) -> list[str]:
        found = []
        if (page := wandb_page(self._servers, job=job, project=project)) is not None:
            found.append(page)
        if self._servers.mlflow:
            from shoal.results.live.mlflow import find_runs

            runs, trouble = find_runs(self._servers.mlflow, project, job)
            if trouble:
                log.warning("MLflow was not asked for a job's runs", job=job, trouble=trouble)
            found += [mlflow_page(self._servers, experiment, run) for experiment, run in runs]
        return found

    def capabilities(self) -> Sequence[Capability]:
        told: Mapping[str, Any] = {"MLflow": self._servers.mlflow, "Weights & Biases": self._servers.wandb}
        detail = ", ".join(f"{name} at {address}" for name, address in told.items() if address)
        return (Capability("results", bool(detail), detail or "no tracking server is named"),)


def _asked(job: LiveJob) -> ResultsJob:
    if '"results"' not in job.job.manifest:
        return ResultsJob.model_validate({})
    return ResultsJob.model_validate(job.manifest.extensions.get(Results.name) or {})
