"""What the gateway of a server is given."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.base.http import Limits
from shoal.core import Money
from shoal.serve.contract import FREE, Address


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Settings of the gateway. `http` and `grpc`: where it listens (port 0: any free one, the same again for the same
    home). `slots`: the compute slots it shares out (None: one for each core). The price of the machine, and the tenant
    charged for requests without a token (None: they are refused)."""

    http: Address = field(default_factory=Address)
    grpc: Address = field(default_factory=Address)
    slots: int | None = None
    price_per_hour: Money = FREE
    anonymous: str | None = None
    limits: Limits = field(default_factory=Limits)
