"""Jobs that leave open how many ranks they have: they start with as many as there is capacity and quota for."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from shoal.admission import ClusterIndex, Spread, decide
from shoal.admission.decide import expected_runtime_s
from shoal.core import ANY, Quota, Tenant

from .cases import NOW, B, G, clusters, decide_on, devices, fits, free_of, index_of, job, need, node, running

RUNS = settings(max_examples=80, deadline=None, derandomize=True, phases=[Phase.generate])
TWO = [node("n0", {"a100": 4}), node("n1", {"a100": 4})]


def sizes(decision) -> dict[str, int]:  # type: ignore[no-untyped-def]
    return {start.job_id: len(start.placement) for start in decision.starts}


@pytest.mark.parametrize(
    ("least", "most", "per_rank", "held", "quota", "expected"),
    [
        (1, 4, 1, 0, Quota(), 4),
        (1, 20, 1, 0, Quota(), 8),
        (1, 20, 3, 0, Quota(), 2),
        (1, 4, 1, 3, Quota(), 4),
        (2, 8, 1, 3, Quota(), 5),
        (1, 8, 1, 0, Quota(accelerators=3), 3),
        (1, 8, 2, 0, Quota(by_type=(("a100", 5),)), 2),
        (1, 8, 1, 0, Quota(running_jobs=1), 8),
        (2, 8, 1, 0, Quota(accelerators=1), None),
        (6, 8, 1, 3, Quota(), None),
        (1, 8, 1, 2, Quota(accelerators=4), 2),
    ],
)
def test_a_job_starts_with_the_most_ranks_that_there_are_room_and_quota_for(  # type: ignore[no-untyped-def]
    least, most, per_rank, held, quota, expected
) -> None:
    used = [running("r", {"n0": devices(*range(held))})] if held else []
    found = decide_on(TWO, [job("j", resources=per_rank, ranks=least, most=most)], used, [Tenant("a", quota=quota)])
    assert sizes(found) == ({} if expected is None else {"j": expected})
    assert expected is not None or found.waits["j"].code in ("quota", "shape")


def test_of_several_types_the_one_where_it_is_largest() -> None:
    machines = [node("n0", {"a100": 4}), node("n1", {"h100": 2})]
    found = decide_on(machines, [job("j", resources=need(1, ANY), ranks=1, most=3)])
    assert {rank.devices[0].split(":")[0] for rank in found.starts[0].placement} == {"a100"}
    assert "3 x 1 a100 (3 of 1 to 3 ranks)" in found.starts[0].reason.text


def test_it_is_charged_for_what_it_has_and_those_behind_it_get_the_rest() -> None:
    index = index_of(TWO, [job("j", ranks=1, most=6, at=1.0), job("k", ranks=1, most=6, at=2.0), job("l", at=3.0)])
    snapshot = index.snapshot(NOW)
    found = decide(snapshot)
    assert sizes(found) == {"j": 6, "k": 2}
    each_s = expected_runtime_s(job("j"), None, snapshot.policy)
    assert [start.charge for start in found.starts] == [6 * each_s, 2 * each_s]


def test_cores_alone_are_shared_out_the_same_way() -> None:
    machines = [node("n0", {}, cores=3), node("n1", {}, cores=2)]
    assert sizes(decide_on(machines, [job("j", resources=need(cores=2), ranks=1, most=4)])) == {"j": 2}


def test_room_that_is_kept_for_another_is_not_grown_into() -> None:
    """A gang waits for both nodes; a short job may use what is free on the first until then, a long one may not."""
    held = [running("r", {"n1": devices(0)}, end=NOW + 100.0)]
    gang = job("gang", resources=4, ranks=2, at=1.0, expected_s=1000.0)
    for expected_s, size in ((10.0, 7), (1000.0, None)):
        wide = job("wide", "b", ranks=1, most=8, at=2.0, expected_s=expected_s)
        assert sizes(decide_on(TWO, [gang, wide], held)) == ({} if size is None else {"wide": size})


def test_guaranteed_work_makes_others_leave_only_for_the_least_that_it_needs() -> None:
    held = [running(f"r{at}", {f"n{at // 4}": devices(at % 4)}) for at in range(8)]
    index = index_of(TWO, [job("j", ranks=2, most=8, cls=G)], held)
    first = decide(index.snapshot(NOW))
    assert len(first.preemptions) == 2
    index.settle(first)
    for preemption in first.preemptions:
        index.stop(preemption.job_id)
    assert sizes(decide(index.snapshot(NOW))) == {"j": 2}


@RUNS
@given(clusters(), st.integers(1, 3), st.integers(0, 4), st.sampled_from(["a100", "h100", ANY]),
       st.sampled_from([None, Spread.SPREAD]))  # fmt: skip
def test_one_more_rank_would_not_fit(
    index: ClusterIndex, least: int, more: int, kind: str, spread: Spread | None
) -> None:
    for job_id in list(index.snapshot(NOW).pending.by_id):
        index.remove_pending(job_id)
    asked = job("j", resources=need(1, kind, cores=1), ranks=least, most=least + more, cls=B, placement=spread)
    index.add_pending(asked)
    snapshot = index.snapshot(NOW)
    account = snapshot.tenants["a"]
    quota, used = account.tenant.quota, account.used

    def may(ranks: int, on: str) -> bool:
        held = Counter(used.accelerators)[on]
        return (
            fits(free_of(snapshot), need(1, on, cores=1), ranks)
            and (quota.accelerators is None or used.accelerator_count + ranks <= quota.accelerators)
            and all(held + ranks <= limit for name, limit in quota.by_type if name == on)
            and (quota.cpu_milli is None or used.cpu_milli + 1000 * ranks <= quota.cpu_milli)
            and (quota.running_jobs is None or account.running_jobs < quota.running_jobs)
        )

    able = [n for n in range(least, least + more + 1) for on in ("a100", "h100") if kind in (on, ANY) and may(n, on)]
    assert sizes(decide(snapshot)) == ({"j": max(able)} if able else {})
