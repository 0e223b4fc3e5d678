"""What a simulation is of, besides its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from shoal.core import Invalid
from shoal.schedule.policy import POLICIES
from shoal.schedule.rounds import Published, Ranking, Rounds, Settings
from shoal.schedule.simulate.lengths import Knows, Lengths

GAVEL_RESET_S = 1920.0
"""Gavel computes an allocation at most this often, however often jobs come and go."""

KEEP_S, RENEW_S = 3600.0, 360.0

AGING, AGING_UNSURE = 0.5, 1.25
"""Of `blend`. Whose length was taken for too much waits too long; where lengths are predictions, age counts more."""

_OWN = ("blend", "elastic")
"""The policies that Gavel does not have run with Shoal's own mechanism unless told otherwise."""


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
class Run:
    """One policy, and how it is carried out. `reset_s` is the least time between two allocations,
    `renew_s` the longest while all jobs that are there came at once (infinite: as long as nobody comes or ends);
    `mechanism` makes the rounds."""

    policy: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    rounds: Settings = field(default_factory=Settings)
    reset_s: float = 0.0
    renew_s: float = float("inf")
    restart_s: float = 0.0
    faults: Faults = field(default_factory=Faults)
    lengths: Lengths = field(default_factory=Lengths)
    seed: int = 0
    mechanism: type[Rounds] = Rounds

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise Invalid(f"there is no policy {self.policy!r}", where="policy", hint=f"one of {', '.join(POLICIES)}")
        for name in ("reset_s", "restart_s"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise Invalid(f"{getattr(self, name):g} seconds", where=name, hint="at least zero, and finite")


class Mechanism:
    """Presets of `Run`: by rounds like Gavel's, as Shoal does, and with Gavel's published rounds and programs to the
    letter (nothing is filled in that its objectives leave open), for comparisons."""

    GAVEL = "gavel"
    SHOAL = "shoal"
    PUBLISHED = "published"
    ALL = (GAVEL, SHOAL, PUBLISHED)


def run_of(
    policy: str,
    *,
    mechanism: str | None = None,
    agnostic: bool = False,
    space_sharing: bool = False,
    round_s: float = 360.0,
    restart_s: float = 0.0,
    seed: int = 0,
    faults: Faults | None = None,
    lengths: Lengths | None = None,
) -> Run:
    """The run that belongs to a policy's name: policies that Gavel has are carried out as Gavel does (so that numbers
    compare like with like), the others as Shoal does, unless `mechanism` says otherwise. Agnostic and sharing forms
    are taken where the policy has them."""
    known = POLICIES.get(policy)
    if known is None:
        raise Invalid(f"there is no policy {policy!r}", where="policy", hint=f"one of {', '.join(POLICIES)}")
    if mechanism not in (None, *Mechanism.ALL):
        raise Invalid(f"there is no mechanism {mechanism!r}", where="mechanism", hint="gavel, shoal or published")
    published = mechanism == Mechanism.PUBLISHED
    as_gavel = published or mechanism == Mechanism.GAVEL or (mechanism is None and policy not in _OWN)
    settings: dict[str, Any] = {}
    if agnostic and known.agnostic:
        settings["agnostic"] = True
    if space_sharing and known.space_sharing:
        settings["space_sharing"] = True
    elif published and known.central:
        settings["central"] = True
    if policy == "blend" and not as_gavel and not space_sharing:
        sure = lengths is None or lengths.knows is Knows.KNOWN
        aging = AGING if sure else AGING_UNSURE
        settings |= {"whole": True, "aging": aging, "keep": 0.2, "restart_s": restart_s, "drift": 0.0}
    if as_gavel:
        blind = agnostic and known.agnostic
        rounds = Settings(
            round_s=round_s, ranking=Ranking.PRIORITY, spare=policy != "fifo", shuffle=seed if blind else None
        )
    else:
        rounds = Settings(round_s=round_s, keep_s=max(KEEP_S, 20.0 * restart_s))
    return Run(
        policy, settings, rounds, reset_s=GAVEL_RESET_S if as_gavel else 0.0,
        renew_s=RENEW_S if "drift" in settings else float("inf"), restart_s=restart_s,
        faults=faults or Faults(), lengths=lengths or Lengths(), seed=seed,
        mechanism=Published if published else Rounds,
    )  # fmt: skip
