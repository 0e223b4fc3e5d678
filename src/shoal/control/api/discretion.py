"""Answers to a tenant without the ids of other tenants' jobs."""

from __future__ import annotations

import re
from typing import Any

from shoal.contract.principal import Principal
from shoal.control.api.context import Context
from shoal.core import NotFound

ANOTHER = "another tenant's job"
_JOB = re.compile(r"(\bjob )?\b(j-[0-9a-z]{4,64})\b")


class Discretion:
    """For one answer to one caller. It remembers whose the jobs are that it met."""

    def __init__(self, context: Context, who: Principal) -> None:
        self._plane = context.plane
        self._who = who
        self._known: dict[str, bool] = {}

    def job(self, view: dict[str, Any]) -> dict[str, Any]:
        """A job's view whose reasons name no job that the caller may not see."""
        if self._who.admin:
            return view
        return {**view, **{name: self.of(view[name]) for name in ("reason", "wait_cause")}}

    def of(self, value: Any) -> Any:
        """A JSON value without the names of jobs that the caller may not see."""
        if self._who.admin:
            return value
        if isinstance(value, str):
            return _JOB.sub(lambda found: found[0] if self._may_name(found[2]) else ANOTHER, value)
        if isinstance(value, dict):
            return {name: self.of(inner) for name, inner in value.items()}
        return [self.of(inner) for inner in value] if isinstance(value, (list, tuple)) else value

    def _may_name(self, job_id: str) -> bool:
        if job_id not in self._known:
            try:
                self._known[job_id] = self._who.may_see(self._plane.job(job_id).tenant)
            except NotFound:
                self._known[job_id] = False
        return self._known[job_id]
