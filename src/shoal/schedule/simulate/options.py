"""Options of a simulation, besides its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.core import Invalid
from shoal.schedule.baselines.gavel import GavelSettings
from shoal.schedule.choices import Mechanism
from shoal.schedule.policies import policy_of
from shoal.schedule.presets import ScheduleSettings
from shoal.schedule.simulate.lengths import Lengths


@dataclass(frozen=True, slots=True)
class Faults:
    """`mtbf_h`: mean hours between failures of one accelerator (infinite: none); a failure throws its whole gang back
    to the last checkpoint. A checkpoint is taken every `every_s` of running and takes `cost_s`."""

    mtbf_h: float = float("inf")
    every_s: float = 1800.0
    cost_s: float = 0.0

    def __post_init__(self) -> None:
        if not self.mtbf_h > 0.0:
            raise Invalid(f"{self.mtbf_h:g} hours between failures", where="mtbf", hint="positive")
        if not 0.0 < self.every_s < float("inf") or not 0.0 <= self.cost_s < float("inf"):
            raise Invalid("a checkpoint needs a positive interval and a finite cost", where="checkpoint")


@dataclass(frozen=True, slots=True)
class Baseline:
    """Gavel's way to carry a policy out: what the policy is `given`, and how its rounds are made."""

    given: Mapping[str, Any] = field(default_factory=dict)
    rounds: GavelSettings = field(default_factory=GavelSettings)


@dataclass(frozen=True, slots=True)
class Run:
    """A policy as the control plane runs it: `settings` are those of `shoal up`. `unsaved` is the part of the jobs that
    do not save their work when they are asked to leave. With a `baseline`, it is carried out as that says instead."""

    settings: ScheduleSettings
    faults: Faults = field(default_factory=Faults)
    lengths: Lengths = field(default_factory=Lengths)
    seed: int = 0
    unsaved: float = 0.0
    baseline: Baseline | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.restart_s < float("inf"):
            raise Invalid(f"{self.restart_s:g} seconds", where="restart_s", hint="at least zero, and finite")
        if not 0.0 < self.settings.round_s < float("inf"):
            raise Invalid(f"{self.settings.round_s:g} seconds", where="round_s", hint="positive and finite")
        if not 0.0 <= self.unsaved <= 1.0:
            raise Invalid(f"a part of {self.unsaved:g}", where="unsaved", hint="between 0 and 1")

    @property
    def policy(self) -> str:
        return self.settings.policy

    @property
    def restart_s(self) -> float:
        return self.settings.restart_cost_s


def run_of(
    policy: str,
    *,
    mechanism: str = Mechanism.SHOAL,
    agnostic: bool = False,
    space_sharing: bool = False,
    round_s: float = 360.0,
    restart_s: float = 0.0,
    seed: int = 0,
    faults: Faults | None = None,
    lengths: Lengths | None = None,
    unsaved: float = 0.0,
) -> Run:
    """The run of a policy. Agnostic and sharing forms are taken where the policy has them; sharing only by Gavel's
    mechanisms, for the control plane does not share accelerators."""
    known = policy_of(policy)
    if mechanism not in list(Mechanism):
        raise Invalid(f"there is no mechanism {mechanism!r}", where="mechanism", hint=", ".join(Mechanism))
    if space_sharing and mechanism == Mechanism.SHOAL:
        raise Invalid("the control plane does not let jobs share accelerators", where="space sharing",
                      hint="with --mechanism gavel, to compare")  # fmt: skip
    blind = agnostic and "agnostic" in known.settings
    baseline = None
    if mechanism != Mechanism.SHOAL:
        if unsaved or (faults is not None and faults != Faults()):
            raise Invalid("Gavel's jobs all save their work, and none fails", hint="with --mechanism shoal")
        given: dict[str, Any] = {"agnostic": True} if blind else {}
        if space_sharing and "space_sharing" in known.settings:
            given["space_sharing"] = True
        elif mechanism == Mechanism.PUBLISHED and "central" in known.settings:
            given["central"] = True
        shuffle, published = seed if blind else None, mechanism == Mechanism.PUBLISHED
        baseline = Baseline(given, GavelSettings(round_s, policy != "fifo", shuffle, published))
    settings = ScheduleSettings(policy, blind, round_s, restart_s)
    return Run(settings, faults or Faults(), lengths or Lengths(), seed, unsaved, baseline)
