"""What a plane is told of the shared pool names nobody else."""

from __future__ import annotations

from datetime import datetime

import pytest

from shoal.admission import reasons
from shoal.core import Quota, Reason, Resources
from shoal.tenancy.translate import quota_left, told

SECRET = ("blue", "j-0abc", "n17")
REASONS = [
    reasons.overtaken(["blue", "green"], ["blue"]),
    reasons.overtaken([], ["blue"]),
    Reason(reasons.SHAPE, "waits: needs 2 a100 on one node, 0 free; starts when job j-0abc ends", {"after": "j-0abc"}),
    Reason(reasons.RESERVED, "waits: the free capacity is kept for job j-0abc", {"for_job": "j-0abc"}),
    Reason(reasons.CLOSED, "node n17 takes no new work", {"nodes": ["n17"]}),
    Reason(reasons.QUOTA, "waits: needs 1 a100, quota of blue leaves 0 of 4", {"quota": "accelerators.a100", "used": 4,
           "limit": 4, "needs": 1, "tenant": "blue"}),
    Reason("an-extensions-own", "blue has n17 for job j-0abc", {"x": "blue"}),
]  # fmt: skip


@pytest.mark.parametrize("reason", REASONS, ids=lambda reason: reason.code)
def test_no_cause_names_another_team_job_or_machine(reason: Reason) -> None:
    seen = told(reason)
    assert seen.code == reason.code
    assert seen.text
    assert not [name for name in SECRET if name in seen.text or name in str(seen.facts)]


def test_a_cause_that_names_nobody_is_told_in_its_own_words() -> None:
    assert told(REASONS[2]).text == "waits: needs 2 a100 on one node, 0 free"
    assert told(REASONS[5]).text == "quota of the shared pool: 4 of 4 a100"


@pytest.mark.parametrize(
    ("quota", "used", "needs", "text"),
    [
        (Quota(by_type=(("a100", 4),)), {"a100": 4}, {"a100": 1}, "quota of the shared pool: 4 of 4 a100"),
        (Quota(by_type=(("a100", 4),)), {"a100": 2}, {"a100": 1}, None),
        (Quota(by_type=(("a100", 4),)), {"a100": 3}, {"a100": 1}, "quota of the shared pool: 3 of 4 a100"),
        (Quota(by_type=(("a100", 4),)), {"a100": 4}, {"h100": 1}, None),
        (Quota(accelerators=4), {"a100": 2, "h100": 1}, {"any": 1}, "quota of the shared pool: 3 of 4 accelerators"),
        (Quota(), {"a100": 99}, {"a100": 1}, None),
        (Quota(accelerators=4), {"a100": 4}, {}, None),
    ],
)
def test_the_quota_says_what_is_used_of_it(
    quota: Quota, used: dict[str, int], needs: dict[str, int], text: str | None
) -> None:
    """Two ranks each."""
    found = quota_left(quota, Resources(used), Resources(needs), 2, None)
    assert (found.text if found is not None else None) == text


def test_it_says_when_something_of_it_will_be_free() -> None:
    at = datetime(2026, 11, 23, 14, 5).timestamp()
    found = quota_left(Quota(accelerators=4), Resources({"a100": 4}), Resources({"a100": 1}), 1, at)
    assert found is not None
    assert found.text == "quota of the shared pool: 4 of 4 accelerators; next free about 14:05"
