"""Cold starts, from nothing to the first answer, many times over: the model is unloaded and loaded through the
protocol's repository extension."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core import Clock, Invalid, NotFound, SystemClock, Unavailable
from shoal.measure.load import Encoding
from shoal.measure.load.oip import Client, prepare
from shoal.measure.statistics import ecdf, quantile
from shoal.measure.types import Floats, Target

_POLL_S = 0.005


@dataclass(frozen=True, slots=True, eq=False)
class ColdStarts:
    """Seconds, all of shape (repeats,): until the model was ready, of the first inference then, and of the second."""

    ready_s: Floats
    first_s: Floats
    warm_s: Floats

    def total_s(self) -> Floats:
        """Until the first answer."""
        return self.ready_s + self.first_s

    def as_json(self) -> dict[str, Any]:
        total = self.total_s()
        positions, shares = ecdf(total)
        columns = {"ready_s": self.ready_s, "first_s": self.first_s, "warm_s": self.warm_s, "total_s": total}
        return {
            "repeats": len(total),
            **{
                name: {f"p{100 * p:g}": quantile(each, p).as_json() for p in (0.5, 0.95)}
                for name, each in columns.items()
            },
            "ecdf": {"total_s": positions.tolist(), "share": shares.tolist()},
        }


async def cold_starts(
    target: Target,
    *,
    repeats: int,
    timeout_s: float = 120.0,
    encoding: Encoding = Encoding.AUTO,
    clock: Clock | None = None,
    on_start: Callable[[int], None] | None = None,
) -> ColdStarts:
    """Make the model cold `repeats` times. `on_start` is told each one's number.

    The page cache stays warm, so a first load after the machine's own start takes longer. Raises what `Client` does,
    and Unavailable if the model is not ready `timeout_s` after it was started.
    """
    if repeats < 1:
        raise Invalid(f"{repeats} cold starts tell nothing", where="repeats")
    clock = clock or SystemClock()
    prepared = await prepare(target, encoding=encoding, timeout_s=timeout_s)
    rows = []
    for number in range(repeats):
        async with Client(target.url, token=target.token, timeout_s=timeout_s) as client:
            await _unload(client, target)
            began_s = clock.monotonic()
            await client.load(target.model)
            await _ready(client, target, began_s + timeout_s, clock)
            moments = [began_s, clock.monotonic()]
            for _ in range(2):  # over the connection that is open already, so that neither answer pays for one
                await client.infer(prepared.requests[0])
                moments.append(clock.monotonic())
        rows.append(np.diff(moments))
        if on_start is not None:
            on_start(number + 1)
    ready, first, warm = np.array(rows).T
    return ColdStarts(ready, first, warm)


async def _unload(client: Client, target: Target) -> None:
    """Raises Unavailable where the server has the model, but no repository extension to unload it by."""
    try:
        await client.unload(target.model)
    except NotFound:
        if not await client.model_ready(target.model, target.version):
            raise
        raise Unavailable(
            "the server cannot unload models: it lacks the repository extension (POST /v2/repository/...)",
            where=target.url,
            hint="cold starts are measured on servers that load and unload models, such as shoal serve or Triton with "
            "--model-control-mode=explicit",
        ) from None


async def _ready(client: Client, target: Target, deadline_s: float, clock: Clock) -> None:
    while not await client.model_ready(target.model, target.version):
        if clock.monotonic() > deadline_s:
            raise Unavailable(f"the model {target.model!r} did not become ready", where=target.url)
        await asyncio.sleep(_POLL_S)
