"""Jobs that name their software: it is made once for their tenant, and the way into it is put before their commands."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import structlog
from pydantic import BaseModel

from shoal.base import trees
from shoal.base.loops import BackgroundLoop, RunningLoop
from shoal.contract.events import EventKinds
from shoal.contract.gangs import RUN, parse_gang_name
from shoal.contract.manifest import JobManifest
from shoal.contract.pages import Column, Figure, Page, Table, Unit, Value
from shoal.contract.records import NewEvent
from shoal.core import Capability, Conflict, Fault, Invalid, Sandbox
from shoal.engine import IMAGES_CAPABILITY, MOUNTS_CAPABILITY, Gang, LaunchFailed, Mount
from shoal.environment.activate import in_conda, in_image, in_runtime, in_venv
from shoal.environment.driver import driver_files
from shoal.environment.keeping import ROOM, to_remove
from shoal.environment.live import orders
from shoal.environment.live.builder import Builder, Order, Show
from shoal.environment.live.events import EnvironmentEvent
from shoal.environment.live.needs import Keeping
from shoal.environment.live.tables import TABLES, Made, Pin, Repository
from shoal.environment.places import Place, folder_of
from shoal.environment.reference import read_image
from shoal.environment.section import EnvironmentJob
from shoal.environment.settings import EnvironmentSection
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.store import Tables

if TYPE_CHECKING:
    from fastapi import APIRouter

log = structlog.get_logger("shoal.environment")

_TIDY_S = 5.0


class Environments(Extension, Keeping):
    """Runs a job's command in the environment that its manifest names."""

    name: ClassVar[str] = "environment"
    settings: ClassVar[type[Section]] = EnvironmentSection
    manifest: ClassVar[type[BaseModel] | None] = EnvironmentJob
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = EnvironmentEvent
    paths: ClassVar[Sequence[str]] = ("/v1/environments",)
    in_planes: ClassVar[bool] = True

    def __init__(self, server: Server, settings: EnvironmentSection) -> None:
        self._server = server
        self._settings = settings
        self._home = server.home.resolve() / self.name
        self._builder = Builder(server.engine, server.home / f"{self.name}-files", server.job)
        self.repository = Repository(server.store)
        self._over: set[str] = set()
        self._driver: dict[str, str] = {}
        self._writing: set[asyncio.Task[None]] = set()
        self._tags: dict[tuple[Path, str], tuple[str, float]] = {}
        self._allowance = asyncio.Lock()
        """All tenants of a plane have that of one tenant together: there, one thing is made at a time."""

    @classmethod
    def off(cls) -> Sequence[Capability]:
        lost = "jobs that name a virtual environment, a lock file or an image are refused"
        return (Capability("environment", False, "environment.enabled is false", lost),)

    def accept(self, manifest: JobManifest) -> None:
        """What is made lies on this machine. An engine whose cluster has containers takes a registry's image itself."""
        asked = EnvironmentJob.model_validate(manifest.extensions[self.name])
        if not asked.kind.made or self._can(MOUNTS_CAPABILITY) or self._by_runtime(asked):
            return
        engine, where = self._server.engine.name, f"extensions.environment.{asked.kind}"
        if not self._native(asked):
            also = " but that of a registry" if asked.image is not None and self._can(IMAGES_CAPABILITY) else ""
            what = "images" if asked.image is not None else "environments of lock files"
            raise Invalid(
                f"the engine {engine} has no {what}{also}", where=where,
                hint="`venv` and `conda` name what its machines have; environment.runtime has them run images",
            )  # fmt: skip
        if asked.mounts or asked.workdir is not None:
            raise Invalid(
                f"the engine {engine} takes the image alone", where="extensions.environment",
                hint="leave out `mounts` and `workdir`: pods see the server's volume, and start in the run directory",
            )  # fmt: skip

    def _can(self, capability: str) -> bool:
        return any(one.name == capability and one.available for one in self._server.engine.capabilities())

    def _by_runtime(self, asked: EnvironmentJob) -> bool:
        """Whether a program of the job's machine runs the image: nothing is made for it."""
        return asked.image is not None and bool(self._settings.runtime)

    def _native(self, asked: EnvironmentJob) -> bool:
        """Whether the engine itself runs what is asked for."""
        return (
            asked.image is not None
            and not read_image(asked.image).local
            and self._can(IMAGES_CAPABILITY)
            and not self._can(MOUNTS_CAPABILITY)
            and not self._by_runtime(asked)
        )

    # --- life ---

    async def open(self) -> None:
        self.repository.open()
        self._driver = await asyncio.to_thread(driver_files)
        self._over = {one for one in self.repository.pins if self._server.job(one) is None}

    def idle(self) -> bool:
        return not self._over and not self._writing

    async def close(self) -> None:
        await asyncio.gather(*self._writing, return_exceptions=True)

    def loops(self) -> Sequence[BackgroundLoop]:
        return (RunningLoop("pins", self._tidy),)

    async def _tidy(self) -> None:
        while True:
            over, self._over = self._over, set()
            await self.repository.unpin(over)
            await asyncio.sleep(_TIDY_S)

    def moved(self, job: LiveJob) -> None:
        if job.job.state.terminal and job.job.id in self.repository.pins:
            self._over.add(job.job.id)

    # --- act ---

    async def stage(self, job: LiveJob, show: Show) -> None:
        asked = asked_by(job)
        if asked is None or not asked.kind.made or self._native(asked) or self._by_runtime(asked):
            return
        if not self._can(MOUNTS_CAPABILITY):
            raise LaunchFailed(
                f"the engine {self._server.engine.name} makes no environments", fault=Fault.USER,
                where=f"environment.{asked.kind}", hint="name one that its machines have, by venv or conda",
            )  # fmt: skip
        order = await self._order(job, asked, self._settings)
        folder = order.place.folder.name
        if Pin(folder, order.place.kind, order.place.key).id in self.repository.made:
            await self._stage(job, asked, order, show)
        elif self._server.plane is None:
            await self._make_room(folder)
            await self._stage(job, asked, order, show)
        else:
            if self._allowance.locked():
                show("waits for what is made for another job of this plane")
            async with self._allowance:
                await self._make_room(folder)
                left = await asyncio.to_thread(_left, self._settings, self._home, folder)
                await self._stage(job, asked, await self._order(job, asked, left), show)

    async def _stage(self, job: LiveJob, asked: EnvironmentJob, order: Order, show: Show) -> None:
        lock = self._builder.lock(order.place)
        if lock.locked():
            show(f"waits for {order.place.kind} {order.place.key[:12]}".rstrip() + ", which is made for another job")
        async with lock:
            pin = await self._there(job, asked, order, show)
            if self.repository.pins.get(job.job.id) != pin:
                self._pin(job, pin)

    async def _order(self, job: LiveJob, asked: EnvironmentJob, settings: EnvironmentSection) -> Order:
        sandbox = self._server.sandbox(job.job.tenant)
        folder = folder_of(self._home, job.job.tenant, sandbox)
        secrets = self._server.secrets(job)
        mounts = self._shown_mounts(sandbox)
        if asked.image is None:
            bundles = self._server.home / "bundles"
            return await asyncio.to_thread(
                orders.lock_order, job, asked, settings, folder, sandbox, secrets, bundles, mounts
            )
        image = read_image(asked.image)
        before = self.repository.pins.get(job.job.id)
        digest = image.digest or (before.key if before is not None and before.kind == asked.kind.value else None)
        if digest is None and not image.local:
            key, at = self._tags.get((folder, asked.image), ("", 0.0))
            digest = key if key and time.monotonic() - at < self._settings.recheck else None
        known = {one.key for one in self.repository.made.values() if one.folder == folder.name and one.kind == "image"}
        return orders.image_order(job, image, digest, settings, folder, sandbox, secrets, known, mounts)

    async def _there(self, job: LiveJob, asked: EnvironmentJob, order: Order, show: Show) -> Pin:
        """Make it where it is not there."""
        folder, kind = order.place.folder.name, order.place.kind
        pin = Pin(folder, kind, order.place.key)
        if pin.id in self.repository.made and order.place.path.is_dir():  # a backup holds no files
            return pin
        begun = time.monotonic()
        found = await self._builder.make(job, order, show)
        pin = Pin(folder, kind, found.key)
        if asked.image is not None:
            self._tags[order.place.folder, asked.image] = found.key, time.monotonic()
        if pin.id not in self.repository.made:
            seconds = round(time.monotonic() - begun, 3)
            log.info("made an environment", what=pin.id, bytes=found.bytes, seconds=seconds)
            now = self._server.clock.now()
            source = getattr(asked, kind)
            made = Made(job.job.tenant, folder, kind, found.key, source, found.bytes, found.files, now, now)
            await self.repository.keep(made)
        return pin

    def _pin(self, job: LiveJob, pin: Pin) -> None:
        """Written down beside the launch, which need not wait for a disk. What a server that dies before it is written
        cannot say, the next attempt finds out."""
        now = self._server.clock.now()
        event = NewEvent(
            now, EnvironmentEvent.READY, self.name, f"{pin.kind} {pin.key[:12]} is there", job.job.tenant, job.job.id,
            job.job.attempt, data={"kind": pin.kind, "key": pin.key},
        )  # fmt: skip
        self.repository.pins[job.job.id] = pin
        task = asyncio.create_task(self.repository.pin(job.job.id, pin, now, event))
        self._writing.add(task)
        task.add_done_callback(self._writing.discard)

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        asked = asked_by(job)
        named = parse_gang_name(gang.name)
        if asked is None or named is None or named.phase != RUN:
            return gang
        if asked.image is not None and self._native(asked):
            return replace(gang, image=asked.image)
        if self._by_runtime(asked):
            return gang
        return replace(gang, mounts=(*gang.mounts, *self._own_mounts(job, gang, asked)))

    def _own_mounts(self, job: LiveJob, gang: Gang, asked: EnvironmentJob) -> tuple[Mount, ...]:
        sandbox = self._server.sandbox(job.job.tenant)
        shown = self._shown_mounts(sandbox) if asked.uv is None else ()
        if not asked.kind.made or sandbox is Sandbox.NONE:
            return shown
        folder = self._place(job, gang).folder
        return (Mount(folder, folder), *shown)

    def enter(self, job: LiveJob, gang: Gang) -> Sequence[str]:
        asked = asked_by(job)
        named = parse_gang_name(gang.name)
        if asked is None or named is None or named.phase != RUN or gang.image:
            return ()
        hidden = self._server.sandbox(job.job.tenant) is Sandbox.BUBBLEWRAP
        hint = ". The sandbox bubblewrap shows what the setting environment.shown names" if hidden else ""
        if asked.venv is not None:
            return in_venv(asked.venv, hint=hint)
        if asked.conda is not None:
            return in_conda(asked.conda, self._settings.conda, hint=hint)
        given = (*job.manifest.env, *job.manifest.secrets)
        if asked.image is not None and self._settings.runtime:
            return in_runtime(
                self._settings.runtime, read_image(asked.image), paths=asked.mounts, workdir=asked.workdir, given=given
            )
        place = self._place(job, gang)
        if asked.image is None:
            return in_venv(str(place.path / "venv"))
        own = self._own_mounts(job, gang, asked)
        others = [one for one in gang.mounts if one not in own]
        return in_image(
            place.path, home=self._server.home.resolve(), mounts=others, paths=asked.mounts, workdir=asked.workdir,
            given=given, driver=self._driver,
        )  # fmt: skip

    def _place(self, job: LiveJob, gang: Gang) -> Place:
        pin = self.repository.pins.get(job.job.id)
        if pin is None:
            raise LaunchFailed("its environment was not made", fault=Fault.PLATFORM, where=gang.name)
        return Place(self._home / pin.folder, pin.kind, pin.key)

    def _shown_mounts(self, sandbox: Sandbox) -> tuple[Mount, ...]:
        return tuple(Mount(one, one) for one in self._shown()) if sandbox is Sandbox.BUBBLEWRAP else ()

    def _shown(self) -> list[Path]:
        """Folders that the settings name, of those that are there: no part of them comes from a manifest."""
        found = [Path(one).resolve() for one in self._settings.shown]
        return [one for one in found if one.is_dir()]

    def mount_roots(self) -> Sequence[Path]:
        return [one.parent for one in self._shown()]

    # --- keeping ---

    async def _make_room(self, folder: str) -> None:
        made = self.repository.made.values()
        kept = [one for one in made if self._server.plane is not None or one.folder == folder]
        await self._remove(to_remove(kept, self.repository.used(), self._settings.size), "environment", "for room")

    async def remove(self, made: Iterable[Made], actor: str) -> list[str]:
        used = self.repository.used()
        ids = []
        for one in made:
            if one.id in used:
                raise Conflict(
                    f"{one.kind} {one.key} is what a job runs with", where=one.key, hint="wait until the job is over"
                )
            ids.append(one.id)
        await self._remove(ids, actor, "asked for")
        return ids

    async def _remove(self, ids: Sequence[str], actor: str, why: str) -> None:
        for one in ids:
            made = self.repository.made.get(one)
            if made is None:
                continue
            place = Place(self._home / made.folder, made.kind, made.key)
            async with self._builder.lock(place):
                if one in self.repository.used():  # a job has come to need it
                    continue
                now = self._server.clock.now()
                cause = f"{made.kind} {made.key[:12]} was removed: {why}"
                event = NewEvent(
                    now, EnvironmentEvent.REMOVED, actor, cause, made.tenant,
                    data={"kind": made.kind, "key": made.key},
                )  # fmt: skip
                await self.repository.drop(one, event)
                await asyncio.to_thread(_remove_files, place)

    # --- shown ---

    def capabilities(self) -> Sequence[Capability]:
        total = sum(one.bytes for one in self.repository.made.values())
        if not self._can(MOUNTS_CAPABILITY):
            which = "images of registries, and " if self._can(IMAGES_CAPABILITY) else ""
            which = f"images by {self._settings.runtime}, and " if self._settings.runtime else which
            detail = f"on the engine {self._server.engine.name}: {which}virtual and conda environments of its machines"
            return (Capability("environment", True, detail, "lock files and other images are refused"),)
        return (Capability("environment", True, f"{len(self.repository.made)} made, {total / 2**20:.0f} MiB"),)

    def page(self, tenant: str | None) -> Page | None:
        made = self.repository.of(tenant)
        figures = [
            Figure(name="environments", value=len(made)),
            Figure(name="held", value=sum(one.bytes for one in made), unit=Unit.BYTES),
        ]
        rows: list[list[Value]] = [[one.tenant, one.kind, one.key[:12], one.bytes, one.used_at] for one in made]
        columns = [
            Column(name="tenant"), Column(name="kind"), Column(name="key"), Column(name="size", unit=Unit.BYTES),
            Column(name="last used", unit=Unit.TIME),
        ]  # fmt: skip
        table = Table(title="Made for jobs", columns=columns, rows=rows, empty="nothing was made yet")
        return Page(title="Environments", figures=figures, parts=[table])

    def routers(self) -> Sequence[APIRouter]:
        from shoal.environment.live.api import router_of

        return (router_of(),)


