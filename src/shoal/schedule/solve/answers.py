"""Answers of all rows to prices: how much they use together, and what a little more of each one's rate would cost.

A search that has been through a like problem knows several prices to try. On a small market nearly all of the time
goes into calling numpy, however few rows there are, so that the rows are laid out once for each of the prices and
answer to all of them at once. A large market is asked piece by piece, so that the temporaries of each stay in a
processor's cache.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from shoal.schedule.solve.market import BLOCK, Market, Spread, repeated
from shoal.schedule.solve.response import Frontier, respond, volunteer
from shoal.schedule.types import Array

Shares = Callable[[int], Array]


class Answers(NamedTuple):
    """To prices (p, r): `usage` (p, r) of the limits by all rows together, `paid` (p, m) what one more unit of rate of
    all of a row's copies costs, and `shares(at)` (n, m) for one of the prices, worked out when asked for."""

    usage: Array
    paid: Array
    shares: Shares


class Offers(NamedTuple):
    """To prices (p, r): what rows do by themselves, its `worth` (p,), `usage` (p, r) and `shares(at)` (n, m)."""

    worth: Array
    usage: Array
    shares: Shares


def answers(market: Market, prices: Array, demand: Array, *, again: bool = False) -> Answers:
    """The cheapest ways to the demanded rates (m,), at each of the prices (p, r). With `again`, the same prices will be
    asked about other demands."""
    count = len(prices)
    if count * market.rows > BLOCK:
        found = [_answer(market, each, demand) for each in prices]
        usage, paid = (np.stack(part) for part in list(zip(*found, strict=True))[:2])
        return Answers(usage, paid, lambda at: market.shares(respond(market, market.cost(prices[at]), demand)))
    last: _Asked | None = market.asked[-1] if market.asked else None
    if last is not None and not np.array_equal(last.prices, prices):
        last = None
    if again and last is None:
        last = _Asked(prices, Frontier(market.times(count), market.costs(prices)))
        market.asked[:] = [last]
    if last is None:
        return _answers(market, respond(market.times(count), market.costs(prices), repeated(demand, count)), count)
    if last.answer is None or not np.array_equal(last.demand, demand):
        last.demand, last.answer = demand, _answers(market, last.frontier.respond(repeated(demand, count)), count)
    return last.answer


def _answers(market: Market, spread: Spread, count: int) -> Answers:
    paid = (spread.slope * repeated(market.copies, count)).reshape(count, -1)
    return Answers(market.usages(spread, count), paid, partial(_shares, market, spread))


@dataclass
class _Asked:
    """What a market was asked last that will be asked again; in the end the very same, for the shares."""

    prices: Array
    frontier: Frontier
    demand: Array = field(default_factory=lambda: np.empty(0))
    answer: Answers | None = None


def offers(market: Market, prices: Array, value: Array, floor: Array) -> Offers:
    """What rows do by themselves where running is worth `value` (n, m) and costs the prices (p, r), at each of them; at
    least the rate `floor` (m,) is demanded."""
    count, forced = len(prices), bool(floor.any())
    if count * market.rows > BLOCK:
        found = [_offer(market, each, value, floor, forced) for each in prices]
        worth, usage = (np.array(part) for part in zip(*found, strict=True))
        return Offers(worth, usage, lambda at: market.shares(respond(market, market.cost(prices[at]) - value, floor)))
    values = repeated(value, count)
    net = market.costs(prices) - values
    if forced:
        several = market.times(count)
        spread = respond(several, net, repeated(floor, count))
        got = (values * several.shares(spread)).sum(axis=0)
    else:
        spread = volunteer(net)
        rows = len(spread.second)
        got = values.take(spread.second * rows + np.arange(rows)) * spread.share
    worth = (got.reshape(count, -1) * market.copies).sum(axis=1)
    return Offers(worth, market.usages(spread, count), partial(_shares, market, spread))


def _answer(market: Market, prices: Array, demand: Array) -> tuple[Array, Array]:
    usage, paid = np.zeros_like(market.limits), []
    for cut, block in market.blocks:
        spread = respond(block, block.cost(prices), demand[cut])
        usage += block.usage(spread)
        paid.append(spread.slope * block.copies)
    return usage, np.concatenate(paid)


def _offer(market: Market, prices: Array, value: Array, floor: Array, forced: bool) -> tuple[float, Array]:
    usage, worth = np.zeros_like(market.limits), 0.0
    for cut, block in market.blocks:
        net = block.cost(prices) - value[:, cut]
        spread = respond(block, net, floor[cut]) if forced else volunteer(net)
        worth += float(np.einsum("jm,jm,m->", value[:, cut], block.shares(spread), block.copies))
        usage += block.usage(spread)
    return worth, usage


def _shares(market: Market, spread: Spread, at: int) -> Array:
    cut = slice(at * market.rows, (at + 1) * market.rows)
    return market.shares(Spread(spread.first[cut], spread.second[cut], spread.share[cut], spread.slope[cut]))
