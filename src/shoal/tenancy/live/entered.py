"""The pool of a plane whose running ranks can be reached into: for terminals, commands and ports of its own jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from socket import socket

from shoal.core import NotFound, ShoalError, Unavailable
from shoal.engine import Beside, Enterable
from shoal.tenancy.live.shared_engine import SharedEngine
from shoal.tenancy.translate import cleared


class EnteredEngine(SharedEngine):
    """See `shoal.engine.protocol.Enterable`. A plane names its own gangs: those of others it cannot say."""

    async def start_beside(self, name: str, rank: int, process: Beside) -> None:
        with self._entering(name) as (engine, there):
            await engine.start_beside(there, rank, process)

    async def why_not_beside(self, name: str, rank: int, process: str) -> str:
        with self._entering(name) as (engine, there):
            return cleared(await engine.why_not_beside(there, rank, process), None, str, paths=True)

    async def reach_socket(self, name: str, rank: int, file: str) -> socket:
        with self._entering(name) as (engine, there):
            return await engine.reach_socket(there, rank, file)

    async def reach_port(self, name: str, rank: int, port: int) -> socket:
        with self._entering(name) as (engine, there):
            return await engine.reach_port(there, rank, port)

    @contextmanager
    def _entering(self, name: str) -> Iterator[tuple[Enterable, str]]:
        """The shared engine, and what the gang is called there. What that says of it is said of the plane's."""
        engine, there = self._server.engine, self._running(name)
        if not isinstance(engine, Enterable):
            raise Unavailable("the shared pool lets none into running jobs", where=name)
        if there is None:
            raise NotFound("its processes do not run now", where=name)
        try:
            yield engine, there
        except ShoalError as error:
            error.what = error.what.replace(there, name)
            error.where = error.where.replace(there, name) if error.where else None
            raise
