"""Job arrays among the arguments of commands: `train`, `j-0sq4x7k2v9fm`, or some tasks: `train[0-9]`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from shoal.core import NotFound

if TYPE_CHECKING:
    from shoal.sdk import Client
    from shoal.sdk.models import ArrayChange, ArrayView, JobView

_PART = re.compile(r"(.+)\[([0-9,:-]+)\]")


def title(array: ArrayView) -> str:
    return f"{array.name}[{array.indices}]"


def find(client: Client, ref: str, tenant: str | None) -> ArrayView | None:
    """None if there is no array of this id or name."""
    try:
        return client.array(ref, tenant=tenant)
    except NotFound:
        return None


def change(client: Client, verb: str, ref: str, tenant: str | None, cause: str) -> ArrayChange | None:
    """None if there is no such array."""
    part = _PART.fullmatch(ref)
    name, tasks = part.groups() if part else (ref, None)
    array = find(client, name, tenant)
    if array is None:
        return None
    return client.change_array(array.id, verb, tasks=tasks, tenant=tenant, cause=cause)


def wait(client: Client, ref: str, tenant: str | None) -> Iterable[JobView] | None:
    """All tasks once they are over; None if there is no such array."""
    array = find(client, ref, tenant)
    if array is None:
        return None
    array = client.wait_array(array.id, tenant=tenant)
    found: list[JobView] = []
    before = None
    while True:
        page = client.jobs(name=f"{array.name}-*", tenant=tenant, limit=1000, since=array.submitted_at, before=before)
        found += [job for job in page.jobs if job.array_id == array.id]
        before = page.next
        if before is None:
            return found[::-1]


def states(array: ArrayView) -> str:
    return ", ".join(f"{count} {state}" for state, count in sorted(array.states.items()))


def show(array: ArrayView) -> None:
    from shoal.base.console import output

    output.facts(
        {
            "array": array.id,
            "name": array.name,
            "tenant": array.tenant,
            "tasks": f"{array.tasks}: {array.indices.partition('%')[0]}",
            "at a time": array.limit,
            "submitted": output.moment(array.submitted_at),
            "states": states(array),
        }
    )
