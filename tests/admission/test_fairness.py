"""Shares between tenants: by weight in the long run, whatever the size and length of jobs; no credit for idling."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.admission import ClusterIndex, Policy, TenantState, decide
from shoal.admission.fairness import Ring
from shoal.core import Quota, Tenant

from .cases import NOW, World, index_of, job, nodes


def jain(shares: list[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share**2 for share in shares))


class Backlog:
    """Tenants that never run out of jobs of their own size and length."""

    def __init__(self, index: ClusterIndex, sizes: dict[str, tuple[int, float]], *, known: bool = True) -> None:
        self._next = 0
        self._sizes = sizes
        self._known = known
        self._random = random.Random(7)
        self.world = World(index, self._runtime_of)
        for tenant in sizes:
            for _ in range(40):
                self._add(tenant)

    def _runtime_of(self, waiting) -> float:  # type: ignore[no-untyped-def]
        return self._sizes[waiting.tenant][1] * self._random.uniform(0.5, 1.5)

    def _add(self, tenant: str) -> None:
        size, mean = self._sizes[tenant]
        self._next += 1
        self.world.index.add_pending(
            job(f"j{self._next:06d}", tenant, size, at=float(self._next), expected_s=mean if self._known else None)
        )

    def run(self, steps: int) -> dict[str, float]:
        for _ in range(steps):
            before = len(self.world.started)
            self.world.step()
            for _, waiting in self.world.started[before:]:
                self._add(waiting.tenant)
        return dict(self.world.slot_seconds)


@pytest.mark.parametrize("known", [True, False], ids=["run times told", "run times learned"])
@pytest.mark.parametrize(
    ("weights", "sizes"),
    [
        ({"a": 1, "b": 1, "c": 1}, {"a": (1, 10.0), "b": (1, 10.0), "c": (1, 10.0)}),
        ({"a": 1, "b": 1, "c": 1}, {"a": (1, 10.0), "b": (1, 100.0), "c": (1, 30.0)}),
        ({"a": 1, "b": 2, "c": 5}, {"a": (1, 10.0), "b": (1, 60.0), "c": (1, 20.0)}),
        ({"a": 1, "b": 1, "c": 2}, {"a": (4, 10.0), "b": (1, 20.0), "c": (2, 40.0)}),
    ],
    ids=["equal", "different lengths", "different weights", "different sizes"],
)
def test_an_endless_backlog_is_served_by_weight(weights, sizes, known) -> None:  # type: ignore[no-untyped-def]
    index = index_of(nodes(2), tenants=[Tenant(name, weight) for name, weight in weights.items()])
    got = Backlog(index, sizes, known=known).run(3000)
    shares = [got[name] / weights[name] for name in weights]
    assert jain(shares) > 0.99
    assert max(shares) / min(shares) < 1.15


def test_a_tenant_that_was_idle_has_no_credit() -> None:
    index = index_of(nodes(1), tenants=[Tenant("a"), Tenant("b")])
    backlog = Backlog(index, {"a": (1, 10.0)})
    backlog.run(800)
    backlog._sizes["b"] = (1, 10.0)
    for _ in range(40):
        backlog._add("b")
    before = dict(backlog.world.slot_seconds)
    got = backlog.run(800)
    assert (got["b"]) / (got["a"] - before["a"]) == pytest.approx(1.0, abs=0.1)


def test_a_tenant_at_its_quota_leaves_the_rest_to_others_and_claims_nothing_later() -> None:
    index = index_of(
        nodes(1), tenants=[Tenant("a", quota=Quota(accelerators=2)), Tenant("b")], policy=Policy(quantum_s=5)
    )
    got = Backlog(index, {"a": (1, 10.0), "b": (1, 10.0)}).run(1000)
    assert got["a"] / (got["a"] + got["b"]) == pytest.approx(2 / 8, abs=0.03)


def test_unfinished_and_refused_work_is_given_back() -> None:
    index = index_of(nodes(1), [job("j", "a", 4, expected_s=100.0), job("k", "b", 8)])
    decision = decide(index.snapshot(NOW))
    assert decision.starts[0].charge == 400.0
    index.settle(decision)
    index.refund(start for start in decision.starts if start.job_id == "j")
    assert index.snapshot(NOW).tenants["a"].deficit == pytest.approx(index.policy.quantum_s)


def test_a_charge_is_settled_against_what_really_ran() -> None:
    world = World(index_of(nodes(1), [job("j", "a", 4, expected_s=100.0), job("k", "b", 8)]), lambda _: 10.0)
    world.decide()
    owed = world.index.snapshot(NOW).tenants["a"].deficit
    world.index.stop("j", ran_s=30.0)
    assert world.index.snapshot(NOW).tenants["a"].deficit == pytest.approx(owed + 4 * 70.0)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.floats(0.1, 10), st.floats(0, 1e7)), min_size=1, max_size=20))
def test_a_turn_is_one_step_however_deep_the_debt(tenants: list[tuple[float, float]]) -> None:
    """Empty rounds are skipped: each turn is somebody's who may start at least one job."""
    states = {
        f"t{at}": TenantState(Tenant(f"t{at}", weight), deficit=-debt) for at, (weight, debt) in enumerate(tenants)
    }
    ring = Ring(states, states, quantum_s=60.0, turn=None)
    ring.enter(states)
    started = 0
    while started < 500:
        name = ring.next()
        assert name is not None
        assert ring.may_go_on(name)
        while ring.may_go_on(name):
            ring.charge(name, 37.0)
            started += 1
        ring.back(name)
    assert ring.turns <= started


def test_the_heavier_tenant_gets_the_longer_turn() -> None:
    policy = Policy(quantum_s=10.0)
    tenants = [Tenant("a", 1), Tenant("b", 3)]
    waiting = [job(f"{name}{at}", name, at=at, expected_s=10.0) for name in "ab" for at in range(20)]
    decision = decide(index_of(nodes(1), waiting, tenants=tenants, policy=policy).snapshot(NOW))
    assert [start.job_id for start in decision.starts] == ["a0", "b0", "b1", "b2", "a1", "b3", "b4", "b5"]
