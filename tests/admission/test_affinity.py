"""Where jobs may run: labels and taints of nodes, what jobs require, prefer and tolerate."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings

from shoal.admission import ClusterIndex, Pending, Snapshot, decide, explain, obstacles
from shoal.core import NO_AFFINITY, Affinity, Effect, Node, Preference, Taint, Tenant, Toleration

from .cases import NOW, G, check_explanation, clusters, decide_on, fits, free_of, index_of, job, node, nodes, running

RUNS = settings(max_examples=60, deadline=None)
HARD, SOFT, AWAY = (
    Taint("team", "red", effect) for effect in (Effect.NO_SCHEDULE, Effect.PREFER_NO_SCHEDULE, Effect.NO_EXECUTE)
)


def needs(**labels: str) -> Affinity:
    return Affinity(require=tuple((name, (value,)) for name, value in labels.items()))


def likes(seconds: float, **labels: str) -> Affinity:
    return Affinity(prefer=(Preference(tuple((name, (value,)) for name, value in labels.items()), seconds),))


RED = Affinity(tolerate=(Toleration("team", "red"),))
MIXED = clusters(
    taints=[(), (), (HARD,), (SOFT,), (AWAY, SOFT)],
    zones="aab",
    affinities=[
        NO_AFFINITY,
        NO_AFFINITY,
        needs(zone="a"),
        needs(zone="b"),
        RED,
        RED.plus(needs(zone="b")),
        likes(9.0, zone="b"),
        Affinity(require=(("zone", ("a", "b")),)),
    ],
)


def allowed(waiting: Pending, node: Node) -> bool:
    """The oracle, in the words of the page: no code shared with the policy."""
    for taint in node.taints:
        if taint.effect is Effect.PREFER_NO_SCHEDULE:
            continue
        if not any(one.label == taint.label and one.value in (None, taint.value) for one in waiting.affinity.tolerate):
            return False
    return all(node.labels.get(label) in values for label, values in waiting.affinity.require)


def started(snapshot: Snapshot) -> dict[str, list[str]]:
    return {start.job_id: [rank.node for rank in start.placement] for start in decide(snapshot).starts}


def on(nodes: Iterable[Node], *jobs: Pending) -> dict[str, list[str]]:
    return started(index_of(nodes, jobs).snapshot(NOW))


# --- for any cluster


@RUNS
@given(MIXED)
def test_no_rank_is_on_a_node_where_it_may_not_be(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    for start in decide(snapshot).starts:
        for rank in start.placement:
            assert allowed(snapshot.pending.by_id[start.job_id], snapshot.nodes[rank.node].node)


@RUNS
@given(MIXED)
def test_the_first_job_starts_if_it_fits_where_it_may_be(index: ClusterIndex) -> None:
    """Alone in the queue, without quotas: it starts if brute force finds a way among the nodes for it."""
    snapshot = index.snapshot(NOW)
    for waiting in snapshot.pending.by_id.values():
        alone = ClusterIndex.resume(snapshot)
        for other in snapshot.pending.by_id:
            alone.remove_pending(other)
        alone.set_tenant(Tenant(waiting.tenant))
        alone.add_pending(waiting._replace(not_before=0.0))
        free = {
            name: left for name, left in free_of(snapshot).items() if allowed(waiting, snapshot.nodes[name].node)
        }  # fmt: skip
        assert (waiting.job_id in started(alone.snapshot(NOW))) == fits(free, waiting.resources, waiting.ranks)


@RUNS
@given(MIXED)
def test_explanations_are_true(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    starting = started(snapshot).keys()
    for job_id in snapshot.pending.by_id:
        check_explanation(snapshot, explain(snapshot, job_id), starting)


@RUNS
@given(MIXED)
def test_who_leaves_a_tainted_node_is_who_does_not_tolerate_it(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    leave = {one.job_id for one in decide(snapshot).preemptions if one.reason.code == "taint"}
    for held in snapshot.running.values():
        on_away = any(AWAY in snapshot.nodes[rank.node].node.taints for rank in held.placement)
        if held.job_id in leave:
            assert on_away
            assert not held.affinity.tolerate
            assert not held.stopping
        elif on_away and not held.affinity.tolerate:
            assert held.stopping or held.job_id in {one.job_id for one in decide(snapshot).preemptions}


# --- one by one


def test_a_taint_keeps_off_whoever_does_not_tolerate_it() -> None:
    machines = [node("n", {"a100": 2}, taints=[HARD])]
    assert on(machines, job("plain")) == {}
    assert on(machines, job("red", affinity=RED)) == {"red": ["n"]}
    blue = Affinity(tolerate=(Toleration("team", "blue"),))
    assert on(machines, job("blue", affinity=blue)) == {}
    any_team = Affinity(tolerate=(Toleration("team"),))
    assert on(machines, job("any", affinity=any_team)) == {"any": ["n"]}
    only_soft = Affinity(tolerate=(Toleration("team", effect=Effect.PREFER_NO_SCHEDULE),))
    assert on(machines, job("soft", affinity=only_soft)) == {}


def test_a_soft_taint_is_used_last_and_only_for_what_fits_nowhere_else() -> None:
    machines = [node("a", {"a100": 1}, taints=[SOFT]), node("b", {"a100": 4})]
    assert on(machines, job("one")) == {"one": ["b"]}, "packing would take the fuller node"
    assert on(machines, job("red", affinity=RED)) == {"red": ["a"]}
    assert on(machines, job("five", ranks=5)) == {"five": ["b", "b", "b", "b", "a"]}


def test_a_preferred_node_beats_packing_and_the_dearest_comes_first() -> None:
    machines = [node("a", {"a100": 1}), node("b", {"a100": 4}, zone="x"), node("c", {"a100": 4}, zone="y")]
    assert on(machines, job("j")) == {"j": ["a"]}
    assert on(machines, job("j", affinity=likes(1.0, zone="y"))) == {"j": ["c"]}
    both = likes(5.0, zone="x").plus(likes(4.0, zone="y"))
    assert on(machines, job("j", affinity=both)) == {"j": ["b"]}
    assert on(machines, job("j", affinity=both.plus(likes(2.0, zone="y")))) == {"j": ["c"]}, "weights add up"
    assert on(machines, job("j", resources=4, affinity=likes(1.0, zone="z"))) == {"j": ["b"]}


def test_a_preference_never_keeps_a_job_waiting() -> None:
    machines = [node("a", {"a100": 4}), node("b", {"a100": 1}, zone="x")]
    assert on(machines, job("j", resources=2, affinity=likes(1e6, zone="x"))) == {"j": ["a"]}
    assert sorted(on(machines, job("g", ranks=5, affinity=likes(1.0, zone="x")))["g"]) == ["a"] * 4 + ["b"]


def test_what_others_prefer_for_it_adds_to_its_own_and_is_asked_of_who_starts() -> None:
    machines = [node("a", {"a100": 1}), node("b", {"a100": 4}, zone="x"), node("c", {"a100": 4})]
    index = index_of(machines, [job("j", affinity=likes(5.0, zone="x")), job("big", resources=9, at=1.0)])
    asked: list[str] = []

    def saved(seconds: float) -> list[str]:
        def prefers(job_id: str) -> dict[str, float]:
            asked.append(job_id)
            return {"c": seconds, "gone": 100.0, "b": -50.0}

        (start,) = decide(index.snapshot(NOW), prefers=prefers).starts
        return [rank.node for rank in start.placement]

    index.remove_pending("j")
    index.add_pending(job("j"))
    assert saved(1.0) == ["c"]
    assert saved(0.0) == ["a"]
    index.add_pending(job("j", affinity=likes(60.0, zone="x")))
    assert saved(9.0) == ["b"], "60 - 50 is more than 9"
    assert saved(11.0) == ["c"]
    assert set(asked) == {"j"}


def test_guaranteed_work_takes_the_place_of_others_only_where_it_may_be() -> None:
    machines = [node("a", {"a100": 1}), node("b", {"a100": 1}, zone="x")]
    held = [running("r0", {"a": ["a100:0"]}, at_risk_s=1.0), running("r1", {"b": ["a100:0"]}, at_risk_s=900.0)]
    decision = decide_on(machines, [job("g", cls=G, affinity=needs(zone="x"))], held)
    assert [one.job_id for one in decision.preemptions] == ["r1"]
    assert [one.job_id for one in decide_on(machines, [job("g", cls=G)], held).preemptions] == ["r0"]


@pytest.mark.parametrize("left", [True, False])
def test_a_claim_lapses_where_the_node_got_a_taint_meanwhile(left: bool) -> None:
    machines = [node("a", {"a100": 1}), node("b", {"a100": 1})]
    held = [running("r", {"a": ["a100:0"]}), running("s", {"b": ["a100:0"]}, cls=G)]
    index = index_of(machines, [job("g", cls=G)], held)
    for preemption in (decision := decide(index.snapshot(NOW))).preemptions:
        index.update_running(preemption.job_id, stopping=True)
    index.settle(decision)
    assert index.snapshot(NOW).claims
    index.set_nodes([replace(machines[0], taints=(HARD,)), machines[1]])
    if left:
        index.stop("r")
    decision = decide(index.snapshot(NOW))
    assert (decision.starts, decision.claims) == ((), ())


def test_a_reservation_is_where_the_job_may_be_and_the_others_have_their_own() -> None:
    machines = [node("a", {"a100": 2}), node("b", {"a100": 2}, zone="x")]
    held = [running("r0", {"a": ["a100:0"]}, end=NOW + 10), running("r1", {"b": ["a100:0"]}, end=NOW + 100)]
    waiting = [job("x", resources=2, affinity=needs(zone="x")), job("y", resources=2, at=1.0)]
    waits = decide_on(machines, waiting, held).waits
    assert waits["x"].facts["starts_at"] == NOW + 100
    assert waits["y"].facts["starts_at"] == NOW + 10


def test_a_small_job_goes_round_one_that_waits_for_other_nodes() -> None:
    machines = [node("a", {"a100": 1}), node("b", {"a100": 1}, zone="x")]
    held = [running("r", {"b": ["a100:0"]})]
    waiting = [job("x", affinity=needs(zone="x")), job("y", at=1.0)]
    decision = decide_on(machines, waiting, held)
    assert [start.job_id for start in decision.starts] == ["y"]
    assert "zone=x (1 of 2 nodes)" in decision.waits["x"].text


@pytest.mark.parametrize(
    ("affinity", "says"),
    [
        (needs(zone="q"), "there is no node with zone=q (0 of 2 nodes): would never fit"),
        (needs(zone="a"), "no node with zone=a and without taint team=red:NoSchedule (0 of 2 nodes): would"),
        (Affinity(require=(("zone", ("b", "c")),)), "no node with zone=b|c (1 of 2 nodes) has 1 a100"),
    ],
)
def test_why_no_node_is_for_it(affinity: Affinity, says: str) -> None:
    index = index_of(
        [node("n", {"a100": 1}, zone="a", taints=[HARD]), node("m", zone="b")], [job("j", affinity=affinity)]
    )
    found = explain(index.snapshot(NOW), "j")
    assert says in found.summary
    assert found.causes[0].reason.facts["nodes"]["of"] == 2
    assert "change `nodes` in the manifest" in found.causes[0].change
    (obstacle,) = obstacles(index.layout, Tenant("a"), job("j").resources, 1, affinity)
    assert says in obstacle.text


def test_a_pools_cluster_picks_the_machines_by_itself() -> None:
    pool = replace(node("p", {"a100": 2}, taints=[HARD]), pooled=True)
    assert on([pool], job("j", affinity=needs(zone="x"))) == {"j": ["p"]}


def test_the_servers_own_taints_do_not_say_whose_jobs_they_are_for() -> None:
    machines = [node("n", {"a100": 1}, taints=[Taint("shoal/rented-for", "j-secret")])]
    text = explain(index_of(machines, [job("j")]).snapshot(NOW), "j").summary
    assert "shoal/rented-for" in text
    assert "j-secret" not in text


def test_many_affinities_cost_no_memory_and_a_job_that_says_nothing_costs_nothing() -> None:
    index = index_of(nodes(4), [job("j")])
    layout = index.snapshot(NOW).nodes.layout
    assert layout.sites(NO_AFFINITY) is None
    assert layout.sites(RED) is None
    for at in range(2000):
        layout.sites(needs(zone=f"z{at}"))
    assert len(layout._sites) <= 512
    assert layout.sites(needs(zone="z1999")) is layout.sites(needs(zone="z1999"))
