"""Explanations are true: what they say would start a job does start it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings

from shoal.admission import ClusterIndex, Decision, Explanation, Outlook, Running, Snapshot, decide, explain
from shoal.admission.explain import obstacles
from shoal.admission.outlook import expected_end
from shoal.core import NotFound, Quota, Tenant

from .cases import NOW, B, G, World, check_explanation, clusters, devices, index_of, job, need, node, nodes, running

ORDER = ["impossible", "backoff", "quota", "share", "closed", "shape", "priority"]


@settings(max_examples=120, deadline=None, derandomize=True, phases=[Phase.generate])
@given(clusters())
def test_with_all_that_an_explanation_asks_for_the_job_starts(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    starting = {start.job_id for start in decide(snapshot).starts}
    for job_id in snapshot.pending.by_id:
        told = explain(snapshot, job_id)
        assert [cause.cause for cause in told.causes] == sorted((c.cause for c in told.causes), key=ORDER.index)
        check_explanation(snapshot, told, starting)


@settings(max_examples=80, deadline=None, derandomize=True, phases=[Phase.generate])
@given(clusters(known_ends=True))
def test_an_estimate_comes_true_when_jobs_end_as_expected(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    told = {job_id: explain(snapshot, job_id) for job_id in snapshot.pending.by_id}
    world = World(ClusterIndex.resume(snapshot), lambda waiting: waiting.expected_s)
    for held in snapshot.running.values():
        world.runs_on(held, expected_end(snapshot, held).at)
    while world.step():
        pass
    started = {waiting.job_id: at for at, waiting in reversed(world.started)}
    for job_id, explanation in told.items():
        if explanation.estimate.startswith("from the rate"):
            continue  # beyond the forecast
        if explanation.estimated_start is not None:
            assert started[job_id] == explanation.estimated_start
            assert explanation.estimate


def test_a_job_of_unknown_length_is_explained_after_its_tenants_mean_has_moved() -> None:
    """Where a running job sorts was decided by the mean run time as of when it started."""
    held = [running("a", {"n0000": devices(0)}), running("b", {"n0000": devices(1)})]
    index = index_of(nodes(1, per_node=2), [job("c", resources=2)], held)
    index.stop("b", ran_s=1.0)
    assert index.snapshot(NOW).tenants["a"].mean_runtime_s == 1.0
    told = explain(index.snapshot(NOW), "c")
    assert told.summary == "waits: needs 2 a100 on one node, 1 free; starts when job a ends"


def closed(*names: str, free: int = 4) -> ClusterIndex:
    """Two nodes of four; on the first, `4 - free` devices are held. The named ones are closed."""
    held = [running("a", {"n0000": devices(*range(4 - free))})] if free < 4 else []
    index = index_of(nodes(2, per_node=4), [job("j", resources=4)], held)
    index.set_nodes(nodes(2, per_node=4), unschedulable=dict.fromkeys(names, "drained: new fan"))
    return index


def test_a_job_that_only_closed_nodes_could_take_is_told_to_open_them() -> None:
    told = explain(closed("n0000", "n0001").snapshot(NOW), "j")
    (cause,) = [cause for cause in told.causes if cause.blocking]
    assert cause.cause == "closed"
    assert cause.reason.text == "nodes n0000 (drained: new fan), n0001 (drained: new fan) take no new work"
    assert cause.reason.facts == {"nodes": ["n0000", "n0001"], "to_start": {"open": ["n0000", "n0001"]}}
    assert cause.change == "open n0000, n0001: shoal node undrain n0000"
    assert told.summary.startswith("waits: needs 4 a100 on one node")
    assert told.summary.endswith("take no new work")


def test_a_job_that_waits_for_others_is_told_of_the_closed_node_that_is_free() -> None:
    told = explain(closed("n0001", free=3).snapshot(NOW), "j")
    causes = {cause.cause: cause for cause in told.causes}
    assert causes["shape"].blocking
    assert not causes["closed"].blocking
    assert causes["closed"].reason.text == "node n0001 (drained: new fan) takes no new work"
    assert "to_start" not in causes["closed"].reason.facts
    assert told.summary == (
        "waits: needs 4 a100 on one node, 3 free; starts when job a ends; "
        "node n0001 (drained: new fan) takes no new work"
    )


def test_a_closed_node_that_would_not_help_is_not_named() -> None:
    held = [running("a", {"n0000": devices(0)}), running("b", {"n0001": devices(0)})]
    index = index_of(nodes(2, per_node=4), [job("j", resources=4)], held)
    index.set_nodes(nodes(2, per_node=4), unschedulable=["n0001"])
    assert "closed" not in {cause.cause for cause in explain(index.snapshot(NOW), "j").causes}


def test_the_sentence_of_a_job_too_big_for_what_is_free() -> None:
    held = [running(f"j-{40 + at}", {"n0000": devices(at)}, end=NOW + 100 * at) for at in range(1, 4)]
    told = explain(index_of(nodes(1), [job("big", resources=8)], held).snapshot(NOW), "big")
    assert told.summary == "waits: needs 8 a100 on one node, 5 free; starts when jobs j-41, j-42 and j-43 end"
    assert told.estimated_start == NOW + 300
    one = explain(index_of(nodes(1), [job("big", resources=8)], held[:1]).snapshot(NOW), "big")
    assert one.summary == "waits: needs 8 a100 on one node, 7 free; starts when job j-41 ends"


def test_a_job_that_no_node_can_ever_hold_is_told_so() -> None:
    told = explain(index_of(nodes(2, per_node=4), [job("big", resources=8)]).snapshot(NOW), "big")
    assert [cause.cause for cause in told.causes] == ["impossible"]
    assert told.summary == "waits: no node has 8 a100: would never fit"
    assert told.estimated_start is None
    gang = explain(index_of(nodes(2, per_node=4), [job("big", resources=4, ranks=3)]).snapshot(NOW), "big")
    assert gang.causes[0].reason.facts["ranks_that_fit"] == 2


def test_an_estimate_rests_on_what_is_known_of_the_running_job() -> None:
    def told(held: Running, *ran_s: float) -> Explanation:
        index = index_of([node("n0", {"a100": 1})], [job("j")])
        for at, each in enumerate(ran_s):
            index.start(running(f"r{at}", {"gone": devices(0)}))
            index.stop(f"r{at}", ran_s=each)
        index.start(held)
        return explain(index.snapshot(NOW), "j")

    held = running("r", {"n0": devices(0)}, started=NOW - 30)
    assert told(held).estimated_start is None
    assert told(held).estimate.startswith("nothing is known of when the jobs in its way end")
    limited = told(replace(held, latest_end=NOW + 70))
    assert (limited.estimated_start, "1 by its max_runtime" in limited.estimate) == (NOW + 70, True)
    learnt = told(held, 80.0, 100.0, 120.0)
    assert learnt.estimated_start == NOW + 70
    assert "1 by the mean run time of its tenant (a: 100 s +- 16 s over 3 jobs)" in learnt.estimate
    bounded = told(replace(held, latest_end=NOW + 20), 100.0)
    assert (bounded.estimated_start, "1 by its max_runtime" in bounded.estimate) == (NOW + 20, True)
    declared = told(replace(held, expected_end=NOW + 5), 100.0)
    assert (declared.estimated_start, "1 by a declared" in declared.estimate) == (NOW + 5, True)
    late = told(replace(held, expected_end=NOW - 5))
    assert (late.estimated_start, "1 overdue" in late.estimate) == (NOW + 30, True)


def with_mean(index: ClusterIndex, mean_s: float = 1.0) -> ClusterIndex:
    index.set_tenant(Tenant("a"), mean_runtime_s=mean_s)
    return index


def test_what_never_ends_is_given_no_end() -> None:
    def told(*held: Running, needs: int = 1) -> Explanation:
        return explain(with_mean(index_of(nodes(1, per_node=2), [job("j", resources=needs)], held)).snapshot(NOW), "j")

    service = replace(running("r", {"n0000": devices(0)}), endless="service mlp")
    other = replace(running("q", {"n0000": devices(1)}), endless="job q")
    behind = told(service, needs=2)
    assert behind.summary == "waits: needs 2 a100 on one node, 1 free; service mlp holds it"
    assert (behind.estimated_start, behind.estimate) == (None, "service mlp holds it")
    shape = next(cause for cause in behind.causes if cause.cause == "shape")
    assert shape.change == "scale or undeploy service mlp, or ask for less"
    assert shape.reason.facts["to_start"] == {"end": ["r"]}
    both = told(service, other, needs=2)
    assert both.estimate == "job q and service mlp hold it"
    assert "scale or undeploy service mlp and cancel job q, or ask for less" in [cause.change for cause in both.causes]
    # Of what runs beside it, the one that ends is what the job waits for.
    ends = told(service, running("e", {"n0000": devices(1)}, end=NOW + 9))
    assert ends.estimated_start == NOW + 9
    # Its end is known once it is asked to stop, and where its run time is limited.
    assert told(replace(service, stopping=True), needs=2).estimated_start == NOW
    assert told(replace(service, latest_end=NOW + 5), needs=2).estimated_start == NOW + 5
    # What it reports or declared is the end of one of its runs only.
    assert told(replace(service, expected_end=NOW + 5), needs=2).estimated_start is None


def test_a_quota_that_services_hold_is_said_to_be_held() -> None:
    held = replace(running("r", {"n0000": devices(0)}), endless="service mlp")
    full = Tenant("a", quota=Quota(accelerators=1))
    told = explain(index_of(nodes(1), [job("j")], [held], [full]).snapshot(NOW), "j")
    assert (told.estimated_start, told.estimate) == (None, "service mlp holds quota of a")


def test_a_forecast_gives_no_end_to_a_service_that_starts_within_it() -> None:
    """What is behind it in the queue would otherwise be told the mean run time of its tenant."""
    held = running("e", {"n0": devices(0)}, end=NOW + 10)
    replica = job("r", at=1.0)._replace(endless="service mlp")
    index = index_of([node("n0", {"a100": 1})], [replica, job("j", at=2.0)], [held])
    snapshot = with_mean(index).snapshot(NOW)
    assert explain(snapshot, "r").estimated_start == NOW + 10
    assert explain(snapshot, "j").estimated_start is None


def test_beyond_the_forecast_the_rate_of_starts_goes_on() -> None:
    waiting = [job(f"j{at:04d}", at=float(at), expected_s=10.0) for at in range(5000)]
    held = [running("r", {"n0": devices(0)}, end=NOW + 10)]
    outlook = Outlook(index_of([node("n0", {"a100": 1})], waiting, held).snapshot(NOW))
    last = explain(outlook.snapshot, "j4999", outlook)
    assert outlook.start_of("j4999") is None
    assert last.estimated_start == pytest.approx(NOW + 50_000, rel=0.1)
    assert last.estimate.startswith("from the rate at which jobs of a start")


def test_a_forecast_goes_only_as_far_as_it_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    decisions = 0

    def counted(snapshot: Snapshot) -> Decision:
        nonlocal decisions
        decisions += 1
        return decide(snapshot)

    monkeypatch.setattr("shoal.admission.outlook.decide", counted)
    held = running("r", {"n0000": devices(0)}, end=NOW + 10)
    waiting = [job(f"j{at}", at=float(at), expected_s=10.0) for at in range(8)]
    outlook = Outlook(index_of(nodes(1, per_node=1), waiting, [held]).snapshot(NOW))

    def asked(job_id: str) -> tuple[float, int]:
        start = outlook.start_of(job_id)
        assert start is not None
        return start.at, decisions

    assert asked("j0") == (NOW + 10, 2)
    assert asked("j3") == (NOW + 40, 5)
    with ThreadPoolExecutor(1) as other:
        assert other.submit(asked, "j5").result() == (NOW + 60, 7)
    assert asked("j1") == (NOW + 20, 7)
    assert asked("j7") == (NOW + 80, 9)


def test_an_unknown_end_gives_no_estimate() -> None:
    held = [running("r", {"n0000": devices(*range(8))})]
    told = explain(index_of(nodes(1), [job("j")], held).snapshot(NOW), "j")
    assert told.estimated_start is None
    assert told.summary == "waits: needs 1 a100, 0 free; starts when job r ends"


def test_quota_names_the_limit_to_raise() -> None:
    tenants = [Tenant("a", quota=Quota(accelerators=4, by_type=(("a100", 3),)))]
    held = [running("r", {"n0000": devices(0, 1, 2)})]
    told = explain(index_of(nodes(1), [job("j", resources=2)], held, tenants).snapshot(NOW), "j")
    quota = next(cause for cause in told.causes if cause.cause == "quota")
    assert quota.blocking
    assert quota.reason.facts["to_start"] == {"quota": {"accelerators.a100": 5, "accelerators": 5}}
    assert quota.reason.text == "waits: needs 2 a100, quota of a leaves 0 of 3"
    assert quota.change == "raise the quota: shoal quota a --type a100=5 --accelerators 5; or end jobs of a"


def test_the_estimate_counts_the_jobs_ahead() -> None:
    held = [running("r", {"n0": devices(0)}, end=NOW + 50)]
    waiting = [job(f"j{at}", at=float(at), expected_s=100.0) for at in range(3)]
    snapshot = index_of([node("n0", {"a100": 1})], waiting, held).snapshot(NOW)
    told = [explain(snapshot, f"j{at}") for at in range(3)]
    assert [each.ahead for each in told] == [0, 1, 2]
    assert [each.estimated_start for each in told] == [NOW + 50, NOW + 150, NOW + 250]


def test_other_tenants_guaranteed_jobs_are_ahead_of_best_effort_ones() -> None:
    waiting = [job("be", "a", at=0.0), job("g1", "b", at=9.0, cls=G), job("g2", "a", at=9.0, cls=G), job("b2", "b")]
    snapshot = index_of([node("n0", {"a100": 1})], waiting).snapshot(NOW)
    assert explain(snapshot, "be").ahead == 2
    assert explain(snapshot, "g1").ahead == 0
    priority = explain(snapshot, "be").causes[-1]
    assert priority.blocking
    assert priority.reason.facts["to_start"]["priority_class"] == "guaranteed"


def test_only_waiting_jobs_can_be_explained() -> None:
    with pytest.raises(NotFound, match="no such waiting job"):
        explain(index_of(nodes(1)).snapshot(NOW), "nobody")


def test_a_back_off_is_named_first() -> None:
    told = explain(index_of(nodes(1), [job("j", cls=B, not_before=NOW + 30)]).snapshot(NOW), "j")
    assert [c.cause for c in told.causes if c.blocking] == ["backoff"]
    assert told.estimated_start == NOW + 30


def test_a_tenants_whole_quota_is_compared_with_all_ranks_of_a_gang() -> None:
    tenant = Tenant("a", quota=Quota(accelerators=4))
    layout = index_of(nodes(2)).snapshot(NOW).nodes.layout
    assert obstacles(layout, tenant, need(2), 2) == []
    (told,) = obstacles(layout, tenant, need(2), 3)
    assert told.code == "quota"


def test_a_start_behind_an_overdue_job_counts_it_also_when_others_end_later() -> None:
    held = [
        running("late", {"n0": devices(0)}, started=NOW - 30, end=NOW - 5),
        running("r", {"n0": devices(1)}, end=NOW + 90),
    ]
    waiting = [job("j0", expected_s=500.0), job("j1", at=1.0, expected_s=500.0)]
    outlook = Outlook(index_of([node("n0", {"a100": 2})], waiting, held).snapshot(NOW))
    for job_id, at in (("j0", NOW + 30), ("j1", NOW + 90)):
        start = outlook.start_of(job_id)
        assert start is not None
        assert (start.at, start.overdue) == (at, 1)


def test_an_estimate_says_by_what_jobs_that_have_not_begun_are_expected_to_end() -> None:
    index = index_of([node("n0", {"a100": 1})], [job("j0", at=0.0), job("j1", at=1.0)])
    index.start(running("known", {"gone": devices(0)}))
    index.stop("known", ran_s=100.0)
    told = explain(index.snapshot(NOW), "j1")
    assert told.estimated_start == NOW + 100
    assert "1 by the mean run time of its tenant" in told.estimate


def test_a_tenants_rate_counts_from_its_fourth_start_within_the_forecast() -> None:
    """Starts at 0, 10, 20, ... of one tenant on one device: four of them are enough to tell when a fifth starts."""
    for known, told in ((3, False), (4, True)):
        waiting = [job(f"j{at}", at=float(at), expected_s=10.0) for at in range(known)]
        waiting += [job("wide", resources=2, at=99.0)]
        outlook = Outlook(index_of([node("n0", {"a100": 1}), node("n1", {"a100": 2})], waiting, [
            running("r", {"n1": devices(0, 1)}, "b"),
        ]).snapshot(NOW))  # fmt: skip
        assert (outlook.start_by_rate("a", 0) is not None) is told
