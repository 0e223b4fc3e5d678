"""What is added to a decision, and what is dropped because it contradicts the decision, a hold or the cluster."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from shoal.admission import Additions, ClusterIndex, Decision, Start, decide, unite
from shoal.admission.types import Claim
from shoal.contract.records import RankPlacement
from shoal.core import Affinity, Device, Node, PriorityClass, Quota, Reason, Resources, Share, Taint, Tenant

from .cases import GIB, NOW, index_of, job, need, node, running

WHY = Reason("added", "so")


def start(*devices: str, on: str = "n", of: str = "j") -> Start:
    return Start(of, tuple(RankPlacement(at, on, (one,)) for at, one in enumerate(devices)), WHY)


def added(
    index: ClusterIndex, *starts: Start, decision: Decision | None = None,
    held: Mapping[str, tuple[str, ...]] | None = None,
) -> tuple[list[str], list[str]]:  # fmt: skip
    """The jobs that start, and why others do not."""
    found, dropped = unite(
        index.snapshot(NOW), decision or Decision(), {"x": Additions(starts)}, held or {}
    )  # fmt: skip
    return [one.job_id for one in found.starts], [one.why for one in dropped]


def test_what_fits_is_added_and_waits_no_more() -> None:
    index = index_of([node("n", {"a100": 2})], [job("j"), job("k")])
    waits = Decision(waits={"j": WHY, "k": WHY})
    found, dropped = unite(index.snapshot(NOW), waits, {"x": Additions([start("a100:1")])}, {})
    assert [one.job_id for one in found.starts] == ["j"]
    assert set(found.waits) == {"k"}
    assert dropped == ()


@pytest.mark.parametrize(
    ("nodes", "waiting", "says"),
    [
        ([node("n", {"a100": 2}, cores=1)], job("j", resources=need(1, cores=2)), "too few free cores"),
        ([node("n", {"a100": 2}, memory_gib=1)], job("j", resources=need(1, memory_gib=2)), "too little free memory"),
        ([node("n", {"a100": 2})], job("j", not_before=NOW + 9), "delayed by 9 s"),
        ([node("n", {"a100": 2}, taints=[Taint("x")])], job("j"), "by its labels and taints"),
        ([node("n", {"a100": 2})], job("j", affinity=Affinity(require=(("z", ("a",)),))), "by its labels and taints"),
        ([node("n", {"a100": 2})], job("j", resources=need(1, "h100")), "not those that it asks for"),
        ([node("m", {"a100": 2})], job("j"), "node n is not there"),
        ([node("n", {"a100": 2})], job("j", ranks=2), "it needs 2 to 2 ranks"),
    ],
)
def test_what_the_cluster_does_not_allow_is_dropped(nodes: list[Node], waiting: object, says: str) -> None:
    starts, why = added(index_of(nodes, [waiting]), start("a100:0"))  # type: ignore[list-item]
    assert starts == []
    assert says in why[0]


def test_a_closed_node_a_quota_and_a_claim_are_respected() -> None:
    machines = [node("n", {"a100": 2})]
    shut = index_of(machines, [job("j")], unschedulable=["n"])
    assert added(shut, start("a100:0")) == ([], ["node n takes no new work"])
    poor = index_of(machines, [job("j")], tenants=[Tenant("a", quota=Quota(accelerators=0))])
    assert added(poor, start("a100:0")) == ([], ["the quota of a has no accelerators left for it"])
    index = index_of(machines, [job("j"), job("g")])
    claimed = Decision(claims=(Claim("g", "a100", (("n", 2),), 1),))
    assert added(index, start("a100:0"), decision=claimed) == ([], ["node n is being freed for job g"])
    assert added(index, start("a100:0", of="g"), decision=claimed) == (["g"], [])


def test_the_second_of_two_that_ask_for_one_device_is_dropped() -> None:
    index = index_of([node("n", {"a100": 2})], [job("j"), job("k")])
    assert added(index, start("a100:0"), start("a100:0", of="k")) == (["j"], ["a100:0 of node n is not free"])
    assert added(index, start("a100:0"), start("a100:1")) == (["j"], ["it does not wait"])
    busy = index_of([node("n", {"a100": 2})], [job("j")], [running("r", {"n": ["a100:0"]})])
    assert added(busy, start("a100:0")) == ([], ["a100:0 of node n is not free"])


def test_of_a_quota_the_decision_takes_its_part_first() -> None:
    index = index_of(
        [node("n", {"a100": 3})], [job("j"), job("k", at=1.0)], tenants=[Tenant("a", quota=Quota(accelerators=1))]
    )
    decision = decide(index.snapshot(NOW))
    assert [one.job_id for one in decision.starts] == ["j"]
    assert added(index, start("a100:2", of="k"), decision=decision)[0] == ["j"]


def test_shares_of_devices_are_given_while_there_are_places() -> None:
    devices = (Device("g", "a100", 0, 80 * GIB, best_effort_seats=1),)
    asks = Resources({"a100": 1}, share=Share.BEST_EFFORT, device_memory_bytes=GIB)
    jobs = [job(name, resources=asks)._replace(priority_class=PriorityClass.BEST_EFFORT) for name in "jk"]
    index = index_of([Node("n", devices, 64_000, 1 << 39)], jobs)
    assert added(index, start("g"), start("g", of="k")) == (["j"], ["g of node n is not free"])


def test_a_job_is_started_by_what_alone_holds_it() -> None:
    index = index_of([node("n", {"a100": 2})], [job("j")])
    assert added(index, start("a100:0"), held={"j": ("x",)}) == (["j"], [])
    assert added(index, start("a100:0"), held={"j": ("x", "y")}) == ([], ["it is held by y"])


def test_any_type_is_the_one_that_is_given() -> None:
    index = index_of([node("n", {"a100": 1, "h100": 1})], [job("j", resources=need(1, "any"))])
    assert added(index, start("h100:0")) == (["j"], [])
