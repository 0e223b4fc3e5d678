"""Jobs that name sites: who may use which, and the front end in their environment."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import structlog
from pydantic import BaseModel, ConfigDict, Field

from shoal.admission import Snapshot
from shoal.base.home import prepare_home
from shoal.contract.gangs import RUN, parse_gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.pages import Column, Figure, Page, Table, Unit, Value
from shoal.core import Capability, Read, Reads, Reason, Sandbox, ShoalError
from shoal.engine import MOUNTS_CAPABILITY, Gang, Mount
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.shell.agent.within import GIVEN, given, words
from shoal.shell.doctor import here
from shoal.shell.sites import DOORS, Site, Sites, door_of, shell_folder
from shoal.shell.table import HOOK, PATIENCE, missing_native
from shoal.shell.tally import Tally

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = structlog.get_logger("shoal.shell")

_LOOK_S = 15.0
"""Between two looks at the agents, for status and metrics, and at the mounts."""
_ANSWER_S = 2.0
"""What a mount has to answer."""
NEAR_S = 60.0
"""What a node beside a site counts for, in seconds: enough to be chosen before others on which a job fits as well."""
_STARTING = Reason("shell-starting", "the connections to its sites are being made")


AGENTS = "shell-agents"
"""In the server's home: the homes of the tenants' agents."""


class SiteSection(BaseModel):
    """A site that jobs may name."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field(description="as `ssh` takes it")
    mounts: dict[str, str] = Field(description="folders of this machine, and the folders there that they show")
    tenants: list[str] = Field(
        default_factory=list, description="who may use it; nobody named: all, and by ssh no job in a sandbox"
    )
    memory_bytes: int | None = Field(None, gt=0, description="of each command there")
    cpu_s: int | None = Field(None, gt=0, description="of each command there")
    port: int | None = Field(None, gt=0, le=65535, description="of a permanent proxy, which is reached by TLS")
    certificate: str | None = Field(None, description="of that proxy: a PEM file of the server's machine")
    token_file: str | None = Field(None, description="holds the token for that proxy")
    tokens: dict[str, str] = Field(
        default_factory=dict, description="files with tokens of tenants' own; their jobs in a sandbox get these"
    )
    near: list[str] = Field(default_factory=list, description="nodes beside it: jobs that name it prefer them")

    def has_door(self, tenant: str) -> bool:
        """Jobs of the tenant in a sandbox may read by the rights of the account that logs in: it is named for that."""
        return self.port is None and tenant in self.tenants

    def site(self, name: str, tenant: str) -> Site:
        return Site(
            name, self.host, self.mounts, memory_bytes=self.memory_bytes, cpu_s=self.cpu_s, port=self.port,
            certificate=self.certificate, token_file=self.tokens.get(tenant, self.token_file),
        )  # fmt: skip


class ShellSection(Section):
    """Sites whose data jobs read through a mount, and on which commands of these jobs may run."""

    sites: dict[str, SiteSection] = Field(default_factory=dict, description="sites by their names")


