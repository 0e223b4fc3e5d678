"""Plans: every demand placed or refused by name, nothing overloaded, costs that add up, simulation that has a say."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.cli.serving import scheduled
from shoal.core import Invalid, Money, Reason
from shoal.measure.planning.feasibility import Fit
from shoal.measure.planning.planner import Plan, plan
from shoal.measure.planning.profiles import Demand, ExecutionTime, ModelProfile, ServerType
from shoal.measure.planning.queueing import Queueing

GIB = 2**30
planned = partial(plan, serve=scheduled())
SMALL = ServerType("small", Money.usd("0.50"), 1, 8 * GIB)
BIG = ServerType("big", Money.usd("1.40"), 4, 16 * GIB)


def demand(
    name: str, load: float, *, seconds: float = 0.01, memory: int = 1, slo_s: float = 0.1, **more: float
) -> Demand:
    model = ModelProfile(name, (ExecutionTime.constant(seconds),), memory * GIB, load_s=2.0)
    return Demand(model, load / seconds, slo_s, **more)  # type: ignore[arg-type]


def assert_sound(found: Plan, demands: list[Demand]) -> None:
    for one in found.servers:
        assert one.memory_bytes <= one.server.memory_bytes
        assert all(each.demand.profile.slots <= one.server.slots for each in one.placements)
        assert len({each.demand.name for each in one.placements}) == len(one.placements)
        work = sum(
            each.demand.rate_per_s * each.demand.profile.slots * each.demand.profile.best_item_s
            for each in one.placements
        )
        assert work <= one.server.slots * one.server.speed
        assert all(each.latency_s <= each.demand.slo_s * (1 + 1e-9) for each in one.placements)
        assert one.reason.text
    assert found.per_hour == sum((one.server.per_hour for one in found.servers), Money())
    for wanted in demands:
        placed = [each for one in found.servers for each in one.placements if each.demand.name == wanted.name]
        refused = [one for one in found.refused if one.demand.name == wanted.name]
        total = sum(each.demand.rate_per_s for each in placed) + sum(one.demand.rate_per_s for one in refused)
        assert total == pytest.approx(wanted.rate_per_s, rel=1e-6, abs=1e-9)
        assert placed or refused
        if not refused:
            assert sum(each.share for each in placed) == pytest.approx(1.0 if wanted.rate_per_s else 0.0)
    assert found.per_hour <= found.dedicated_per_hour
    if found.squishy_per_hour is not None:
        assert found.per_hour <= found.squishy_per_hour
    if found.least_per_hour is not None:
        assert found.least_per_hour <= found.per_hour
    json.dumps(found.as_json(), allow_nan=False)


@st.composite
def wishes(draw: st.DrawFn) -> list[Demand]:
    return [
        demand(
            f"m{at}",
            draw(st.sampled_from([0.0, 0.05, 0.2, 0.5, 2.5])),
            seconds=draw(st.sampled_from([0.002, 0.01, 0.05])),
            memory=draw(st.sampled_from([0, 1, 3, 7, 20])),
            slo_s=draw(st.sampled_from([0.04, 0.1, 0.5])),
            burst=draw(st.sampled_from([1.0, 1.0, 2.0])),
        )
        for at in range(draw(st.integers(1, 6)))
    ]


@given(wishes(), st.sampled_from([[SMALL], [SMALL, BIG], [replace(SMALL, limit=2)]]))
@settings(max_examples=30, deadline=None)
def test_a_plan_is_sound_whatever_is_wished(demands: list[Demand], servers: list[ServerType]) -> None:
    assert_sound(planned(demands, servers, check=False), demands)


def test_a_plan_shares_servers_and_is_confirmed_by_simulation() -> None:
    demands = [demand(f"m{at}", 0.15) for at in range(4)]
    steps: list[str] = []
    found = planned(demands, [SMALL, BIG], on_step=steps.append)
    assert_sound(found, demands)
    assert found.optimal
    assert found.saving > 0.5
    assert not any(check.broken for one in found.servers for check in one.checks)
    assert {check.name for one in found.servers for check in one.checks} == {one.name for one in demands}
    assert any(step.startswith("simulating") for step in steps)
    assert found.servers[0].load_s == 2.0 * len(found.servers[0].placements)


@pytest.mark.slow
def test_what_one_server_cannot_carry_is_split() -> None:
    demands = [demand("large", 2.3), demand("little", 0.1)]
    found = planned(demands, [SMALL])
    assert_sound(found, demands)
    large = [one for one in found.servers if any(each.demand.name == "large" for each in one.placements)]
    assert len(large) >= 3
    assert len({one.name for one in found.servers}) == len(found.servers)
    # The little one lives beside the rest of the large one.
    (home,) = [one for one in found.servers if any(each.demand.name == "little" for each in one.placements)]
    assert len(home.placements) == 2


def test_many_cheap_servers_are_preferred_to_a_dear_one_that_would_hold_all() -> None:
    dear = ServerType("dear", Money.usd(10), 8, 64 * GIB)
    demands = [demand("large", 2.3), demand("little", 0.1)]
    found = planned(demands, [SMALL, dear], check=False)
    assert_sound(found, demands)
    assert {one.server.name for one in found.servers} == {"small"}
    # But one large server is taken where it is the cheaper one for the load.
    assert {one.server.name for one in planned(demands, [SMALL, BIG], check=False).servers} == {"big"}


def test_what_cannot_be_placed_is_named_with_its_constraint() -> None:
    demands = [
        demand("fat", 0.1, memory=99),
        demand("slow", 0.1, seconds=0.5),
        demand("fine", 0.1),
        Demand(ModelProfile("wide", (ExecutionTime.constant(0.01),), slots=9), 1.0, 0.1),
    ]
    found = planned(demands, [SMALL, BIG])
    assert_sound(found, demands)
    assert [one.demand.name for one in found.refused] == ["fat", "slow", "wide"]
    codes = {one.demand.name: {reason.code for _, reason in one.reasons} for one in found.refused}
    assert codes == {"fat": {"memory"}, "slow": {"execution"}, "wide": {"slots"}}
    assert found.refused[0].text.startswith("on small: needs 99.00 GiB of memory, small has 8.00 GiB")
    assert found.least_per_hour is not None


def test_servers_that_run_out_are_named() -> None:
    demands = [demand(f"m{at}", 0.5) for at in range(4)]
    found = planned(demands, [replace(SMALL, limit=2)])
    assert_sound(found, demands)
    assert len(found.servers) == 2
    assert [one.reasons[0][1].code for one in found.refused] == ["limit", "limit"]
    assert "no small is left" in found.refused[0].text
    # A demand larger than all servers together is placed as far as it goes.
    found = planned([demand("huge", 5.0)], [replace(SMALL, limit=2)])
    assert len(found.servers) == 2
    assert found.refused[0].demand.rate_per_s < 500


class Trusting(Queueing):
    """Says of every set that it holds; alone it is right."""

    name = "trusting"

    def judge(self, demands, server):  # type: ignore[no-untyped-def]
        if len(demands) == 1:
            return super().judge(demands, server)
        return Fit(True, 0.5, Reason("holds", "surely"), (1,) * len(demands), (0.01,) * len(demands))


def test_sets_that_fail_in_simulation_are_packed_anew() -> None:
    demands = [demand(f"m{at}", 0.4, slo_s=0.05) for at in range(3)]
    found = planned(demands, [SMALL], model=Trusting())
    assert found.repaired
    assert all(reason.code == "simulation" for reason in found.repaired)
    assert not any(check.broken for one in found.servers for check in one.checks)
    assert {each.demand.name for one in found.servers for each in one.placements} == {one.name for one in demands}
    unchecked = planned(demands, [SMALL], model=Trusting(), check=False)
    assert len(unchecked.servers) == 1
    assert not unchecked.repaired


def test_plans_come_out_the_same_again() -> None:
    demands = [demand(f"m{at}", 0.05 + 0.03 * (at % 4), memory=1 + at % 3) for at in range(9)]
    first, again = (planned(demands, [SMALL, BIG], check=False).as_json() for _ in range(2))
    assert first == again


@pytest.mark.parametrize(
    ("demands", "servers", "said"),
    [
        ([], [SMALL], "there are no demands"),
        ([demand("a", 0.1)], [], "there are no servers"),
        ([demand("a", 0.1), demand("a", 0.2)], [SMALL], "given twice: a"),
        ([demand("a", 0.1)], [SMALL, SMALL], "given twice: small"),
    ],
)
def test_input_that_means_nothing_is_refused(demands: list[Demand], servers: list[ServerType], said: str) -> None:
    with pytest.raises(Invalid, match=said):
        planned(demands, servers)
