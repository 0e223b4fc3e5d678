"""Weighted deficit round robin against an oracle that is as simple as it is slow."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.tenancy.live.turns import FairQueue

FLOWS = "abcd"
WEIGHTS = {"a": 1.0, "b": 2.0, "c": 0.5, "d": 3.0}
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "put", "put", "take", "take", "remove"]), st.sampled_from(FLOWS),
              st.integers(0, 6), st.sampled_from([1.0, 1.0, 2.5, 7.0])), max_size=120,
)  # fmt: skip


class Oracle:
    """Visits every flow in a fixed ring, one credit grant a visit."""

    def __init__(self) -> None:
        self.ring: list[str] = []
        self.items: dict[str, list[tuple[int, float]]] = {}
        self.credit: dict[str, float] = {}
        self.granted = False

    def put(self, flow: str, item: int, cost: float) -> None:
        if item not in [each for each, _ in self.items.get(flow, [])]:
            if flow not in self.ring:
                self.ring.append(flow)
                self.credit[flow] = 0.0
            self.items.setdefault(flow, []).append((item, cost))

    def take(self) -> tuple[str, int] | None:
        while self.ring:
            flow = self.ring[0]
            if not self.granted:
                self.credit[flow] += WEIGHTS[flow]
                self.granted = True
            item, cost = self.items[flow][0]
            if cost <= self.credit[flow]:
                self.credit[flow] -= cost
                self.items[flow].pop(0)
                self.leave(flow)
                return flow, item
            self.ring.append(self.ring.pop(0))
            self.granted = False
        return None

    def leave(self, flow: str) -> None:
        if not self.items[flow]:
            if self.ring[0] == flow:
                self.granted = False
            self.ring.remove(flow)
            del self.items[flow], self.credit[flow]

    def remove(self, flow: str, item: int) -> None:
        if flow in self.items and item in [each for each, _ in self.items[flow]]:
            self.items[flow] = [one for one in self.items[flow] if one[0] != item]
            self.leave(flow)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_it_serves_as_the_oracle_does_and_loses_nothing(steps: list[tuple[str, str, int, float]]) -> None:
    queue: FairQueue[str, int] = FairQueue()
    oracle = Oracle()
    for act, flow, item, cost in steps:
        if act == "put":
            queue.put(flow, item, weight=WEIGHTS[flow], cost=cost)
            oracle.put(flow, item, cost)
        elif act == "take":
            assert queue.take() == oracle.take()
        else:
            queue.remove(flow, item)
            oracle.remove(flow, item)
        assert {each: queue.waiting(each) for each in FLOWS if queue.waiting(each)} == {
            each: len(items) for each, items in oracle.items.items()
        }
        assert queue.flows == len(oracle.ring)
    while (taken := queue.take()) is not None:
        assert taken == oracle.take()
    assert oracle.take() is None


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.sampled_from(FLOWS), st.sampled_from([0.25, 1.0, 2.0, 5.0]), min_size=2),
       st.lists(st.sampled_from([1.0, 2.0, 3.0]), min_size=40, max_size=40))  # fmt: skip
def test_flows_that_always_have_items_are_served_by_their_weights(
    weights: dict[str, float], costs: list[float]
) -> None:
    """The bound of the paper: what a flow got is within a quantum and the largest item of its weight's part."""
    queue: FairQueue[str, int] = FairQueue()
    for flow, weight in weights.items():
        for item in range(40):
            queue.put(flow, item, weight=weight, cost=costs[item])
    got: Counter[str] = Counter()
    served: Counter[str] = Counter()
    while all(queue.waiting(flow) for flow in weights):
        taken = queue.take()
        assert taken is not None
        flow, item = taken
        assert item == served[flow]
        served[flow] += 1
        got[flow] += int(costs[item])
        shares = [got[each] / weights[each] for each in weights]
        slack = 1 + max(costs) / min(weights.values())
        assert max(shares) - min(shares) <= 2 * slack


@pytest.mark.parametrize(("weight", "cost"), [(0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (float("nan"), 1.0)])
def test_a_weight_or_cost_that_could_hold_up_the_ring_is_refused(weight: float, cost: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        FairQueue[str, str]().put("a", "x", weight=weight, cost=cost)