class ShellJob(BaseModel):
    """Commands of the job run on these sites where that is faster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sites: list[str] = Field(min_length=1, max_length=16, description="names of sites")


class Shell(Extension):
    """One agent for each tenant whose jobs name sites, with the sites of that tenant alone."""

    name: ClassVar[str] = "shell"
    settings: ClassVar[type[Section]] = ShellSection
    manifest: ClassVar[type[BaseModel] | None] = ShellJob

    def __init__(self, server: Server, settings: ShellSection) -> None:
        self._server = server
        self._settings = settings
        self._held: dict[str, Reason] = {}
        self._agents: dict[str, Mapping[str, Any]] = {}
        self._reads: dict[str, Tally] = {}
        self._ready = set[tuple[str, bool]]()
        self._answering = set[Path]()
        self._waiting: dict[tuple[str, bool], list[str]] = {}
        self._tasks = set[asyncio.Task[None]]()
        self._looking: asyncio.Task[None] | None = None

    @classmethod
    def off(cls) -> Sequence[Capability]:
        consequence = "commands of jobs read mounted data over the network"
        return (Capability("shell", False, "off: no site in the setting shell.sites", consequence),)

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:  # noqa: ARG003
        return [one for one in here() if one.name in ("front end", "ssh")]

    async def open(self) -> None:
        self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        for task in (*self._tasks, *([self._looking] if self._looking else ())):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    # --- decide ---

    def moved(self, job: LiveJob) -> None:
        told = job.manifest.extensions.get(self.name)
        if told is None:
            return
        self._held.pop(job.job.id, None)
        if job.job.state is not JobState.QUEUED:
            return
        if reason := self._refuses(job.job.tenant, ShellJob.model_validate(told).sites):
            self._held[job.job.id] = reason
        elif (who := (job.job.tenant, self._needs_agent(job.job.tenant))) not in self._ready:
            self._held[job.job.id] = _STARTING
            if who not in self._waiting:
                self._begin(self._make_ready(*who))
            self._waiting.setdefault(who, []).append(job.job.id)

    def _refuses(self, tenant: str, names: Sequence[str]) -> Reason | None:
        for name in names:
            site = self._settings.sites.get(name)
            if site is None or (site.tenants and tenant not in site.tenants):
                text = f"there is no site {name!r} that tenant {tenant} may use"
                return Reason("no-such-site", text, {"site": name})
        return None

    def holds(self, snapshot: Snapshot) -> Mapping[str, Reason]:  # noqa: ARG002
        return self._held

    def prefers(self, job: LiveJob) -> Mapping[str, float]:
        told = job.manifest.extensions.get(self.name)
        names = ShellJob.model_validate(told).sites if told is not None else ()
        known = self._settings.sites
        return {node: NEAR_S for name in names if name in known for node in known[name].near}

    # --- act ---

    def _home(self, tenant: str) -> Path:
        return self._server.home / AGENTS / tenant

    def _begin(self, work: Any) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _needs_agent(self, tenant: str) -> bool:
        """Jobs in a sandbox have agents of their own; to sites by `ssh` these get through a door of the tenant's."""
        return self._server.sandbox(tenant) is Sandbox.NONE or any(
            one.has_door(tenant) for one in self._settings.sites.values()
        )

    async def _make_ready(self, tenant: str, needs_agent: bool) -> None:
        try:
            await self._look_at_mounts()
            if needs_agent:
                await asyncio.to_thread(self._ensure_agent, tenant)
                self._agents[tenant] = {}
        except (ShoalError, OSError) as error:  # its jobs run, and read through their mounts
            log.warning("the agent of a tenant did not start", tenant=tenant, error=str(error))
        self._ready.add((tenant, needs_agent))
        for job in self._waiting.pop((tenant, needs_agent), ()):
            self._held.pop(job, None)
        self._server.wake()

    def _ensure_agent(self, tenant: str) -> None:
        from shoal.shell.agent.client import ask, ensure_running

        home = self._home(tenant)
        home.parent.mkdir(exist_ok=True, mode=0o700)
        prepare_home(home)
        if self._server.sandbox(tenant) is not Sandbox.NONE:
            (home / DOORS).mkdir(exist_ok=True, mode=0o755)
        known = Sites.of(home)
        allowed = {name: one for name, one in self._settings.sites.items() if not one.tenants or tenant in one.tenants}
        for name in set(known.sites) - set(allowed):
            known = known.remove(name)
        for name, one in allowed.items():
            known = known.add(one.site(name, tenant))
        ensure_running(home)
        ask(home, do="reload")

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        if self.name not in job.manifest.extensions or missing_native() is not None:
            return gang
        if self._server.sandbox(job.job.tenant) is not Sandbox.NONE:
            return self._prepare_sandboxed(job, gang)
        table = shell_folder(self._home(job.job.tenant)) / "table"
        if not table.exists():  # its agent has not started: the job runs as it would without sites
            return gang
        others = gang.env.get("LD_PRELOAD")
        told = {
            "LD_PRELOAD": f"{HOOK}:{others}" if others else str(HOOK),
            "SHOAL_SHELL_TABLE": str(table), "SHOAL_SHELL_RUN": f"{job.job.id}:0:0:0",
        }  # fmt: skip
        return replace(gang, env={**gang.env, **told})

    def _named(self, job: LiveJob) -> dict[str, SiteSection]:
        """The sites that a job names and its tenant may use; none where it may not use one of them."""
        told = job.manifest.extensions.get(self.name)
        names = ShellJob.model_validate(told).sites if told is not None else ()
        return {} if self._refuses(job.job.tenant, names) else {name: self._settings.sites[name] for name in names}

    def _prepare_sandboxed(self, job: LiveJob, gang: Gang) -> Gang:
        """It sees the mounts of its sites, and is given what an agent of its own needs: the server's agent does not act
        for other users."""
        sites, tenant = self._named(job), job.job.tenant
        if self._server.sandbox(tenant) is Sandbox.BUBBLEWRAP and self._shows_mounts():
            paths = (Path(path) for one in sites.values() for path in one.mounts)
            added = tuple(_at_its_place(path, read_only=False) for path in paths if path in self._answering)
            gang = replace(gang, mounts=(*gang.mounts, *added)) if added else gang
        if not self._has_own_agent(job, gang):
            return gang
        told, home = list[dict[str, Any]](), self._home(tenant)
        for name, one in sites.items():
            site = {"name": name, "host": one.host, "mounts": one.mounts}
            try:
                if tenant in one.tokens and one.port is not None and one.certificate is not None and gang.network:
                    files = {"certificate": one.certificate, "token": one.tokens[tenant]}
                    texts = {kind: Path(path).read_text() for kind, path in files.items()}
                    told.append({**site, "port": one.port, **texts})
                elif one.has_door(tenant) and self._shows_mounts() and (door := door_of(home, name)).exists():
                    told.append({**site, "door": str(door)})
            except (OSError, ValueError) as error:
                log.warning("a site's certificate or token cannot be read", site=name, tenant=tenant, error=str(error))
        if not told:
            return gang
        if any("door" in one for one in told):
            gang = replace(gang, mounts=(*gang.mounts, _at_its_place(home / DOORS)))
        patience = {name: value for name, value in os.environ.items() if name == PATIENCE}
        return replace(
            gang, env={**gang.env, **patience}, secrets={**gang.secrets, GIVEN: given(job.job.id, told)}
        )  # fmt: skip

    def _shows_mounts(self) -> bool:
        return any(one.name == MOUNTS_CAPABILITY and one.available for one in self._server.engine.capabilities())

    def _has_own_agent(self, job: LiveJob, gang: Gang) -> bool:
        named = parse_gang_name(gang.name)
        return (
            named is not None and named.phase == RUN and not gang.image
            and self._server.sandbox(job.job.tenant) is not Sandbox.NONE
        )  # fmt: skip

    def enter(self, job: LiveJob, gang: Gang) -> Sequence[str]:
        return words() if GIVEN in gang.secrets and self._has_own_agent(job, gang) else ()

    def mount_roots(self) -> Sequence[Path]:
        """The settings alone say what is mounted where; the doors are this extension's own."""
        mounts = [Path(path).parent for one in self._settings.sites.values() for path in one.mounts]
        return [*mounts, self._server.home / AGENTS]

    async def _look_at_mounts(self) -> None:
        """Which mounts answer: one that does not would hold up what is started with it, and the server."""
        for path in {Path(path) for one in self._settings.sites.values() for path in one.mounts}:
            told = str(path)  # a link may lead to what is no site's
            process = await asyncio.create_subprocess_exec("test", "-d", told, "-a", "!", "-L", told)
            try:
                async with asyncio.timeout(_ANSWER_S):
                    answers = await process.wait() == 0
            except TimeoutError:
                process.kill()
                answers = False
            (self._answering.add if answers else self._answering.discard)(path)

    # --- questions of others ---

    def answers(self) -> Mapping[type, object]:
        return {Reads: self}

    def reads(self) -> Iterable[Read]:
        for tenant, found in self._reads.items():
            for path, count in found.counts().items():
                yield Read(tenant, path, count)

    # --- shown ---

    def _ask(self, tenant: str, what: str) -> Mapping[str, Any]:
        from shoal.shell.agent.client import ask

        return ask(self._home(tenant), do=what) or {}

    async def _look(self) -> None:
        while True:
            if self._ready:
                with contextlib.suppress(OSError):  # of a machine that starts no process just now
                    await self._look_at_mounts()
            for tenant in list(self._agents):
                with contextlib.suppress(ShoalError, OSError, ValueError):
                    self._agents[tenant] = await asyncio.to_thread(self._ask, tenant, "status")
                    if not self._agents[tenant]:  # it was killed
                        await asyncio.to_thread(self._ensure_agent, tenant)
                    read = self._reads.setdefault(tenant, Tally())
                    for path, count in (await asyncio.to_thread(self._ask, tenant, "reads")).items():
                        read.add(path, count)
            await asyncio.sleep(_LOOK_S)

    def capabilities(self) -> Sequence[Capability]:
        missing = missing_native()
        if missing is not None:
            return (Capability("shell", False, f"{missing} was not built", "commands of jobs run where the job runs"),)
        detail = f"sites: {', '.join(self._settings.sites) or 'none'}"
        return (Capability("shell", True, detail, "jobs in a sandbox need a site that names their tenant"),)

    def page(self, tenant: str | None) -> Page | None:
        """A tenant sees its own row."""
        columns = [
            Column(name="tenant"), Column(name="commands"), Column(name="near the data"),
            Column(name="moved", unit=Unit.BYTES), Column(name="not moved", unit=Unit.BYTES),
        ]  # fmt: skip
        rows: list[list[Value]] = [
            [name, *(one.get(key) for key in ("stages", "away", "moved_bytes", "kept_bytes"))]
            for name, one in self._agents.items() if tenant in (None, name)
        ]  # fmt: skip
        figures = [
            Figure(name="sites", value=len(self._settings.sites)),
            Figure(name="jobs held", value=len(self._held)),
        ]
        table = Table(title="Commands of jobs", columns=columns, rows=rows, empty="no job has used a site yet")
        return Page(title="Shell", figures=figures, parts=[table])

    def metrics(self) -> Iterable[Metric]:
        from shoal.extension.metrics import gauge

        for name, key, text in (
            ("shoal_shell_away_stages", "away", "Commands of jobs that ran on a site, since the agent's start"),
            ("shoal_shell_moved_bytes", "moved_bytes", "Bytes that they sent over links"),
            ("shoal_shell_kept_bytes", "kept_bytes", "Bytes that they read and did not send"),
        ):
            yield gauge(
                name, text, ("tenant",), {(one,): float(told.get(key, 0)) for one, told in self._agents.items()}
            )
        for name, key, text in (
            ("round_trip_seconds", "round_trip_s", "To a site and back, as the agent of a tenant measures it"),
            ("link_bytes_per_second", "bytes_per_s", "Rate of the link to a site while it was the bottleneck"),
            ("mount_bytes_per_second", "mount_bytes_per_s", "Rate at which the mount of a site gives a large file"),
        ):
            yield gauge(f"shoal_shell_{name}", text, ("tenant", "site"), {
                (tenant, site["name"]): float(site[key])
                for tenant, told in self._agents.items() for site in told.get("sites", ()) if site.get(key)
            })  # fmt: skip


def _at_its_place(path: Path, *, read_only: bool = True) -> Mount:
    return Mount(path, path, read_only=read_only)
