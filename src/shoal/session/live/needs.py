"""The extension as the routes of this component see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from shoal.base.http.tunnel import Tunnel
    from shoal.contract.principal import Principal
    from shoal.contract.records import JobRecord
    from shoal.session.models import ExecRequest, OpenSession


class Entrance:
    """What the routes need of the extension. Each raises NotFound for another tenant's job."""

    def job(self, who: Principal, job_id: str) -> JobRecord:
        raise NotImplementedError

    async def execute(self, who: Principal, job_id: str, asked: ExecRequest) -> str:
        """Start a command beside a rank; the name of its session."""
        raise NotImplementedError

    async def attach(
        self, who: Principal, job_id: str, session: str, rank: int, wait_s: float, kind: type[Tunnel]
    ) -> Tunnel:  # fmt: skip
        raise NotImplementedError

    async def opened(
        self, tenant: str | None, job: str | None, may: Callable[[JobRecord], Awaitable[bool]]
    ) -> Sequence[OpenSession]:
        """The sessions that are open in jobs that `may` be entered: a tenant's, or of all (None)."""
        raise NotImplementedError

    async def end(self, who: Principal, job_id: str, session: str, rank: int) -> None:
        raise NotImplementedError

    async def forward(self, who: Principal, job_id: str, port: int, rank: int) -> Tunnel:
        raise NotImplementedError
