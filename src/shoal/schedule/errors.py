"""Errors of scheduling. Neither is ever swallowed: a policy returns an allocation or raises one of these."""

from __future__ import annotations

from typing import Any

from shoal.core import ShoalError


class Infeasible(ShoalError):
    """No allocation keeps all constraints; `constraints` names the binding ones, the heaviest first."""

    code = "infeasible"

    def __init__(self, what: str, *, constraints: tuple[str, ...], hint: str | None = None) -> None:
        super().__init__(what, where=", ".join(constraints[:4]) or None, hint=hint)
        self.constraints = constraints


class SolverFailed(ShoalError):
    """A solver ended without an optimum although the problem is sound; `facts` are what it said."""

    code = "solver-failed"

    def __init__(self, what: str, **facts: Any) -> None:
        super().__init__(what, hint="keep the last allocation, and report the snapshot that it failed on")
        self.facts = facts
