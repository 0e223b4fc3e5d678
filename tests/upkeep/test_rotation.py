"""Which backup is due, and which may go."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.core import Capability
from shoal.upkeep.plan import Disk, Step, obstacles
from shoal.upkeep.record import BackupRecord
from shoal.upkeep.rotation import drafts, due_in, name_at, time_of, times, to_remove

MOMENTS = st.integers(0, 4_000_000_000).map(float)
OTHERS = ["notes.txt", "shoal-x.tar", "before-upgrade-20260101T000000Z.tar", "shoal-20261301T000000Z.tar", "shoal.db"]


@given(st.lists(MOMENTS, unique=True, max_size=20), st.integers(1, 9))
def test_the_newest_stay_and_files_of_others_too(moments: list[float], keep: int) -> None:
    names = [*OTHERS, *map(name_at, moments)]
    gone = to_remove(names, keep)
    left = [time_of(one) for one in set(names) - set(gone) if time_of(one) is not None]
    assert sorted(left, key=float) == sorted(moments)[-keep:]
    assert not set(gone) & set(OTHERS)


@given(st.lists(MOMENTS, max_size=9), st.floats(1, 1e6), MOMENTS)
def test_one_is_due_when_the_last_is_old_whatever_the_clock_did(moments: list[float], every: float, now: float) -> None:
    left = due_in(map(name_at, moments), every, now)
    assert 0 <= left <= every + 60
    past = [one for one in moments if one <= now]
    if not any(one <= now + 60 for one in moments) or (past == moments and max(moments) + every <= now):
        assert left == 0


@given(MOMENTS)
def test_a_name_says_when(at: float) -> None:
    assert times([name_at(at)]) == [at]


def test_what_a_killed_server_left_is_told_from_files_of_others() -> None:
    left = [".shoal-20260101T000000Z.tar-ab_3x", ".check-k3_9"]
    assert drafts([*left, *OTHERS, ".ssh", ".check", ".shoal-backup"]) == left


def test_an_upgrade_is_stopped_by_what_would_break_it() -> None:
    known, newer = Step("store", "0001", "0002", "migrated"), Step("serve", "0009", "0002", "refused")
    small = Disk("/b", 1 << 30, 1 << 30)
    assert obstacles([known], Disk("/b", 1 << 30, 1 << 40), None) == []
    assert "1024 MiB free, and the backup before the upgrade needs 2048 MiB" in obstacles([known], small, None)[0]
    assert obstacles([Step("store", "0001", "0001", "nothing")], small, None) == []
    assert "serve have revision '0009'" in obstacles([newer], None, None)[0]
    assert "a page" in obstacles([], None, "a page is bad")[0]


def test_a_late_or_failed_backup_is_told() -> None:
    def told(now: float, **fields: object) -> Capability:
        return BackupRecord(**{"every_s": 3600.0, "at": 1000.0, "file": "/b/x.tar", **fields}).capability(now)  # type: ignore[arg-type]

    assert told(1000.0 + 3600).available
    assert not told(1000.0 + 2 * 3600).available
    assert not told(1000.0, trouble="no backup could be made: disk full").available
    assert "disk full" in told(1000.0, trouble="disk full").detail
    assert not told(1000.0, every_s=0.0).available
    assert told(1000.0, at=0.0).available
