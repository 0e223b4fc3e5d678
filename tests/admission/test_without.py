"""Jobs that an extension keeps back are as if they were not there."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from hypothesis import given
from hypothesis import strategies as st

from shoal.admission import ClusterIndex, Pending, decide, without

from .cases import NOW, clusters


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


@given(clusters())
def test_without_nothing_is_the_snapshot_itself(index: ClusterIndex) -> None:
    snapshot = index.snapshot(NOW)
    assert without(snapshot, ()) is snapshot
