"""Users of the machine as an extension of the server."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from pydantic import BaseModel

from shoal.contract.events import EventKind, EventKinds
from shoal.contract.principal import Callers, User, submitter
from shoal.contract.records import Event
from shoal.core import Capability, Sandbox
from shoal.engine import Gang
from shoal.extension import Extension, LiveJob, Section, Server
from shoal.store import Tables
from shoal.users.accounts import Accounts
from shoal.users.live.callers import Whose
from shoal.users.live.events import UserEvent
from shoal.users.live.needs import Serving
from shoal.users.live.running import Running
from shoal.users.live.settings import UsersManifest, UsersSection
from shoal.users.live.table import Table
from shoal.users.live.tables import TABLES

if TYPE_CHECKING:
    from fastapi import APIRouter

_SELF = "jobs run as their users"
_NEEDED = "users whose jobs are to run as them are refused; those with `--run-as tenant` are not"


class Users(Extension, Serving):
    """Lets users of the machine in by the local socket, and has their jobs run as them."""

    name: ClassVar[str] = "users"
    paths: ClassVar[Sequence[str]] = ("/v1/users", "/v1/whoami")
    not_in_planes: ClassVar[str] = "a plane has tokens, and no users of the machine"
    settings: ClassVar[type[Section]] = UsersSection
    manifest: ClassVar[type[BaseModel] | None] = UsersManifest
    tables: ClassVar[Tables | None] = TABLES
    events: ClassVar[type[EventKinds] | None] = UserEvent

    def __init__(self, server: Server, settings: UsersSection) -> None:
        self._server = server
        self._submitters: dict[str, User | None] = {}
        self._accounts = Accounts(server.clock)
        self.table = Table(
            server, self._accounts, missing=self._missing, as_root=os.geteuid() == 0, allow_root=settings.allow_root
        )
        self._whose = Whose(self._accounts, lambda: self.table.rules, lambda: self.table.holders)
        self._running = Running(
            self._accounts, lambda: self.table.rules, self._submitter, umask=int(settings.umask, 8),
            allow_root=settings.allow_root, missing=self._missing,
        )  # fmt: skip

    @classmethod
    def off(cls) -> Sequence[Capability]:
        detail = "off: `shoal up --set users.enabled=on`"
        return (Capability("users of this machine", False, detail, "everyone needs a token"),)

    @classmethod
    def probe(cls, home: Path) -> Sequence[Capability]:  # noqa: ARG003
        if os.geteuid() == 0:
            return (Capability(_SELF, True, "the server starts each as the user who submitted it"),)
        return (Capability(_SELF, False, f"the server would run as {_own_name()}, not as root", _NEEDED),)

    async def open(self) -> None:
        self.table.open()

    async def close(self) -> None:
        self._accounts.close()

    def committed(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.kind == EventKind.JOB_SUBMITTED and event.job_id is not None:
                self._submitters[event.job_id] = submitter((event,))

    def moved(self, job: LiveJob) -> None:
        if job.job.state.terminal:
            self._submitters.pop(job.job.id, None)

    def _submitter(self, job_id: str) -> User | None:
        """The database is asked about jobs of an earlier life of the server, once for each."""
        if job_id not in self._submitters:
            self._submitters[job_id] = submitter(self._server.store.events(job_id=job_id, limit=1))
        return self._submitters[job_id]

    def answers(self) -> Mapping[type, object]:
        return {Callers: self._whose}

    def prepare(self, job: LiveJob, gang: Gang) -> Gang:
        return self._running.prepared(job, gang)

    def _missing(self) -> str | None:
        """Why no job runs as another user than the server's; None where they do."""
        engine = self._server.engine
        for one in engine.capabilities():
            if one.name == Sandbox.USER.capability:
                if os.geteuid() != 0:
                    return f"the server runs as {_own_name()}, not as root, and starts jobs as no other user"
                return None if one.available else one.detail
        return f"the engine {engine.name} starts jobs as users of its own choice"

    def capabilities(self) -> Sequence[Capability]:
        why = self._missing()
        if why is None:
            return (Capability(_SELF, True, "each is started as the user who submitted it: `shoal users add`"),)
        return (Capability(_SELF, False, why, _NEEDED),)

    def routers(self) -> Sequence[APIRouter]:
        from shoal.users.live.api import router_of

        return (router_of(),)


def _own_name() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"the user id {os.geteuid()}"