def asked_by(job: LiveJob) -> EnvironmentJob | None:
    """The job's section, which was checked when it came; most jobs' manifests are not read for this."""
    if '"environment"' not in job.job.manifest:
        return None
    given = job.manifest.extensions.get(Environments.name)
    return None if given is None else EnvironmentJob.model_validate(given)


def _left(settings: EnvironmentSection, home: Path, folder: str) -> EnvironmentSection:
    """The settings, with what a tenant of a plane may take beside the others, whose downloads go where these take too
    much. Blocks."""
    others = [one for one in home.iterdir() if one.name != folder] if home.is_dir() else []
    taken = [trees.measure(str(one)) for one in others]
    if sum(size for size, _ in taken) > settings.size * ROOM:
        for one in others:
            if (one / "cache" / "uv").is_dir():
                _remove_files(Place(one, "cache", "uv"))
        taken = [trees.measure(str(one)) for one in others]
    size, files = (sum(counts) for counts in zip((0, 0), *taken, strict=True))
    return settings.model_copy(update={"size": max(1, settings.size - size), "files": max(1, settings.files - files)})


def _remove_files(place: Place) -> None:
    """Whatever its tenant has put on the way there: no link is followed. Blocks."""
    try:
        folder = os.open(place.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            above = trees.open_beneath(folder, place.kind)
        finally:
            os.close(folder)
    except OSError as problem:
        log.warning("an environment could not be removed", place=str(place.path), error=str(problem))
        return
    try:
        if left := trees.remove(f"/proc/self/fd/{above}/{place.key}"):
            log.warning("an environment could not be removed", place=str(place.path), error=left)
    finally:
        os.close(above)
