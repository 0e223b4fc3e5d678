"""The cache as an extension of the server: keeps its process alive, tells it what jobs read, shows what it decides."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import structlog
from pydantic import BaseModel

from shoal.admission import Blocker, Snapshot
from shoal.base.files import write_whole
from shoal.base.loops import Turns
from shoal.cache.daemon.protocol import (
    DOOR,
    ROOT_FILE,
    ROOT_VARIABLE,
    TENANT_VARIABLE,
    TOKEN_VARIABLE,
    VIEW_VARIABLE,
    Connection,
    remote_token_of,
    token_of,
    view_of,
)
from shoal.cache.live.settings import CacheJob, CacheSection
from shoal.cache.live.tables import TABLES, keep_decision, last_decision
from shoal.cache.live.waits import Share
from shoal.cache.sources import PROTOCOLS, source_of
from shoal.cache.store.links import Links
from shoal.cache.store.views import mounts_of, tenant_folder
from shoal.contract.gangs import DOWNLOAD, Move, gang_name
from shoal.contract.lifecycle import JobState
from shoal.contract.manifest.quantities import write_size
from shoal.contract.pages import Column, Figure, Mood, Page, Table, Unit, Value
from shoal.core import Capability, Invalid, Reads, Reason, Sandbox, Sensors, ShoalError
from shoal.engine import MOUNTS_CAPABILITY, Gang, Mount
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.extension.metrics import gauge
from shoal.store import Tables

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = structlog.get_logger("shoal.cache")

_S3_KEYS = {"key": "AWS_ACCESS_KEY_ID", "secret": "AWS_SECRET_ACCESS_KEY", "token": "AWS_SESSION_TOKEN"}
_SOURCE_BYTES_PER_S = 100e6
"""Of a source, until one was measured."""

_TOLD_WAIT = 0.01
"""The least share of its time that a job waits for data which `explain` names as a cause."""


class Cache(Extension):
    """Inputs with `cached: true` are fetched through the cache, and every job may read through it."""

    name: ClassVar[str] = "cache"
    settings: ClassVar[type[Section]] = CacheSection
    manifest: ClassVar[type[BaseModel] | None] = CacheJob
    tables: ClassVar[Tables | None] = TABLES

    def __init__(self, server: Server, settings: CacheSection) -> None:
        if not settings.root:
            raise Invalid("the cache needs a directory", where="cache.root", hint="shoal up --cache /nvme/cache")
        self._server = server
        self._settings = settings
        self._root = Path(settings.root).absolute()
        self._secret = server.derive_secret("cache-tenants").encode()
        self._turns = Turns(log, "a turn of the cache failed", server.on_fatal)
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._last: Mapping[str, Any] | None = None
        self._status: Mapping[str, Any] = {}
        self._away = "it was not started yet"
        self._waits = Share()
        self._held: dict[str, int] = {}
        self._counted: Mapping[tuple[str, str], float] = {}

    @classmethod
    def off(cls) -> Sequence[Capability]:
        return (Capability("cache", False, "off: `shoal up --cache DIR`", "each job reads its inputs from the source"),)

    # --- life ---

    async def open(self) -> None:
        self._last = last_decision(self._server.store)
        self._task = asyncio.create_task(self._run(), name="cache")

    async def close(self) -> None:
        """The cache ends with the server; what it holds stays readable."""
        (self._server.home / ROOT_FILE).unlink(missing_ok=True)
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()
            await self._process.wait()

    async def _run(self) -> None:
        while True:
            with self._turns.turn() as turn:
                await self._turn()
            if turn.over:
                return
            await asyncio.sleep(min(self._settings.round, 5.0) if self._away else self._settings.round)

    async def _turn(self) -> None:
        counted = {(one.tenant, one.path): one.count for each in self._server.ask_all(Reads) for one in each.reads()}
        try:
            told = await asyncio.to_thread(self._exchange, self._sensed(counted), self._over())
        except ShoalError as error:
            self._away = f"{error.what} (see {self._server.home / 'cache.log'})"
            await self._start()
            return
        self._away, last, self._counted = "", told["last"], counted
        self._see(told["status"])
        if last["at"] and (self._last is None or last["at"] != self._last["at"]):  # clocks are set back
            self._last = last
            await keep_decision(self._server.store, last)

    def _see(self, status: Mapping[str, Any]) -> None:
        self._status = status
        self._held = {str(one["set"]): int(one["held_bytes"]) for one in self._status["sets"]}
        self._waits.look(time.monotonic(), {
            (str(one["tenant"]), str(one["job"])): float(one["seconds"]) for one in self._status["waits"]
        })  # fmt: skip

    def _exchange(self, sensed: Mapping[str, Any], over: list[tuple[str, str]]) -> dict[str, Any]:
        connection = Connection(self._root, "", token_of(self._secret, ""), timeout_s=30.0)
        try:
            connection.ask("demands", **sensed)
            for tenant, view in over:
                connection.ask("release", tenant=tenant, view=view)
            return {"status": connection.ask("status"), "last": connection.ask("last")}
        finally:
            connection.close()

    async def _start(self) -> None:
        """A process of its own: it goes on when the server is killed, and the next server finds it."""
        if self._process is not None and self._process.returncode is None:
            return
        secret, section = self._server.home / "cache.secret", self._settings
        write_whole(secret, self._secret)
        write_whole(self._server.home / ROOT_FILE, str(self._root), durable=False)
        command = [
            sys.executable, "-m", "shoal.cli", "cache", "serve", "--root", str(self._root), "--size",
            write_size(section.size),
            "--files", str(section.files), "--keep-free", write_size(section.keep_free), "--round", str(section.round),
            "--recheck", str(section.recheck), "--fill-rate", write_size(section.fill_rate), "--policy", section.policy,
            "--chunk", write_size(section.chunk), "--wait", str(section.wait),
            "--mount", section.mount,
            "--secret-file", str(secret),
        ]  # fmt: skip
        with (self._server.home / "cache.log").open("ab") as out:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdin=asyncio.subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
            )

    # --- sense ---

    def _sensed(self, counted: Mapping[tuple[str, str], float]) -> dict[str, Any]:
        weights = {name: one.weight for name, one in self._server.tenants().items()}
        observed = [
            {"tenant": tenant, "url": _url(path), "bytes": more}
            for (tenant, path), count in counted.items() if (more := _since(self._counted.get((tenant, path)), count))
        ]  # fmt: skip
        return {"demands": self._demands(), "weights": weights, "devices": self._devices(), "observed": observed}

    def _devices(self) -> dict[str, int]:
        """The accelerators of each tenant's running jobs: what a tenant declares counts for no more than these read."""
        found = Counter[str]()
        for live in self._server.active_jobs():
            found[live.job.tenant] += live.job.resources.accelerator_count * (live.job.size or live.job.ranks)
        return dict(found)

    def _demands(self) -> list[dict[str, Any]]:
        """What jobs that run, and those that wait, read."""
        waiting = (self._server.job(job_id) for job_id in self._server.snapshot().pending.by_id)
        found = []
        for live in [*self._server.active_jobs(), *(one for one in waiting if one is not None)]:
            inputs = cached_inputs(live)
            section = section_of(live)
            for url in inputs:
                options, prefetch = self._access(live, url)
                found.append({
                    "tenant": live.job.tenant, "url": url, "options": options, "prefetch": prefetch,
                    "bytes_per_s": section.rate / len(inputs), "epochs": section.epochs,
                })  # fmt: skip
        return found

    def _access(self, live: LiveJob, url: str) -> tuple[dict[str, str], bool]:
        """The options with which the daemon may read this for the job before it runs, and whether it may."""
        options, protocol = options_of(live, url), url.partition("://")[0]
        if protocol != "s3":
            sees_files = self._server.sandbox(live.job.tenant) is Sandbox.USER
            return options, ("://" in url and protocol != "file") or sees_files
        try:
            env = {**live.manifest.env, **self._server.secrets(live)}
        except ShoalError:  # the job is told, when it starts
            return options, False
        keys = {name: env[variable] for name, variable in _S3_KEYS.items() if variable in env}
        return {**options, **keys}, bool(keys)

    # --- questions of others ---

    def answers(self) -> Mapping[type, object]:
        return {Sensors: self}

    def sensed(self, job_id: str) -> Mapping[str, float]:
        """`data_wait`: the part of the time in which the job waits for data that is not cached."""
        live = self._server.job(job_id)
        waited = None if live is None else self._waits.of(live.job.tenant, job_id)
        return {} if waited is None else {"data_wait": waited}

    def prefers(self, job: LiveJob) -> Mapping[str, float]:
        """This machine, for what would have to be read from the source elsewhere."""
        held = sum(self._held.get(set_name(job, url), 0) for url in cached_inputs(job))
        rate = self._status.get("source_bytes_per_s") or _SOURCE_BYTES_PER_S
        return {socket.gethostname(): held / rate} if held else {}

    def _over(self) -> list[tuple[str, str]]:
        """Views, by tenant and name, of attempts that have ended."""
        live = {(one.job.tenant, view_name(one)) for one in self._server.active_jobs()}
        known = {(str(one["tenant"]), str(one["view"])) for one in self._status.get("views", ())}
        return sorted(known - live)

    # --- act ---

    def inputs(self, job: LiveJob, moves: Sequence[Move]) -> Sequence[Move]:
        """Those that ask for it are read through the cache: linked where it is there, else read from the source."""
        cached = cached_inputs(job)
        return [
            replace(move, source=f"shoal://{_url(move.source)}")
            if move.source in cached and known(move.source)
            else move
            for move in moves
        ]

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        """Every process of a job finds the cache, also in its sandbox; what fetches its inputs may have them shown."""
        if self._away or self.delegated(job):
            return gang
        tenant, view = job.job.tenant, view_name(job)
        env = {**gang.env, ROOT_VARIABLE: str(self._root), TENANT_VARIABLE: tenant}
        hidden = self._server.sandbox(tenant) is Sandbox.BUBBLEWRAP
        token = remote_token_of(self._secret, tenant) if hidden else token_of(self._secret, tenant)
        secrets = {**gang.secrets, TOKEN_VARIABLE: token}
        if gang.name == gang_name(job.job.id, job.job.attempt, DOWNLOAD):
            secrets[VIEW_VARIABLE] = view_of(self._secret, tenant, view)
        return replace(gang, env=env, secrets=secrets, mounts=(*gang.mounts, *self._mounts(tenant, view)))

    def _mounts(self, tenant: str, view: str) -> list[Mount]:
        """The tenant's links and views, and the way to the daemon, where a sandbox may hide them."""
        engine = self._server.engine
        shown = any(one.name == MOUNTS_CAPABILITY and one.available for one in engine.capabilities())
        if self._server.sandbox(tenant) is Sandbox.NONE or not shown:
            return []
        views = self._root / "views"
        paths = [self._root / DOOR, Links(self._root / "links").folder(tenant), tenant_folder(views, tenant)]
        return [Mount(path, path) for path in (*paths, *mounts_of(views, tenant, view))]

    def mount_roots(self) -> Sequence[Path]:
        return (self._root,)

    # --- shown ---

    async def explain(self, snapshot: Snapshot, job: LiveJob) -> Sequence[Blocker]:
        del snapshot
        reasons, urls = (self._last or {}).get("reasons", {}), cached_inputs(job)
        found = []
        for url in urls:
            told = reasons.get(set_name(job, url))
            if told is not None:
                reason = Reason(told["code"], told["text"], told["facts"])
                found.append(Blocker("cache", False, reason, f"`shoal cache explain {url}`"))
        return [*found, *(Blocker("cache", False, reason) for reason in self._wait(job, urls))]

    def _wait(self, job: LiveJob, urls: Sequence[str]) -> Iterable[Reason]:
        """What the job waits for now, as far as that is data."""
        longest = self._settings.wait
        if urls and job.job.state is JobState.DOWNLOADING:
            text = f"It waits for the first part of {', '.join(urls)}, for {longest:g} s at most where links show it."
            yield Reason("data-first-part", text, {"inputs": list(urls), "longest_s": longest})
        waited = self._waits.of(job.job.tenant, job.job.id) or 0.0
        if waited >= _TOLD_WAIT:
            text = f"It waits {waited:.0%} of its time for data that is not on the fast disk."
            yield Reason("data-wait", text, {"data_wait": waited})

    def capabilities(self) -> Sequence[Capability]:
        detail = self._away or f"{self._root}"
        return (Capability("cache", not self._away, detail, "each job reads its inputs from the source"),)

    def page(self, tenant: str | None) -> Page | None:
        """A tenant sees its own row."""
        used, limits = self._status.get("used", {}), self._status.get("limits", {})
        figures = [
            Figure(name="used", value=used.get("bytes"), unit=Unit.BYTES),
            Figure(name="allowed", value=limits.get("bytes"), unit=Unit.BYTES),
            Figure(name="gap of the last decision", value=self.status()["gap"]),
            Figure(name="trouble", value=self._away or None, mood=Mood.BAD if self._away else Mood.PLAIN),
        ]
        rows: list[list[Value]] = [
            [one["tenant"], one["held_bytes"], one["read_bytes"], one["saved_bytes"], one["hit_ratio"]]
            for one in self._status.get("tenants", ()) if tenant in (None, one["tenant"])
        ]  # fmt: skip
        columns = [
            Column(name="tenant"), *(Column(name=one, unit=Unit.BYTES) for one in ("held", "read", "saved")),
            Column(name="hit ratio", unit=Unit.SHARE),
        ]  # fmt: skip
        table = Table(title="Tenants", columns=columns, rows=rows, empty="nobody has read through it yet")
        return Page(title="Cache", figures=figures, parts=[table])

    def status(self) -> Mapping[str, Any]:
        """What the daemon said last."""
        kept = {name: self._status[name] for name in ("root", "used", "limits", "tenants") if name in self._status}
        last = self._last or {}
        return {**kept, "away": self._away or None, "gap": last.get("gap"), "decided_at": last.get("at")}

    def metrics(self) -> Iterable[Metric]:
        tenants, used = self._status.get("tenants", ()), self._status.get("used", {})
        by_tenant: dict[tuple[str, ...], float] = {
            (one["tenant"], outcome): float(one[f"{outcome}_bytes"])
            for one in tenants for outcome in ("read", "saved", "held")
        }  # fmt: skip
        last = self._last or {}
        numbers = {
            "gap": last.get("gap"), "round_seconds": last.get("seconds"), "evictions": self._status.get("evictions"),
            "fills_waiting": self._status.get("fills_waiting"), "used_bytes": used.get("bytes"),
        }  # fmt: skip
        yield gauge("shoal_cache_bytes", "Bytes by tenant, read, saved and held", ("tenant", "outcome"), by_tenant)
        yield gauge(
            "shoal_cache", "The gap of the last decision, its seconds, evictions, fetches that wait, bytes used",
            ("measure",), {(name,): float(value) for name, value in numbers.items() if value is not None},
        )  # fmt: skip


