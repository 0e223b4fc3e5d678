"""Making an environment once: by a gang of the job that needs it first, in the tenant's sandbox and within limits."""

from __future__ import annotations

import asyncio
import io
import json
import re
import sys
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from shoal.base.files import write_whole
from shoal.contract.gangs import gang_name, parse_gang_name
from shoal.core import Fault, Sandbox
from shoal.engine import Engine, Gang, GangStatus, LaunchFailed, Limits, Mount, RankSpec
from shoal.environment.places import Place
from shoal.extension import LiveJob

PHASE = "environment"
"""Of the gang's name, beside the phases of an attempt: it is the attempt's as long as that lives."""
_LOOK_S = 0.1
_LEAST_BYTES = 2 << 30
"""Of memory, however small the job is: packages are unpacked and built."""
_AGAIN = 75
_SAID_BYTES = 1 << 16
_MOST_SAID = 1500
_KEY = re.compile(r"[0-9a-f]{32,64}")


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be made where, by which rights. `told` is what the builder is told, `files` what it finds in
    `builds/KEY` of the tenant's folder. The key of an image is found while it is made, unless its digest is known."""

    place: Place
    told: Mapping[str, Any]
    files: Mapping[str, bytes]
    env: Mapping[str, str]
    secrets: Mapping[str, str]
    sandbox: Sandbox
    limits: Limits
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What was made, or was there already: then its size is 0."""

    key: str
    bytes: int
    files: int


class Show(Protocol):
    """Says how far it is, as `Extension.stage` has it."""

    def __call__(self, text: str, part: float | None = None) -> None: ...


class Builder:
    """One at a time for each place; who comes second finds it made, or tries again."""

    def __init__(self, engine: Engine, scratch: Path, job: Callable[[str], LiveJob | None]) -> None:
        self._engine = engine
        self._job = job
        self._scratch = scratch
        self._locks: dict[tuple[Path, str], asyncio.Lock] = {}
        self._mine: set[str] = set()

    def lock(self, place: Place) -> asyncio.Lock:
        """To be held from the look whether it is there until it is written down. A tenant's images are made one after
        the other: two names may turn out to mean the same."""
        key = "" if place.kind == "image" else place.key
        return self._locks.setdefault((place.folder / place.kind, key), asyncio.Lock())

    async def make(self, job: LiveJob, order: Order, show: Show) -> Found:
        """Raises LaunchFailed."""
        name = gang_name(job.job.id, job.job.attempt, PHASE)
        files = await asyncio.to_thread(self._pack, order) if order.files else None
        await self._others(job, name, show)
        self._mine.add(name)
        try:
            status = await self._engine.launch(_gang(job, order, name, files))
            status = await self._ended(name, status, order, show)
            said = (await self._engine.read(name, 0, "log", -_SAID_BYTES)).data.decode(errors="replace")
        except asyncio.CancelledError:
            # Where only the server leaves, what is being made goes on, and the next server finds it by its name.
            if job.attempt is not None and job.attempt.stop is not None:
                await self._engine.forget(name)
            raise
        finally:
            self._mine.discard(name)
            if files is not None:
                files.unlink(missing_ok=True)
        await self._engine.forget(name)
        return _read_end(status, said, order)

    async def _others(self, job: LiveJob, name: str, show: Show) -> None:
        """Until nothing runs that a server before this one had begun to make for the same tenant, and whose job has not
        come back to it yet."""
        while True:
            begun = [
                one for one, status in (await self._engine.gangs()).items()
                if one != name and one not in self._mine and not status.ended and self._for_tenant(one, job.job.tenant)
            ]  # fmt: skip
            if not begun:
                return
            show(f"waits for {begun[0]}, which was begun before the server was started")
            await asyncio.sleep(_LOOK_S)

    def _for_tenant(self, name: str, tenant: str) -> bool:
        parsed = parse_gang_name(name)
        if parsed is None or parsed.phase != PHASE:
            return False
        other = self._job(parsed.job_id)
        return other is not None and other.job.tenant == tenant

    async def _ended(self, name: str, status: GangStatus, order: Order, show: Show) -> GangStatus:
        while not status.ended:
            said = (await self._engine.read(name, 0, "log", -1024)).data.decode(errors="replace").strip()
            last = said.rpartition("\n")[2][:160]
            what = f"makes {order.place.kind} {order.place.key[:12]}".rstrip()
            show(f"{what}: {last}" if last and last.isprintable() else what)
            await asyncio.sleep(_LOOK_S)
            found = await self._engine.status(name)
            if found is None:
                raise LaunchFailed("what made it is gone", fault=Fault.PLATFORM, where=name)
            status = found
        return status

    def _pack(self, order: Order) -> Path:
        """An archive, which the engine unpacks with the tenant's rights."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as archive:
            for file, data in sorted(order.files.items()):
                member = tarfile.TarInfo(f"builds/{order.place.key}/{file}")
                member.size, member.mode = len(data), 0o600
                archive.addfile(member, io.BytesIO(data))
        self._scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._scratch / f"{order.place.folder.name}-{order.place.key}.tar"
        write_whole(path, packed.getvalue())
        return path


