"""Dependencies of a job on the end of others: when such a condition is met, and when it never can be."""

from __future__ import annotations

from enum import StrEnum


class When(StrEnum):
    """Which end of a job releases those that wait for it."""

    SUCCESS = "success"
    FAILURE = "failure"
    END = "end"


def met(when: When, *, open_jobs: int, failed: bool) -> bool | None:
    """Whether a condition on a job, or on all tasks of an array, is met; None while that is open, False for never.

    `open_jobs` of them are not over, and `failed` is whether any ended in another way than SUCCEEDED. Only the end of a
    job counts: one that was preempted or is tried again is not over.
    """
    if when is When.SUCCESS and failed:
        return False
    if open_jobs:
        return None
    return failed if when is When.FAILURE else True
