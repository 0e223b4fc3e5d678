"""Cost of a mix of loads: servers of their own, or shared ones.

Perseus' model (LeMay et al., IC2E '20): a server has a price per hour and takes a rate of requests within the
objective, so a request costs price / rate. Tenants that share take a sum S of normalised throughputs of one server,
where they alone would need S servers: sharing saves 1 - 1/S.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from shoal.core import Invalid, Money
from shoal.measure.statistics import Estimate


@dataclass(frozen=True, slots=True)
class MixCost:
    """What a wanted mix costs. `dedicated` and `shared` are servers as if they could be cut, the `whole_` ones as they
    must be rented; prices per hour follow from them."""

    dedicated: Estimate
    shared: Estimate
    whole_dedicated: int
    whole_shared: int
    per_server_hour: Money

    @property
    def saving(self) -> Estimate:
        """Of servers that could be cut: 1 - 1/total."""
        return Estimate(
            1 - self.shared.value / self.dedicated.value,
            1 - self.shared.high / self.dedicated.value,
            1 - self.shared.low / self.dedicated.value,
            self.shared.confidence,
        )

    @property
    def dedicated_per_hour(self) -> Money:
        return self.per_server_hour * self.whole_dedicated

    @property
    def shared_per_hour(self) -> Money:
        return self.per_server_hour * self.whole_shared

    def as_json(self) -> dict[str, Any]:
        return {
            "servers": {"dedicated": self.dedicated.as_json(), "shared": self.shared.as_json()},
            "whole_servers": {"dedicated": self.whole_dedicated, "shared": self.whole_shared},
            "per_hour_micro_usd": {
                "server": self.per_server_hour.micro_usd,
                "dedicated": self.dedicated_per_hour.micro_usd,
                "shared": self.shared_per_hour.micro_usd,
            },
            "saving": self.saving.as_json(),
        }


def mix_cost(
    rates_per_s: Mapping[str, float], dedicated_per_s: Mapping[str, float], total: Estimate, per_server_hour: Money
) -> MixCost:
    """Servers for these rates, apart and together. `total` is the sum of normalised throughputs that one server takes
    at this mix (`Frontier.total`)."""
    parts = {name: rate / dedicated_per_s[name] for name, rate in rates_per_s.items() if rate > 0}
    if not parts or not total.value > 0:
        raise Invalid("a mix needs at least one rate above 0, and a server that takes some of it", where="rates")
    alone = math.fsum(parts.values())
    shared = Estimate(
        alone / total.value, alone / total.high, alone / total.low if total.low > 0 else math.inf, total.confidence
    )
    return MixCost(
        dedicated=Estimate(alone, alone, alone, total.confidence),
        shared=shared,
        whole_dedicated=sum(_whole(part) for part in parts.values()),
        whole_shared=_whole(shared.value),
        per_server_hour=per_server_hour,
    )


def _whole(servers: float) -> int:
    return max(1, math.ceil(servers - 1e-9))
