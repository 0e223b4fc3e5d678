"""The tenants of the demo and what they submit: data only, so that it reads as a list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

WORKLOADS = Path(__file__).parent / "workloads"
SLOTS = 4
"""Declared CPU slots of the demo's server: enough for contention, few enough for two cores."""

_ALONGSIDE = {"allreduce.py": ("softmax.py",)}
"""Which other working files a script imports."""

_START_S = 1.5
"""About how long a script takes until its first step: it imports scikit-learn."""

GUARANTEED, BEST_EFFORT = "guaranteed", "best-effort"


@dataclass(frozen=True, slots=True)
class DemoTenant:
    """`quota_slots` None: as many as there are."""

    name: str
    weight: float
    quota_slots: int | None
    about: str


@dataclass(frozen=True, slots=True)
class DemoJob:
    """One training job. It takes `steps` steps and sleeps `pace_s` after each, so that two slow cores can carry four.

    `crash_at` makes its first attempt die at that step. `pattern` finds the accuracy in the log of a script that
    reports nothing itself. `accuracy_at_least` is what its model has to reach on data it was not trained on.
    """

    name: str
    tenant: str
    script: str
    dataset: str
    steps: int
    accuracy_at_least: float
    about: str
    priority_class: str = BEST_EFFORT
    priority: int = 0
    ranks: int = 1
    pace_s: float = 0.25
    crash_at: int | None = None
    retries: int = 0
    pattern: str | None = None

    def command(self) -> list[str]:
        numbers = ["--steps", str(self.steps), "--pace", f"{self.pace_s:g}"]
        crash = [] if self.crash_at is None else ["--crash-at", str(self.crash_at)]
        witness = ["witness.py"] if self.pattern else []
        return ["python", *witness, self.script, self.dataset, *numbers, *crash]

    def manifest(self, ledger: Path) -> dict[str, Any]:
        """What its tenant submits. `ledger` is where the workload writes what it did, for the demo's checker."""
        manifest: dict[str, Any] = {
            "name": self.name,
            "description": self.about,
            "command": self.command(),
            "files": sorted({self.script, *_ALONGSIDE.get(self.script, ()), "data.py", "witness.py"}),
            "env": {"DEMO_JOB": self.name, "DEMO_WITNESS": str(ledger)},
            "resources": {"accelerators": 1, "cpus": 0},
            "ranks": self.ranks,
            "priority_class": self.priority_class,
            "priority": self.priority,
            "expected_runtime": round(_START_S + self.steps * self.pace_s, 1),
            "restart": {"limits": {"user": self.retries}, "backoff": 0.5},
        }
        if self.pattern:
            manifest["metrics"] = {"regex": {"accuracy": self.pattern}}
        return manifest


@dataclass(frozen=True, slots=True)
class Scenario:
    """`opening` is submitted first, `rush` once the marathon has a checkpoint, `last_word` just before the kill."""

    tenants: tuple[DemoTenant, ...]
    opening: tuple[DemoJob, ...]
    rush: tuple[DemoJob, ...]
    last_word: DemoJob
    marathon: str
    flaky: str
    gang: str
    quota_waiter: str
    plain: str
    submitted_twice: str
    kill_after_done: int

    @property
    def jobs(self) -> Mapping[str, DemoJob]:
        return {job.name: job for job in (*self.opening, *self.rush, self.last_word)}


WRONG_MANIFEST = """\
name: digits-typo
command: python softmax.py digits
resources:
  accelerators: 1
  memory: 2 gigs
priority_class: garanteed
"""
"""Two mistakes that people make: a unit that does not exist, and a misspelt word."""

_TENANTS = (
    DemoTenant("vision", 2.0, None, "twice the share of the others"),
    DemoTenant("speech", 1.0, None, "one share"),
    DemoTenant("research", 1.0, 1, "one share, and never more than 1 slot at once"),
)

_OPENING = (
    DemoJob(
        "digits-marathon", "speech", "mlp.py", "digits", 64, 0.9,
        "long, best-effort: fills a gap, and makes room when guaranteed work comes",
    ),
    DemoJob("digits-mlp", "vision", "mlp.py", "digits", 28, 0.9, "a neural network", GUARANTEED),
    DemoJob("wine-softmax", "research", "softmax.py", "wine", 32, 0.9, "holds its tenant's only slot", GUARANTEED),
    DemoJob("iris-softmax", "research", "softmax.py", "iris", 20, 0.85, "has to wait for its tenant's quota"),
    DemoJob(
        "cancer-flaky", "speech", "boost.py", "cancer", 24, 0.9, "crashes once, is tried again", GUARANTEED,
        crash_at=12, retries=1,
    ),
)  # fmt: skip

_RUSH = (
    DemoJob(
        "digits-gang", "vision", "allreduce.py", "digits", 24, 0.9, "two ranks, start together or not at all",
        GUARANTEED, priority=10, ranks=2,
    ),
    DemoJob("digits-urgent", "vision", "softmax.py", "digits", 20, 0.9, "high priority", GUARANTEED, priority=50),
    DemoJob("digits-once", "vision", "softmax.py", "digits", 16, 0.9, "submitted twice with one key", GUARANTEED),
    DemoJob(
        "cancer-plain", "speech", "plain.py", "cancer", 20, 0.9, "a script that knows nothing of Shoal", GUARANTEED,
        pattern=r"epoch (?P<step>\d+): accuracy (?P<value>[\d.]+)",
    ),
    DemoJob("wine-boost", "speech", "boost.py", "wine", 16, 0.85, "boosted trees"),
    DemoJob("wine-mlp", "research", "mlp.py", "wine", 16, 0.8, "waits for quota again"),
    DemoJob("cancer-softmax", "vision", "softmax.py", "cancer", 16, 0.9, "best-effort, in a gap"),
)  # fmt: skip

_LAST_WORD = DemoJob(
    "last-word", "speech", "softmax.py", "iris", 16, 0.85, "acknowledged a moment before the server is killed"
)

_FAST = 0.32
"""How much shorter `--fast` sleeps after a step; what is computed stays the same."""


def scenario(*, fast: bool) -> Scenario:
    """The cast. `fast` shortens the pauses between training steps, nothing else."""

    def paced(job: DemoJob) -> DemoJob:
        return replace(job, pace_s=round(job.pace_s * _FAST, 3)) if fast else job

    return Scenario(
        tenants=_TENANTS,
        opening=tuple(map(paced, _OPENING)),
        rush=tuple(map(paced, _RUSH)),
        last_word=paced(_LAST_WORD),
        marathon="digits-marathon",
        flaky="cancer-flaky",
        gang="digits-gang",
        quota_waiter="iris-softmax",
        plain="cancer-plain",
        submitted_twice="digits-once",
        kill_after_done=3,
    )
