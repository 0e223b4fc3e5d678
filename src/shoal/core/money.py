"""Exact money: integer micro-dollars, so that sums of parts equal the bill."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Self

_MICRO = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, order=True)
class Money:
    micro_usd: int = 0

    @classmethod
    def usd(cls, amount: str | int | float | Decimal) -> Self:
        """Rounds half-even to a millionth of a dollar."""
        return cls(int((Decimal(str(amount)) * _MICRO).to_integral_value(ROUND_HALF_EVEN)))

    def __add__(self, other: Money) -> Money:
        return Money(self.micro_usd + other.micro_usd)

    def __sub__(self, other: Money) -> Money:
        return Money(self.micro_usd - other.micro_usd)

    def __neg__(self) -> Money:
        return Money(-self.micro_usd)

    def __mul__(self, factor: int | float | Decimal) -> Money:
        return Money(int((Decimal(self.micro_usd) * Decimal(str(factor))).to_integral_value(ROUND_HALF_EVEN)))

    __rmul__ = __mul__

    def __str__(self) -> str:
        return f"${Decimal(self.micro_usd) / _MICRO:.6f}"

    def split(self, weights: tuple[int, ...]) -> tuple[Money, ...]:
        """Shares by weight that sum exactly to the whole (largest remainder first).

        Raises ValueError when there are no weights, one is negative, or all are zero.
        """
        total = sum(weights)
        if not weights or total <= 0 or min(weights) < 0:
            raise ValueError(f"weights must be non-negative and not all zero: {weights}")
        parts = [divmod(self.micro_usd * w, total) for w in weights]
        left = self.micro_usd - sum(q for q, _ in parts)
        by_remainder = sorted(range(len(parts)), key=lambda i: -parts[i][1])
        extra = set(by_remainder[:left])
        return tuple(Money(q + (i in extra)) for i, (q, _) in enumerate(parts))
