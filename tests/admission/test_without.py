"""Jobs that an extension keeps back are as if they were not there."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hypothesis import given
from hypothesis import strategies as st

from shoal.admission import ClusterIndex, Pending, decide, without

from .cases import NOW, G, clusters, index_of, job, nodes, running


def waiting(index: ClusterIndex) -> dict[str, Pending]:
    return dict(index.snapshot(NOW).pending.by_id.items())


@given(st.data())
def test_admission_decides_as_if_they_had_never_come(data: st.DataObject) -> None:
    index: ClusterIndex = data.draw(clusters())
    hidden: AbstractSet[str] = data.draw(st.sets(st.sampled_from(sorted(waiting(index))))) if waiting(index) else set()
    decision = decide(without(index.snapshot(NOW), {*hidden, "j-of-nobody"}))
    for job_id in hidden:
        index.remove_pending(job_id)
    assert decision.starts == decide(index.snapshot(NOW)).starts
    assert decision.preemptions == decide(index.snapshot(NOW)).preemptions
    assert not hidden & {start.job_id for start in decision.starts}


def test_what_was_claimed_for_one_that_is_held_is_free_again() -> None:
    index = index_of(nodes(1, 1), [job("g", cls=G), job("h", cls=G, at=1.0)], [running("r", {"n0000": ["a100:0"]})])
    index.settle(decide(index.snapshot(NOW)))
    index.stop("r")
    assert [start.job_id for start in decide(without(index.snapshot(NOW), {"g"})).starts] == ["h"]


@given(clusters())
def test_without_nothing_is_the_snapshot_itself(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    assert without(snapshot, ()) is snapshot
