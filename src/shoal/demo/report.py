"""Results of the demo: one value that becomes the JSON object and the final table."""

from __future__ import annotations

import os
import platform
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """One expectation, and whether it held."""

    name: str
    passed: bool
    detail: str


@dataclass(frozen=True, slots=True)
class JobResult:
    """How one job fared. `accuracy` is on held-out data. `wait_causes` are codes in order of occurrence; `waited_for`
    says the same in words. `outcomes` has one word per attempt. `began_after` is the step after which each attempt went
    on with the training (None: it ended before its first step)."""

    name: str
    id: str
    tenant: str
    priority_class: str
    ranks: int
    state: str
    attempts: int
    wait_s: float
    run_s: float
    accuracy: float | None
    wait_causes: tuple[str, ...]
    waited_for: tuple[str, ...]
    outcomes: tuple[str, ...]
    began_after: tuple[int | None, ...]
    steps: int
    steps_redone: int
    message: str

    @property
    def outcome(self) -> str:
        return self.outcomes[-1] if self.outcomes else self.state.lower()


@dataclass(slots=True)
class Report:
    """Filled by the acts, one after the other. `extra` holds whatever keys an act adds to the JSON object."""

    jobs: list[JobResult] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    extra: dict[str, Any] = field(default_factory=dict)
    jobs_lost: list[str] = field(default_factory=list)
    jobs_doubled: list[str] = field(default_factory=list)
    recovery_s: float | None = None
    server_killed: bool = False
    duration_s: float = 0.0

    def check(self, name: str, passed: bool, detail: str) -> None:
        self.checks.append(Check(name, bool(passed), detail))

    @property
    def passed(self) -> bool:
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def preemptions(self) -> int:
        return sum(job.outcomes.count("preempted") for job in self.jobs)

    @property
    def retries(self) -> int:
        """Attempts that followed a failed one."""
        return sum(outcome in ("failed", "lost") for job in self.jobs for outcome in job.outcomes[:-1])

    def headline(self) -> str:
        recovery = "never" if self.recovery_s is None else f"{self.recovery_s:.1f} s"
        return f"jobs lost {len(self.jobs_lost)}, run twice {len(self.jobs_doubled)}, recovery {recovery}"

    def as_json(self) -> dict[str, Any]:
        return {
            "passed": self.passed,
            "jobs_lost": len(self.jobs_lost),
            "jobs_doubled": len(self.jobs_doubled),
            "recovery_s": self.recovery_s,
            "server_killed": self.server_killed,
            "preemptions": self.preemptions,
            "retries": self.retries,
            "duration_s": round(self.duration_s, 3),
            **self.extra,
            "machine": machine(),
            "checks": [asdict(check) for check in self.checks],
            "jobs": [{**asdict(job), "outcome": job.outcome} for job in self.jobs],
        }


def machine() -> dict[str, Any]:
    """Where the figures were measured."""
    return {
        "system": platform.platform(),
        "cores": len(os.sched_getaffinity(0)),
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("numpy", "scikit-learn")},
    }
