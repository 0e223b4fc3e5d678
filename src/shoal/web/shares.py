"""Shares over time: what each tenant was due of the accelerators by its weight, and what it held."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from shoal.admission import Snapshot
from shoal.extension.history import Histories
from shoal.store import Store
from shoal.web.tables import shares as table

if TYPE_CHECKING:
    from shoal.web.models import ShareSample

MOST = 100
"""Tenants of one sample: those with the greatest shares."""
SHOWN = 6
"""Tenants of one picture."""


class Share(NamedTuple):
    """Parts of all accelerators that tenants hold. A tenant that neither holds any nor waits is due nothing."""

    due: float
    received: float


Shares = Mapping[str, Share]
_NOTHING = Share(0.0, 0.0)
_ALL = "all"


def shares_of(snapshot: Snapshot) -> Shares:
    """Of this moment, by tenant. Pure."""
    held = {name: sum(state.used.accelerators.values()) for name, state in snapshot.tenants.items()}
    waiting = {name for name, queue in snapshot.pending.by_tenant.items() if any(True for _ in queue)}
    present = {name: state.tenant.weight for name, state in snapshot.tenants.items() if held[name] or name in waiting}
    weights, whole = sum(present.values()), sum(held.values())
    found = {
        name: Share(weight / weights if weights else 0.0, held[name] / whole if whole else 0.0)
        for name, weight in present.items()
    }
    if len(found) <= MOST:
        return found
    first = sorted(found, key=lambda name: (-max(found[name]), name))[:MOST]
    return {name: found[name] for name in first}


def mean(samples: Sequence[Shares]) -> Shares:
    """Several as one."""
    names = {name for one in samples for name in one}
    found = {}
    for name in names:
        shares = [one.get(name, _NOTHING) for one in samples]
        due, received = (sum(values) / len(samples) for values in zip(*shares, strict=True))
        found[name] = Share(due, received)
    return found


class ShareHistory:
    """The shares of all tenants: bounded, and kept over restarts."""

    def __init__(self, store: Store) -> None:
        self._kept: Histories[Shares] = Histories(store, table, mean, pack=dict, unpack=_unpack)

    def load(self) -> None:
        """What the last server sampled. Blocks."""
        self._kept.load()

    async def write(self) -> None:
        await self._kept.write()

    async def close(self) -> None:
        await self._kept.close()

    def sample(self, now: float, shares: Shares) -> None:
        self._kept.add(_ALL, now, shares)

    def samples(self, tenant: str | None) -> dict[str, list[ShareSample]]:
        """Oldest first, of this tenant; None: of those with the greatest shares."""
        from shoal.web.models import ShareSample

        points = self._kept.points(_ALL)
        names = [tenant] if tenant is not None else _greatest(mean([shares for _, shares in points])) if points else []
        return {
            name: [ShareSample(at=at, **shares.get(name, _NOTHING)._asdict()) for at, shares in points]
            for name in names
            if any(name in shares for _, shares in points)
        }


def _unpack(value: dict[str, list[float]]) -> Shares:
    return {name: Share(*map(float, one)) for name, one in value.items()}


def _greatest(shares: Shares) -> list[str]:
    return sorted(sorted(shares, key=lambda name: (-max(shares[name]), name))[:SHOWN])