def _gang(job: LiveJob, order: Order, name: str, files: Path | None) -> Gang:
    assert job.attempt is not None
    asked = job.job.resources
    order.place.folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    return Gang(
        name=name,
        argv=(sys.executable, "-m", "shoal.environment.making", order.place.kind, json.dumps(order.told)),
        ranks=(RankSpec(rank=0, node=job.attempt.placement[0].node),),
        run_dir=order.place.folder,
        env=order.env,
        secrets=order.secrets,
        bundle=files,
        cpu_milli=asked.cpu_milli,
        memory_bytes=asked.memory_bytes and max(asked.memory_bytes, _LEAST_BYTES),
        limits=order.limits,
        grace_s=2.0,
        tenant=job.job.tenant,
        sandbox=order.sandbox,
        network=job.manifest.network,
        mounts=order.mounts,
    )


def _read_end(status: GangStatus, said: str, order: Order) -> Found:
    """What the builder says. Raises LaunchFailed where it was not made."""
    where = f"environment.{order.place.kind}"
    if status.fault is not None and status.reason is not None:
        raise LaunchFailed(status.reason.text, fault=status.fault, where=where)
    end = status.ranks[0].exit if status.ranks else None
    lines = [line for line in said.splitlines() if line.strip()]
    last = lines[-1][-_MOST_SAID:] if lines else "it said nothing"
    if end is None or end.lost:
        raise LaunchFailed("what made it was lost", fault=Fault.INFRASTRUCTURE, where=where)
    if end.limit:
        hint = "`shoal environments --remove` makes room; the settings environment.size and environment.files limit it"
        raise LaunchFailed(f"it was not made: {end.detail}", fault=Fault.USER, where=where, hint=hint)
    if end.oom:
        raise LaunchFailed("making it needs more memory than the job has", fault=Fault.USER, where=where)
    if end.code == _AGAIN:
        raise LaunchFailed(last, fault=Fault.INFRASTRUCTURE, where=where)
    if end.code != 0:
        what = last if end.code == 1 else f"it was not made (exit code {end.code}, signal {end.signal}): {last}"
        raise LaunchFailed(what, fault=Fault.USER, where=where)
    # The tenant's own processes wrote this: it counts against nobody else.
    with suppress(ValueError, TypeError, KeyError):
        told = json.loads(last)
        return Found(_key(told["key"], order), _count(told["bytes"]), _count(told["files"]))
    raise LaunchFailed("what made it did not say how large it is", fault=Fault.USER, where=where)


def _key(told: Any, order: Order) -> str:
    """Hexadecimal digits only: it becomes a part of a path. What was to be made is what was made."""
    key = str(told)
    if not _KEY.fullmatch(key) or order.place.key not in ("", key):
        raise ValueError(key)
    return key


def _count(value: Any) -> int:
    return max(0, min(int(value), 1 << 60))
