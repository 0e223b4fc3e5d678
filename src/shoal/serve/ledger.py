"""Who pays what of a server: every interval's bill split into use, overhead and idle time, exact to the last unit.

Use is the compute time of a tenant's answered requests, overhead what was spent for it without an answer (loading,
warm-up, failed executions). What nobody used is shared by what each tenant has reserved. The tenants' parts of an
interval add up to its bill, and the bills to the price of the whole time: rounding never loses or invents money.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any

from shoal.core import Invalid, Money

OPERATOR = ""
"""Who pays for idle time while nobody has reserved anything."""

_NS = 1_000_000_000
_NOTHING = Money(0)


@dataclass(frozen=True, slots=True)
class Share:
    """A tenant's part of one interval. Times are in slot-seconds: one compute slot for one second."""

    tenant: str
    use_s: float = 0.0
    overhead_s: float = 0.0
    use: Money = _NOTHING
    overhead: Money = _NOTHING
    idle: Money = _NOTHING

    @property
    def cost(self) -> Money:
        return self.use + self.overhead + self.idle


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """One interval, from `start` to `end` in Unix seconds. The shares' costs sum to `bill`."""

    start: float
    end: float
    slots: int
    bill: Money
    shares: tuple[Share, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "start": self.start,
            "end": self.end,
            "slots": self.slots,
            "bill_micro_usd": self.bill.micro_usd,
            "shares": [
                {
                    "tenant": share.tenant,
                    "use_s": round(share.use_s, 9),
                    "overhead_s": round(share.overhead_s, 9),
                    "use_micro_usd": share.use.micro_usd,
                    "overhead_micro_usd": share.overhead.micro_usd,
                    "idle_micro_usd": share.idle.micro_usd,
                }
                for share in self.shares
            ],
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> LedgerRecord:
        """What `as_json` gave. Raises KeyError, TypeError or ValueError for anything else."""
        shares = tuple(
            Share(
                str(one["tenant"]), float(one["use_s"]), float(one["overhead_s"]), Money(one["use_micro_usd"]),
                Money(one["overhead_micro_usd"]), Money(one["idle_micro_usd"]),
            )
            for one in stored["shares"]
        )  # fmt: skip
        bill = Money(int(stored["bill_micro_usd"]))
        return cls(float(stored["start"]), float(stored["end"]), int(stored["slots"]), bill, shares)


def read_ledger(file: Path) -> Iterator[LedgerRecord]:
    """What a gateway wrote down, in order. Lines that cannot be read, torn when it was killed, are left out."""
    with file.open("rb") as lines:
        for line in lines:
            try:
                yield LedgerRecord.from_json(json.loads(line))
            except (KeyError, TypeError, ValueError):
                continue


@dataclass(slots=True)
class LedgerBook:
    """Counts during an interval, and closes it. `price_per_hour` is what all `slots` together cost."""

    price_per_hour: Money
    slots: int
    start: float
    reserved: Mapping[str, int] = field(default_factory=dict)
    """How idle time is shared, by tenant: any whole numbers, such as milli-cores or weights times a thousand."""
    opened: float = field(init=False)
    """When the present interval began, in Unix seconds as `start`."""
    _billed: Money = field(default=Money(0), init=False)
    _use_s: dict[str, float] = field(default_factory=dict, init=False)
    _overhead_s: dict[str, float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        if self.slots < 1:
            raise Invalid(f"a server has at least one slot, not {self.slots}", where="slots")
        self.opened = self.start

    def use(self, tenant: str, slot_s: float) -> None:
        self._use_s[tenant] = self._use_s.get(tenant, 0.0) + max(0.0, slot_s)

    def overhead(self, tenant: str, slot_s: float) -> None:
        self._overhead_s[tenant] = self._overhead_s.get(tenant, 0.0) + max(0.0, slot_s)

    def close(self, now: float) -> LedgerRecord:
        """End the interval at `now`, and begin the next."""
        until = max(now, self.opened)
        total = self.price_per_hour * ((until - self.start) / 3600)
        bill, self._billed = total - self._billed, total
        record = LedgerRecord(self.opened, until, self.slots, bill, self._shares(bill, until - self.opened))
        self.opened = until
        self._use_s, self._overhead_s = {}, {}
        return record

    def _shares(self, bill: Money, seconds: float) -> tuple[Share, ...]:
        tenants = sorted({*self._use_s, *self._overhead_s, *self.reserved})
        use = [int(self._use_s.get(tenant, 0.0) * _NS) for tenant in tenants]
        overhead = [int(self._overhead_s.get(tenant, 0.0) * _NS) for tenant in tenants]
        idle = max(0, int(seconds * self.slots * _NS) - sum(use) - sum(overhead))
        weights = (*use, *overhead, idle)
        parts = bill.split(weights) if sum(weights) else (*[Money(0)] * (len(weights) - 1), bill)
        waste = self._idle_parts(tenants, parts[-1])
        count = len(tenants)
        shares = [
            Share(
                tenant, self._use_s.get(tenant, 0.0), self._overhead_s.get(tenant, 0.0),
                parts[at], parts[count + at], waste.get(tenant, Money(0)),
            )
            for at, tenant in enumerate(tenants)
        ]  # fmt: skip
        if OPERATOR in waste and OPERATOR not in tenants:
            shares.append(Share(OPERATOR, idle=waste[OPERATOR]))
        return tuple(shares)

    def _idle_parts(self, tenants: Iterable[str], idle: Money) -> dict[str, Money]:
        reserved = {tenant: weight for tenant in tenants if (weight := self.reserved.get(tenant, 0)) > 0}
        if not reserved:
            return {OPERATOR: idle}
        return dict(zip(reserved, idle.split(tuple(reserved.values())), strict=True))


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What the recorded work cost shared, and would have cost on `servers` of its own for each tenant."""

    shared: Money
    dedicated: Mapping[str, Money]
    servers: Mapping[str, int]

    @property
    def saving(self) -> float:
        """Part of the dedicated cost that sharing saves; negative where it costs more."""
        total = sum(cost.micro_usd for cost in self.dedicated.values())
        return 1 - self.shared.micro_usd / total if total else 0.0


def what_if_dedicated(records: Iterable[LedgerRecord], price_per_hour: Money, *, most_busy: float = 0.7) -> WhatIf:
    """Had every tenant rented servers of the recorded kind for itself: as many as its busiest interval needs at a
    load of `most_busy`, and at least one, for the whole time."""
    if not 0 < most_busy <= 1:
        raise Invalid(f"a load is more than 0 and at most 1, not {most_busy}", where="most_busy")
    shared, seconds = Money(0), 0.0
    peaks: dict[str, float] = {}
    for record in records:
        shared += record.bill
        length = record.end - record.start
        seconds += length
        for share in record.shares:
            if share.tenant != OPERATOR:
                load = (share.use_s + share.overhead_s) / (record.slots * length) if length else 0.0
                peaks[share.tenant] = max(peaks.get(share.tenant, 0.0), load)
    servers = {tenant: max(1, ceil(peak / most_busy)) for tenant, peak in peaks.items()}
    alone = price_per_hour * (seconds / 3600)
    return WhatIf(shared, {tenant: alone * count for tenant, count in servers.items()}, servers)
