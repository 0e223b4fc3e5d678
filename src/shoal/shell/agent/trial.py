"""Commands are tried near their data on the first MiB of it, where the plan hangs on how much they write."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.shell.agent.connection import Connection
from shoal.shell.cores import input_of
from shoal.shell.plan import ratio_key
from shoal.shell.proxy import TRIES_COMMANDS
from shoal.shell.stages import Stage, absolute, environment_for

LIMIT_S = 1.0
"""Beside the round trip: a command that needs longer for so little is planned by what is expected of it."""


async def tried(stages: Sequence[Stage], connection: Connection, keys: Mapping[str, float]) -> Mapping[str, float]:
    """The ratios of those `keys` that the trial tells, by running the stages from the first on that may run there."""
    site = connection.site.name
    own = list[Stage]()
    for one in stages:
        if one.match is None or one.match.changes or site not in one.sites:
            break
        own.append(one)
    while own and ratio_key(own[-1]) not in keys:
        own.pop()
    feeds = input_of(own[0], _reads(own[0])) if own else []
    welcome = connection.welcome
    if not feeds or not welcome.get("namespaces") or welcome.get("protocol", 1) < TRIES_COMMANDS:
        return {}
    told = [_told(one, connection, bare=at == 0) for at, one in enumerate(own)]
    try:
        async with asyncio.timeout(LIMIT_S + 2 * connection.round_trip_s):
            counts = await connection.try_out(told, feeds)
    except TimeoutError:
        return {}
    pairs = zip(counts, counts[1:], own, strict=False)
    return {ratio_key(one): after / before for before, after, one in pairs if before and ratio_key(one) in keys}


def _reads(one: Stage) -> list[str]:
    return [absolute(path, one.call.cwd) for path in one.match.reads] if one.match is not None else []


def _told(one: Stage, connection: Connection, *, bare: bool) -> dict[str, Any]:
    call, found = one.call, one.match
    assert found is not None
    words = [word for at, word in enumerate(call.argv) if not (bare and at in found.inputs)]
    cwd = call.cwd if connection.site.holds(call.cwd) else next(iter(connection.site.mounts))
    reads = _reads(one)
    return {"path": call.path, "argv": words, "cwd": cwd, "env": environment_for(call, found), "umask": call.umask,
            "reads": reads, "writes": [], "stdin": {}}  # fmt: skip
