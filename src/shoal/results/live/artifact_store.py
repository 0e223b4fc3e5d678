"""Takes files, keeps and removes contents. A content is put in its place first and written down then; removed, it is
crossed out first. So what is written down is there, and what a crash leaves has no row and is swept."""

from __future__ import annotations

import asyncio
import heapq
import threading
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from shoal.base import trees
from shoal.base.files import free_bytes
from shoal.contract.pages import Page
from shoal.contract.records import NewEvent
from shoal.core import NotFound, Unavailable
from shoal.extension import Server
from shoal.results.keeping import take
from shoal.results.keeping.contents import Contents, contents_at
from shoal.results.keeping.names import Wanted, artifact_id, check_name
from shoal.results.keeping.retention import Kept, to_remove
from shoal.results.keeping.take import Content, NotTaken, Tree
from shoal.results.live.events import ResultsEvent
from shoal.results.live.page import page_of
from shoal.results.live.tables import RECENT, Repository, Used

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

log = structlog.get_logger("shoal.results")

_SPARE = 64 << 20
"""Bytes of the disk that artifacts leave free: the database needs them to say what is wrong."""
_AT_ONCE = 4
"""The maximum number of files that are read at a time."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """What a tenant may keep, and for how long. `together`: `bytes` and `files` are of all tenants."""

    bytes: int
    files: int
    keep_s: float
    versions: int
    together: bool = False


@dataclass(frozen=True, slots=True)
class Place:
    """To which job and attempt a file belongs; empty and 0 for one that was uploaded alone."""

    tenant: str
    job: str = ""
    job_name: str = ""
    attempt: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was kept of what a job wanted, and what was not, with the cause."""

    kept: tuple[Kept, ...]
    refused: tuple[str, ...]


