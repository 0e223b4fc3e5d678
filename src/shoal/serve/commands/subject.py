"""A service as what `shoal explain` and `shoal events` are about."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from shoal.base.console import output
from shoal.base.console.command import CommandContext
from shoal.core import NotFound
from shoal.serve.models import ServiceExplanationView


@dataclass(frozen=True, slots=True)
class ServiceSubject:
    client: Any
    id: str
    tenant: str | None

    def explain(self, context: CommandContext) -> None:
        why = self.client.services.explain(self.id)
        context.show(why, lambda: _show(why))

    def events(self, *, after: int | None, follow: bool) -> Iterator[Any]:
        found: Iterator[Any] = self.client.services.events(self.id, tenant=self.tenant, after=after, follow=follow)
        return found


def find(client: Any, ref: str, tenant: str | None) -> ServiceSubject | None:
    """A service that is over gives way to a job."""
    try:
        service = client.services.get(ref, tenant=tenant)
    except NotFound:
        return None
    if service.state.terminal and service.id != ref:
        try:
            client.job(ref, tenant=tenant)
        except NotFound:
            return ServiceSubject(client, service.id, tenant)
        return None
    return ServiceSubject(client, service.id, tenant)


def _show(found: ServiceExplanationView) -> None:
    print(f"{found.name} is {found.summary}")
    for cause in found.causes:
        line = output.styled(f"{cause.subject:<24}", "bold yellow")
        line.append(f"  {cause.reason.text}", style="default")
        if cause.change:
            line.append(f"\n{'':<26}to change it: {cause.change}", style="dim")
        output.console().print(line, soft_wrap=True)
