"""Shares between tenants: by weight in the long run, whatever the size and length of jobs; no credit for idling."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.admission import ClusterIndex, Policy, TenantState, decide
from shoal.admission.fairness import Ring
from shoal.core import Quota, Tenant

from .cases import NOW, World, carry_out, index_of, job, nodes


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


@pytest.mark.few(count=2)
@pytest.mark.parametrize("known", [True, False], ids=["run times told", "run times learned"])
@pytest.mark.parametrize(
    ("weights", "sizes"),
    [
        ({"a": 1, "b": 1, "c": 2}, {"a": (4, 10.0), "b": (1, 20.0), "c": (2, 40.0)}),
        ({"a": 1, "b": 1, "c": 1}, {"a": (1, 10.0), "b": (1, 10.0), "c": (1, 10.0)}),
        ({"a": 1, "b": 1, "c": 1}, {"a": (1, 10.0), "b": (1, 100.0), "c": (1, 30.0)}),
        ({"a": 1, "b": 2, "c": 5}, {"a": (1, 10.0), "b": (1, 60.0), "c": (1, 20.0)}),
    ],
    ids=["different sizes", "equal", "different lengths", "different weights"],
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


def ring(deficits: dict[str, float], turn: str | None = None, **weights: float) -> Ring:
    states = {name: TenantState(Tenant(name, weights.get(name, 1.0)), deficit=due) for name, due in deficits.items()}
    return Ring(states, states, quantum_s=10.0, turn=turn)


@pytest.mark.parametrize(
    ("turn", "order"), [(None, "abc"), ("a", "abc"), ("b", "bca"), ("bb", "cab"), ("c", "cab"), ("d", "abc")]
)
def test_turns_go_on_where_the_last_decision_left_off(turn: str | None, order: str) -> None:
    taking = ring(dict.fromkeys("cab", 0.0), turn)
    taking.enter("abc")
    assert "".join(taking.next() or "" for _ in range(3)) == order
    assert taking.next() is None
    assert taking.turns == 3


def test_a_debt_is_paid_back_over_as_many_rounds_as_it_has_quanta() -> None:
    """Of b's weight a quantum is 20: its 35 are paid in the second round, a's 35 in the fourth."""
    taking = ring({"a": -35.0, "b": -35.0, "c": -9.9, "d": 5.0}, b=2.0)
    taking.enter("abcd")
    assert [taking.next() for _ in range(4)] == ["d", "c", "b", "a"]
    taking = ring({"a": 0.0, "b": 0.5})  # little is more than nothing
    taking.enter("ab")
    assert [taking.next() for _ in range(2)] == ["b", "a"]
    taking = ring({"a": -10.0, "b": -9.9})  # a debt of a whole quantum leaves nothing in the first round
    taking.enter("ab")
    assert [taking.next() for _ in range(2)] == ["b", "a"]


def test_a_tenant_goes_on_while_its_turn_has_something_left() -> None:
    taking = ring({"a": 0.0})
    taking.enter("a")
    assert taking.next() == "a"
    taking.charge("a", 9.9)
    assert taking.may_go_on("a")
    taking.charge("a", 0.1)
    assert not taking.may_go_on("a")
    assert taking.finish() == ({"a": -10.0}, None)


def test_rounds_count_as_far_as_the_first_that_still_waits_for_room() -> None:
    """b waits with a debt of 15, so two rounds are over: all earn two quanta, but none keeps more than its due."""
    taking = ring({"a": -35.0, "b": -15.0, "c": -1.0, "d": 0.0, "e": 3.0, "f": -50.0})
    taking.competes("b")
    taking.competes("a")
    taking.kept_back("c")
    taking.kept_back("d")
    assert taking.finish() == ({"a": -15.0, "b": 5.0, "c": 10.0, "d": 10.0, "e": 0.0, "f": -30.0}, "b")


def test_of_two_that_wait_for_room_the_first_in_order_is_next() -> None:
    taking = ring({"a": 0.0, "b": 0.0}, turn="b")
    taking.competes("a")
    taking.competes("b")
    assert taking.finish() == ({"a": 10.0, "b": 10.0}, "b")


def test_what_was_lent_is_given_back_at_the_end() -> None:
    taking = ring({"a": 5.0, "b": 1.0})
    taking.enter("ab")
    taking.lend("a", 6.0)
    taking.lend("a", 7.0)
    assert taking.next() == "a"
    assert not taking.may_go_on("a")
    taking.competes("a")
    taking.competes("b")
    assert taking.finish() == ({}, "a")


def test_an_idle_tenant_is_never_ahead_and_keeps_what_it_owes() -> None:
    states = {"a": TenantState(Tenant("a"), deficit=-4.0), "idle": TenantState(Tenant("idle", 2.0), deficit=-30.0)}
    taking = Ring(states, ["a"], quantum_s=10.0, turn=None)
    assert taking.finish() == ({}, None)
    taking.competes("a")
    assert taking.finish() == ({"a": 6.0, "idle": -10.0}, "a")


def test_a_decision_starts_so_many_and_the_next_one_goes_on_in_turn() -> None:
    index = index_of(nodes(1), policy=Policy(most_starts=3, quantum_s=1.0))
    for tenant in ("a", "b"):
        index.set_tenant(Tenant(tenant))
        for at in range(4):
            index.add_pending(job(f"{tenant}{at}", tenant, 1, at=float(at), expected_s=1.0))
    waves = []
    for _ in range(3):
        snapshot = index.snapshot(NOW)
        decision = decide(snapshot)
        carry_out(index, snapshot, decision)
        waves.append((sorted(start.job_id for start in decision.starts), decision.wake_at))
    assert waves == [(["a0", "a1", "b0"], NOW), (["a2", "b1", "b2"], NOW), (["a3", "b3"], None)]