class ArtifactStore:
    """`folder` is this component's own, `where` the setting that names another place for contents."""

    def __init__(self, server: Server, folder: Path, where: str, allowance: Allowance) -> None:
        self._server = server
        self._folder = folder
        self._incoming = folder / "incoming"
        self._where = where
        self._allowance = allowance
        self._contents: Contents | None = None
        self._trouble = ""
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._reserved: Counter[str] = Counter()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._leaving = threading.Event()
        self.repository = Repository(server.store)

    @property
    def trouble(self) -> str:
        """Why nothing can be kept; empty when it can."""
        return self._trouble

    @property
    def where(self) -> str:
        return self._where or str(self._folder / "contents")

    @property
    def shown_where(self) -> str | None:
        """The same for an admin; None in a plane, whose people learn nothing of the shared server's places."""
        return self.where if self._server.plane is None else None

    @property
    def allowance(self) -> Allowance:
        return self._allowance

    async def open(self) -> None:
        await asyncio.to_thread(self._open)

    def _open(self) -> None:
        self.repository.open()
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            trees.remove(str(self._incoming))  # what a server left that was killed
            self._incoming.mkdir(mode=0o700, exist_ok=True)
            self._contents = contents_at(self._where, self._folder / "contents")
        except (OSError, ValueError, ImportError) as problem:
            log.warning("artifacts cannot be kept", problem=str(problem))
            said = f": {problem}" if self._server.plane is None else ""
            self._trouble = f"the place of artifacts cannot be used{said}"[:300]

    def leave(self) -> None:
        """What is being read is given up."""
        self._leaving.set()

    # --- keeping ---

    async def keep(self, tree: Tree, place: Place, wanted: Sequence[Wanted], by: str) -> Outcome:
        """Keep files of a job's directory. Each is safe once this returns; what cannot be kept is said."""
        kept, refused = list[Kept](), list[str]()
        for one in wanted:
            try:
                found = await asyncio.to_thread(self._find, tree, one, place.tenant)
            except NotTaken as problem:
                refused.append(f"{one.path}: {problem}")
                continue
            for file in found:
                try:
                    kept.append(await self._keep(tree, place, one.name_of(file.parts), file, by))
                except NotTaken as problem:
                    refused.append(f"{'/'.join(file.parts)}: {problem}")
        return Outcome(tuple(kept), tuple(refused))

    def _find(self, tree: Tree, wanted: Wanted, tenant: str) -> list[take.Found]:
        room, found = self._files_left(tenant), list[take.Found]()
        for one in take.find(tree, wanted):
            found.append(one)
            if len(found) > room:
                raise NotTaken(f"{self._allowance.files} artifacts may be kept, and this would be more")
        return found

    async def _keep(self, tree: Tree, place: Place, name: str, file: take.Found, by: str) -> Kept:
        if self._contents is None:
            raise NotTaken(self._trouble)
        try:
            check_name(name)
        except ValueError as problem:
            raise NotTaken(str(problem)) from None
        tenant = place.tenant
        if self.repository.sizes[tenant][file.bytes] > 0:
            async with self._places:  # it may be there: that is known without a copy
                content = await asyncio.to_thread(
                    take.content_of, tree, file.parts, most=file.bytes, stop=self._leaving.is_set
                )
            async with self._locks[tenant]:
                if (tenant, content.digest) in self.repository.contents:
                    return await self._write_down(place, name, content, by)
        async with self.incoming(tenant, file.bytes) as part:
            try:
                async with self._places:
                    content = await asyncio.to_thread(
                        take.copy, tree, file.parts, part, most=file.bytes, stop=self._leaving.is_set
                    )
                return await self.publish(place, name, content, part, by)
            except OSError as problem:
                raise NotTaken(f"it cannot be kept: {problem.strerror or problem}") from None

    @asynccontextmanager
    async def incoming(self, tenant: str, size: int) -> AsyncIterator[Path]:
        """A path for a content on its way, with room for `size` bytes. Raises NotTaken where the tenant has none, or
        the disk is full. It is gone afterwards, unless it was published."""
        self.check_room(tenant, size)
        part = self._incoming / uuid.uuid4().hex
        self._reserved[self._account(tenant)] += size
        try:
            yield part
        finally:
            self._reserved[self._account(tenant)] -= size
            await asyncio.to_thread(part.unlink, missing_ok=True)

    def check_room(self, tenant: str, size: int) -> None:
        """Raises NotTaken where there is no room for `size` bytes more."""
        used = self.used(tenant).bytes + self._reserved[self._account(tenant)]
        who = "all tenants together have" if self._allowance.together else "the tenant has"
        if used + size > self._allowance.bytes:
            raise NotTaken(
                f"it has {size} bytes, and {who} {max(0, self._allowance.bytes - used)} left of the"
                f" {self._allowance.bytes} that artifacts may take"
            )
        if self._files_left(tenant) < 1:
            raise NotTaken(f"{who} {self._allowance.files} artifacts already, and may not have more")
        try:
            free = free_bytes(self._incoming)
        except OSError as problem:
            raise NotTaken(f"the server's disk cannot be used: {problem.strerror}") from None
        if free < size + _SPARE:
            raise NotTaken(f"the server's disk is full: {free} bytes are free, and {size} are needed")

    def _files_left(self, tenant: str) -> int:
        return self._allowance.files - self.used(tenant).files

    def used(self, tenant: str) -> Used:
        """Of what is allowed: by the tenant, or by all together."""
        if not self._allowance.together:
            return self.repository.used[tenant]
        every = list(self.repository.used.values())
        return Used(sum(one.bytes for one in every), sum(one.files for one in every))

    def _account(self, tenant: str) -> str:
        return "" if self._allowance.together else tenant

    async def publish(self, place: Place, name: str, content: Content, part: Path, by: str) -> Kept:
        """Keep a whole content under a name. Safe when this returns. Raises OSError."""
        contents = self.contents
        async with self._locks[place.tenant]:
            if (place.tenant, content.digest) not in self.repository.contents:
                self._server.fault("artifact-before-content")
                await asyncio.to_thread(contents.put, place.tenant, content.digest, part)
                self._server.fault("artifact-before-row")
            return await self._write_down(place, name, content, by)

    async def link(self, place: Place, name: str, digest: str, by: str) -> Kept | None:
        """Give a content that the tenant has another name; None where it has no such content."""
        async with self._locks[place.tenant]:
            size = self.repository.contents.get((place.tenant, digest))
            return None if size is None else await self._write_down(place, name, Content(digest, size), by)

    async def _write_down(self, place: Place, name: str, content: Content, by: str) -> Kept:
        one = Kept(
            artifact_id(place.tenant, place.job, place.attempt, name), place.tenant, place.job, place.job_name,
            place.attempt, name, content.digest, content.bytes, self._server.clock.now(), by=by,
        )  # fmt: skip
        await self.repository.add(one)
        return one

    # --- reading ---

    @property
    def contents(self) -> Contents:
        if self._contents is None:
            raise Unavailable(self._trouble or "the server starts", where="results.store")
        return self._contents

    async def read(self, one: Kept, offset: int, limit: int) -> bytes:
        try:
            return await asyncio.to_thread(self.contents.read, one.tenant, one.digest, offset, limit)
        except FileNotFoundError:
            raise NotFound(f"the content of {one.name} is gone", where=one.id) from None
        except OSError as problem:
            raise Unavailable(f"the content cannot be read: {problem.strerror or problem}", where=one.id) from None

    # --- removing ---

    async def remove(self, tenant: str, gone: Sequence[Kept], *, actor: str, cause: str) -> int:
        """Forget artifacts, and the contents that no other names; how many bytes that freed."""
        if not gone:
            return 0
        names = [one.name for one in gone[:20]]
        told = NewEvent(
            self._server.clock.now(), ResultsEvent.REMOVED, actor, f"{len(gone)} artifacts: {cause}", tenant,
            data={"artifacts": len(gone), "names": names},
        )  # fmt: skip
        contents = self.contents
        async with self._locks[tenant]:
            before = self.repository.used[tenant].bytes
            freed = await self.repository.remove(tenant, gone, [told])
            self._server.fault("artifact-before-unlink")
            for digest in freed:
                try:
                    await asyncio.to_thread(contents.remove, tenant, digest)
                except OSError as problem:  # it is swept later
                    log.warning("a content cannot be removed", tenant=tenant, digest=digest, problem=str(problem))
            return before - self.repository.used[tenant].bytes

    async def tidy(self) -> None:
        """Remove what may go by now, and contents that nothing names."""
        if self._contents is None:
            return
        kept = await asyncio.to_thread(self.repository.all)
        limits = self._allowance
        gone = to_remove(kept, now=self._server.clock.now(), keep_s=limits.keep_s, versions=limits.versions)
        for tenant in sorted({one.tenant for one in gone}):
            own = [one for one in gone if one.tenant == tenant]
            await self.remove(tenant, own, actor="results", cause="they are old, or there are newer ones")
        try:
            listed = await asyncio.to_thread(lambda: list(self.contents.listed()))
        except OSError as problem:
            log.warning("contents cannot be listed", problem=str(problem))
            return
        for tenant, digest in listed:
            if (tenant, digest) in self.repository.contents:
                continue
            async with self._locks[tenant]:  # what is being put there is written down before this is had
                if (tenant, digest) not in self.repository.contents:
                    await asyncio.to_thread(_unless_trouble(self.contents.remove), tenant, digest)

    # --- shown ---

    def page(self, tenant: str | None) -> Page | None:
        """What a tenant's people see; None of `tenant`: all of it."""
        repository = self.repository
        owners = list(repository.used) if tenant is None else [tenant]
        used = [repository.used[one] for one in owners if one in repository.used]
        kept = heapq.merge(
            *(repository.recent[one] for one in owners), key=lambda one: one.taken_at, reverse=True
        )  # fmt: skip
        files = sum(one.files for one in used)
        if not files and not repository.pending and not self._trouble:
            return None
        return page_of(
            list(islice(kept, RECENT)), used=sum(one.bytes for one in used), allowed=self._allowance.bytes,
            files=files, taking=len(repository.pending) if tenant is None else None,
            where=self.shown_where if tenant is None else None, trouble=self._trouble,
        )  # fmt: skip


def _unless_trouble(remove: Callable[[str, str], None]) -> Callable[[str, str], None]:
    def attempt(tenant: str, digest: str) -> None:
        try:
            remove(tenant, digest)
        except OSError as problem:
            log.warning("a content that nothing names cannot be removed", digest=digest, problem=str(problem))

    return attempt
