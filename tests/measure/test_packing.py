"""Packers: valid, never worse than squishy, exact against brute force over all set partitions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.core import Money
from shoal.measure.planning.packing import Bin, Members, Oracle, Packing, squishy
from shoal.measure.planning.partition import least_cost, pack
from shoal.measure.planning.profiles import Demand, ExecutionTime, ModelProfile, ServerType
from shoal.measure.planning.queueing import Queueing

GIB = 2**30
SMALL = ServerType("small", Money.usd("0.50"), 1, 8 * GIB)
BIG = ServerType("big", Money.usd("1.40"), 4, 16 * GIB)


@st.composite
def pieces(draw: st.DrawFn, most: int = 6) -> list[Demand]:
    found = []
    for at in range(draw(st.integers(1, most))):
        seconds = draw(st.sampled_from([0.002, 0.005, 0.02]))
        memory = draw(st.sampled_from([1, 2, 4])) * GIB
        model = ModelProfile(f"m{at}", (ExecutionTime.constant(seconds),), memory)
        load = draw(st.sampled_from([0.05, 0.1, 0.2, 0.4]))
        found.append(Demand(model, load / seconds, 0.02 + seconds * draw(st.sampled_from([4.0, 10.0]))))
    return found


@st.composite
def types(draw: st.DrawFn) -> list[ServerType]:
    limit = draw(st.sampled_from([None, None, 1, 2]))
    limited = ServerType("few", Money.usd("0.45"), 1, 8 * GIB, limit=limit or 1)
    return draw(st.sampled_from([[SMALL], [SMALL, BIG], [SMALL, BIG, limited], [limited], [limited, BIG]]))


def partitions(items: Sequence[int]) -> Iterator[list[Members]]:
    if not items:
        yield []
        return
    first, *rest = items
    for smaller in partitions(rest):
        yield [Members({first}), *smaller]
        for at, one in enumerate(smaller):
            yield [*smaller[:at], one | {first}, *smaller[at + 1 :]]


def cheapest(oracle: Oracle) -> tuple[int, Money]:
    """Brute force: unplaced pieces and cost, the best of all choices of pieces, partitions and types."""
    count = len(oracle.pieces)
    best = (count, Money())
    for mask in range(1 << count):
        chosen = [at for at in range(count) if mask >> at & 1]
        for groups in partitions(chosen):
            costs = [(Money(), Counter[str]())]
            for group in groups:
                fitting = [one for one in oracle.servers if oracle.holds(one, group)]
                costs = [
                    (cost + one.per_hour, used + Counter([one.name]))
                    for cost, used in costs
                    for one in fitting
                    if one.limit is None or used[one.name] < one.limit
                ]
            for cost, _ in costs:
                best = min(best, (count - len(chosen), cost))
    return best


def assert_valid(oracle: Oracle, packing: Packing) -> None:
    placed = Counter(at for one in packing.bins for at in one.members)
    assert set(placed.values()) <= {1}
    assert set(placed) | packing.unplaced == set(range(len(oracle.pieces)))
    assert not set(placed) & packing.unplaced
    used = Counter(one.server for one in packing.bins)
    for server, count in used.items():
        assert server.limit is None or count <= server.limit
    for one in packing.bins:
        assert oracle.holds(one.server, one.members)
        assert sum(oracle.pieces[at].profile.memory_bytes for at in one.members) <= one.server.memory_bytes
        assert all(oracle.pieces[at].profile.slots <= one.server.slots for at in one.members)
    assert packing.per_hour == sum((one.server.per_hour for one in packing.bins), Money())


@given(pieces(most=5), types())
@settings(max_examples=40, deadline=None)
def test_packing_is_as_cheap_as_brute_force(demands: list[Demand], servers: list[ServerType]) -> None:
    oracle = Oracle(demands, servers, Queueing())
    found = pack(oracle)
    assert_valid(oracle, found)
    assert found.optimal
    assert (len(found.unplaced), found.per_hour) == cheapest(oracle)
    if not found.unplaced:
        assert least_cost(oracle.pieces, oracle.servers, Queueing()) <= found.per_hour


@given(pieces(most=8), types(), st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_generated_columns_are_never_worse_than_squishy(
    demands: list[Demand], servers: list[ServerType], seed: int
) -> None:
    oracle = Oracle(demands, servers, Queueing())
    baseline = squishy(oracle)
    assert_valid(oracle, baseline)
    found = pack(oracle, columns=1, rounds=4, seed=seed)
    assert_valid(oracle, found)
    assert (len(found.unplaced), found.per_hour) <= (len(baseline.unplaced), baseline.per_hour)
    exact = pack(oracle)
    assert (len(exact.unplaced), exact.per_hour) <= (len(found.unplaced), found.per_hour)


def test_squishy_can_be_beaten() -> None:
    """Sizes of 4, 3, 3, 2, 2, 2 in bins of 8: squishy puts 4 and 3 together and needs a third bin."""

    def one(name: str, memory: int) -> Demand:
        return Demand(ModelProfile(name, (ExecutionTime.constant(0.001),), memory * GIB), 10, 0.5)

    sizes = [4, 3, 3, 2, 2, 2]
    oracle = Oracle([one(f"m{at}", size) for at, size in enumerate(sizes)], [SMALL], Queueing())
    assert len(squishy(oracle).bins) == 3
    assert len(pack(oracle).bins) == 2


def test_a_search_ends_when_enough_was_asked() -> None:
    demands = [Demand(ModelProfile(f"m{at}", (ExecutionTime.constant(0.001),), GIB), 10, 0.5) for at in range(16)]
    oracle = Oracle(demands, [SMALL], Queueing(), most=300)
    found = pack(oracle)
    assert_valid(oracle, found)
    assert oracle.asked < 600
    assert not found.optimal


def test_what_is_forbidden_is_not_used_nor_what_includes_it() -> None:
    demands = [Demand(ModelProfile(f"m{at}", (ExecutionTime.constant(0.001),)), 10, 0.5) for at in range(3)]
    oracle = Oracle(demands, [SMALL], Queueing())
    assert pack(oracle).bins == (Bin(SMALL, Members({0, 1, 2})),)
    oracle.forbid(SMALL, Members({0, 1}))
    found = pack(oracle)
    assert_valid(oracle, found)
    assert len(found.bins) == 2
    assert not any({0, 1} <= one.members for one in found.bins)


def test_nothing_to_pack_costs_nothing() -> None:
    oracle = Oracle([], [SMALL], Queueing())
    assert pack(oracle) == Packing((), optimal=True)
    assert least_cost(oracle.pieces, oracle.servers, Queueing()) == Money()


@pytest.mark.slow
def test_sixty_models_are_packed_cheaper_than_by_squishy() -> None:
    demands = [
        Demand(
            ModelProfile(f"m{at}", (ExecutionTime.constant(0.002 + 0.001 * (at % 7)),), (1 + at % 3) * GIB),
            (5 + at % 11) * 5.0,
            0.05 + 0.01 * (at % 5),
        )
        for at in range(60)
    ]
    oracle = Oracle(demands, [SMALL, BIG], Queueing())
    baseline, found = squishy(oracle), pack(oracle)
    assert_valid(oracle, found)
    assert found.per_hour < baseline.per_hour
    assert least_cost(oracle.pieces, oracle.servers, Queueing()) <= found.per_hour