def _since(before: float | None, count: float) -> float:
    return count - before if before is not None and before <= count else count


def cached_inputs(live: LiveJob) -> list[str]:
    """The locations that a job wants through the cache; most jobs' manifests are not read for this."""
    if '"cached"' not in live.job.manifest:
        return []
    return [item.source for item in live.manifest.inputs if item.cached]


def view_name(live: LiveJob) -> str:
    return f"{live.job.id}.{live.job.attempt}"


def section_of(live: LiveJob) -> CacheJob:
    return CacheJob.model_validate(live.manifest.extensions.get("cache") or {})


def known(location: str) -> bool:
    """Whether the cache can read from there."""
    return _url(location).partition("://")[0] in PROTOCOLS


def _url(location: str) -> str:
    return location if "://" in location else f"file://{location}"


def set_name(live: LiveJob, url: str) -> str:
    """What the cache calls it; its own name where it cannot be read."""
    try:
        return source_of(_url(url), options_of(live, url), 0).url
    except (Invalid, ValueError):
        return url


def options_of(live: LiveJob, url: str) -> dict[str, str]:
    """What tells one object from another of the same name: the endpoint of S3."""
    if not url.startswith("s3://"):
        return {}
    env = live.manifest.env
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    return {"endpoint_url": endpoint} if endpoint else {}
