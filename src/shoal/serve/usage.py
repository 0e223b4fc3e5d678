"""Each tenant's part of a server's cost: per interval a bill of use, overhead and idle time, exact to the last unit.

Use is the compute time of a tenant's answered requests, overhead what was spent for it without an answer (loading,
warm-up, failed executions). Unused time is shared by what each tenant has reserved. The tenants' parts of an
interval add up to its bill, and the bills to the price of the whole time: rounding never loses or invents money.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.core import Invalid, Money

OPERATOR = ""
"""Pays for idle time while no tenant has reserved any."""

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
class UsageRecord:
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


@dataclass(slots=True)
class OpenInterval:
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

    def close(self, now: float) -> UsageRecord:
        """End the interval at `now`, and begin the next."""
        until = max(now, self.opened)
        total = self.price_per_hour * ((until - self.start) / 3600)
        bill, self._billed = total - self._billed, total
        record = UsageRecord(self.opened, until, self.slots, bill, self._shares(bill, until - self.opened))
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
