"""Conditions under which anything is accepted for a tenant, be it a job or a service."""

from __future__ import annotations

from datetime import UTC, datetime

from shoal.core import Invalid
from shoal.store import Store


def check_files(store: Store, tenant: str, bundle: str | None, left: tuple[str, ...], command: str) -> None:
    """Check that the tenant has uploaded its working files. Another tenant's bundle does not count, even under its
    right name. `left` are the files not uploaded; `command` is the one that uploads them."""
    if bundle and store.bundle(tenant, bundle) is None:
        raise Invalid(f"tenant {tenant} has no bundle {bundle}", where="bundle",
                      hint="POST the archive to /v1/bundles first")  # fmt: skip
    if left:
        raise Invalid(
            "the files were not uploaded", where="files",
            hint=f"use `{command}`, or upload a bundle and name it under `bundle`",
        )  # fmt: skip


def check_deadline(deadline_at: float | None, now: float) -> None:
    """What is to be done by then can still begin. Both in Unix seconds. Raises Invalid."""
    if deadline_at is not None and deadline_at <= now:
        raise Invalid(
            f"the deadline has passed already, {_moment(deadline_at)}", where="deadline",
            hint=f"write a time after now, {_moment(now)}, or a duration from submission such as 2h",
        )  # fmt: skip


def _moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
