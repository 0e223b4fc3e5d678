"""Results in the server: artifacts are kept, jobs are told of tracking servers, and their runs are found there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import structlog
from pydantic import BaseModel

from shoal.base.loops import BackgroundLoop, RunningLoop, Turns
from shoal.contract.events import EventKinds
from shoal.contract.gangs import RUN, parse_gang_name
from shoal.contract.pages import Page
from shoal.contract.records import NewEvent
from shoal.core import Budget, Budgets, Capability
from shoal.engine import Gang
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.extension.metrics import gauge
from shoal.results.keeping.contents import place_of, remove_place
from shoal.results.live.artifact_store import Allowance, ArtifactStore
from shoal.results.live.events import ResultsEvent
from shoal.results.live.needs import Keeping
from shoal.results.live.sections import asked
from shoal.results.live.tables import TABLES
from shoal.results.live.takes import FOLDER, Takes
from shoal.results.live.uploads import Uploads
from shoal.results.section import ResultsJob, ResultsSection
from shoal.results.tracking import Servers, mlflow_page, variables, wandb_page
from shoal.store import Tables

if TYPE_CHECKING:
    from fastapi import APIRouter
    from prometheus_client.core import Metric

log = structlog.get_logger("shoal.results")

_MOST_WAITING = 10_000
_TIDY_S = 600.0


class Results(Extension, Keeping):
    """Tells jobs of the team's tracking servers, and people of the runs there; keeps what jobs leave."""

    name: ClassVar[str] = "results"
    settings: ClassVar[type[Section]] = ResultsSection
    manifest: ClassVar[type[BaseModel] | None] = ResultsJob
    tables: ClassVar[Tables | None] = TABLES
    in_planes: ClassVar[bool] = True
    paths: ClassVar[Sequence[str]] = ("/v1/artifacts", "/v1/artifact-uploads")
    events: ClassVar[type[EventKinds] | None] = ResultsEvent

    def __init__(self, server: Server, settings: ResultsSection) -> None:
        self.server = server
        folder = server.home / self.name
        allowance = Allowance(
            settings.size, settings.files, settings.keep, settings.versions,
            together=settings.together or server.plane is not None,
        )  # fmt: skip
        where = settings.store if server.plane is None else place_of(settings.store, server.plane)
        self.artifact_store = ArtifactStore(server, folder, where, allowance)
        self.uploads = Uploads(server, self.artifact_store, folder / "uploads")
        self._takes = Takes(server, self.artifact_store)
        self._turns = Turns(log, "artifacts could not be tidied", server.on_fatal)
        self._servers = Servers(settings.mlflow, settings.wandb, settings.wandb_entity, settings.address)
        self._over: asyncio.Queue[tuple[str, str, str]] = asyncio.Queue(_MOST_WAITING)

    @classmethod
    def off(cls) -> Sequence[Capability]:
        lost = "no artifacts are kept, and jobs are told of no tracking server"
        return (Capability("artifacts", False, "results.enabled is false", lost),)

    @classmethod
    def plane_deleted(cls, settings: ResultsSection, plane: str) -> None:
        if settings.store:
            remove_place(place_of(settings.store, plane))

    # --- life ---

    def idle(self) -> bool:
        return self._takes.idle() and self._over.empty()

    async def open(self) -> None:
        await self.artifact_store.open()
        await self._takes.open()

    def loops(self) -> Sequence[BackgroundLoop]:
        return (
            RunningLoop("links", self._link), RunningLoop("artifacts of running jobs", self._takes.look),
            RunningLoop("old artifacts", self._tidy),
        )  # fmt: skip

    async def close(self) -> None:
        await self._takes.close()

    async def _tidy(self) -> None:
        while True:
            with self._turns.turn() as turn:
                await self.artifact_store.tidy()
                await self.uploads.tidy()
            if turn.over:
                return
            await asyncio.sleep(_TIDY_S)

    # --- act ---

    async def stage(self, job: LiveJob, show: Callable[..., None]) -> None:  # noqa: ARG002
        """Note that files are to be taken, before there are any."""
        if job.job.owner_id is not None or job.attempt is None or not asked(job).wanted:
            return
        if (job.job.id, job.attempt.number) not in self.artifact_store.repository.pending:
            await self.artifact_store.repository.begin(job.job.id, job.attempt.number)

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        section, named = asked(job), parse_gang_name(gang.name)
        if named is None or named.phase != RUN or job.job.owner_id is not None:
            return gang
        told = {"SHOAL_ARTIFACTS": f"{gang.run_dir}/{FOLDER}"}
        if section.tensorboard is not None:
            told["TENSORBOARD_LOGDIR"] = f"{gang.run_dir}/{section.tensorboard}"
        if section.tracked:
            told |= variables(
                self._servers, job=job.job.id, name=job.job.name, tenant=job.job.tenant, attempt=job.job.attempt,
                project=section.project or job.job.tenant,
            )  # fmt: skip
        given = {name: value for name, value in told.items() if name not in gang.secrets}
        return replace(gang, env={**given, **gang.env})

    def moved(self, job: LiveJob) -> None:
        self._takes.ended(job)
        if not self._servers.mlflow and not self._servers.wandb:
            return
        if not job.job.state.terminal or job.job.owner_id is not None or job.attempt is None:
            return
        section = asked(job)
        if section.tracked and not self._over.full():
            self._over.put_nowait((job.job.id, job.job.tenant, section.project or job.job.tenant))

    async def _link(self) -> None:
        while True:
            job, tenant, project = await self._over.get()
            pages = await asyncio.to_thread(self._pages, job, project)
            if pages:
                event = NewEvent(
                    self.server.clock.now(), ResultsEvent.TRACKED, self.name, f"its runs: {', '.join(pages)}", tenant,
                    job, data={"pages": pages},
                )  # fmt: skip
                await self.server.store.record([event])

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

    def answers(self) -> Mapping[type, object]:
        return {Budgets: self}

    def budgets(self) -> Iterable[Budget]:
        """What each tenant has of what its artifacts may take."""
        allowed = self.artifact_store.allowance.bytes / 1e6
        for tenant in list(self.artifact_store.repository.used):
            used = self.artifact_store.used(tenant).bytes / 1e6
            yield Budget(tenant, "megabytes of artifacts", used, allowed, "megabytes")

    # --- shown ---

    def capabilities(self) -> Sequence[Capability]:
        trouble = self.artifact_store.trouble
        where = self.artifact_store.shown_where
        found = [Capability("artifacts", True, "they are kept" if where is None else f"kept in {where}")]
        if trouble:
            found = [Capability("artifacts", False, trouble, "no artifacts are kept")]
        told = {"MLflow": self._servers.mlflow, "Weights & Biases": self._servers.wandb}
        if detail := ", ".join(f"{name} at {address}" for name, address in told.items() if address):
            found.append(Capability("results", True, detail))
        return found

    def page(self, tenant: str | None) -> Page | None:
        return self.artifact_store.page(tenant)

    def metrics(self) -> Iterable[Metric]:
        used = self.artifact_store.repository.used
        sizes: dict[tuple[str, ...], float] = {(tenant,): float(one.bytes) for tenant, one in used.items()}
        files: dict[tuple[str, ...], float] = {(tenant,): float(one.files) for tenant, one in used.items()}
        return (
            gauge("shoal_artifacts_bytes", "Bytes of the contents of artifacts, by tenant.", ("tenant",), sizes),
            gauge("shoal_artifacts", "Artifacts, by tenant.", ("tenant",), files),
        )  # fmt: skip

    def routers(self) -> Sequence[APIRouter]:
        from shoal.results.live.api import router_of

        return (router_of(),)
