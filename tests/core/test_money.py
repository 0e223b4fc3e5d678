"""Money is exact: parts sum to the whole, whatever is split, added or rounded."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Money
from tests.core.strategies import money

weights = st.lists(st.integers(0, 10**6), min_size=1, max_size=20).filter(any).map(tuple)


@given(money, money, money)
def test_sums_are_exact(a: Money, b: Money, c: Money) -> None:
    assert (a + b) + c == a + (b + c)
    assert a + b - b == a
    assert a + -a == Money()
    assert (a < b) == (a.micro_usd < b.micro_usd)


@given(money, weights)
def test_shares_sum_to_the_whole_and_are_fair_to_a_millionth(whole: Money, by: tuple[int, ...]) -> None:
    parts = whole.split(by)
    assert sum(parts, Money()) == whole
    for part, weight in zip(parts, by, strict=True):
        assert abs(part.micro_usd - Fraction(whole.micro_usd * weight, sum(by))) < 1
        assert weight or part == Money()


@given(money, st.integers(1, 50))
def test_equal_shares_differ_by_at_most_a_millionth(whole: Money, shares: int) -> None:
    parts = [part.micro_usd for part in whole.split((1,) * shares)]
    assert max(parts) - min(parts) <= 1


@pytest.mark.parametrize("by", [(), (0,), (0, 0), (1, -1), (-1, 3)])
def test_senseless_weights_are_refused(by: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="weights must be non-negative and not all zero"):
        Money(100).split(by)


@given(st.decimals(-(10**9), 10**9, places=6))
def test_a_millionth_of_a_dollar_is_kept(amount: Decimal) -> None:
    assert Money.usd(amount) == Money.usd(str(amount))
    assert Money.usd(amount).micro_usd == amount * 1_000_000
    assert Decimal(str(Money.usd(amount)).removeprefix("$")) == amount


@pytest.mark.parametrize(
    ("amount", "micro_usd"), [("0.0000005", 0), ("0.0000015", 2), ("-0.0000005", 0), (0.1, 100_000), (3, 3_000_000)]
)
def test_halves_round_to_even(amount: str | float, micro_usd: int) -> None:
    assert Money.usd(amount).micro_usd == micro_usd


@given(money, st.integers(-1000, 1000))
def test_whole_factors_are_exact_from_both_sides(a: Money, factor: int) -> None:
    assert a * factor == factor * a == Money(a.micro_usd * factor)


def test_money_reads_as_dollars() -> None:
    assert str(Money.usd("12.5")) == "$12.500000"
