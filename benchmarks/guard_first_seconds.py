"""Simulated: what neighbours and guaranteed work keep in their first two seconds under `model`.

    python benchmarks/guard_first_seconds.py [--json] [--seeds 6]

The first rows are what the policy was tuned on. The last ones count, of 126 further scenarios made after tuning, those
in which guaranteed work keeps 0.95 of its speed and each harmless neighbour 0.8 of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from common import Row, parser, report
from host.simulate import HostSpec, Outcome, Scenario, Sensing, simulate
from host.simulate.workloads import Placed

from shoal.core import PriorityClass
from shoal.host.policy import make_policy
from shoal.host.types import Domain, Group

KEPT, HARMLESS = 0.95, 0.8
_BARE = Sensing(bandwidth=False, alone=False)
_RESTLESS = Sensing(bandwidth=False, alone=False, noise=0.009, wander=0.012, wander_s=1.0)
_COMPUTE, _FLOOD, _STORES, _READS, _SLIGHT = "compute", "nt-stores", "stores", "reads", "cache-thrash"

Others = Sequence[tuple[str, float]]
"""Best-effort work, and when it comes."""


@dataclass(frozen=True)
class First:
    """Means over seeds. `keeps` is against what each neighbour does without a policy."""

    speed: float
    p99: float
    keeps: tuple[float, ...]


def scenario(others: Others, seed: int, *, feed: str = "pipeline", sensing: Sensing = _BARE) -> Scenario:
    work = (
        Placed(Group("feed", PriorityClass.GUARANTEED), feed),
        *(
            Placed(Group(f"other-{number}", PriorityClass.BEST_EFFORT), kind, from_s=at)
            for number, (kind, at) in enumerate(others)
        ),
    )
    host = HostSpec((Domain(0, frozenset({0, 1})),), sensing=sensing)
    return Scenario("first", "", host, work, max(at for _, at in others) + 2.0, seed=seed)


def first(others: Others, seeds: range, *, feed: str = "pipeline", sensing: Sensing = _BARE) -> First:
    def outcome(seed: int, policy: str = "model") -> Outcome:
        return simulate(scenario(others, seed, feed=feed, sensing=sensing), make_policy(policy))

    found, free = [outcome(seed) for seed in seeds], outcome(seeds[0], "none")
    keeps = tuple(
        mean(one.best_effort[number].work for one in found) / free.best_effort[number].work
        for number in range(len(others))
    )
    return First(mean(one.speed for one in found), mean(one.guaranteed[0].p99 for one in found), keeps)


TUNED: dict[str, Others] = {
    "one that computes": [(_COMPUTE, 0.0)],
    "one that computes, after 1.5 s": [(_COMPUTE, 1.5)],
    "five that compute": [(_COMPUTE, 0.0)] * 5,
    "two that compute, 0.5 s apart": [(_COMPUTE, 0.0), (_COMPUTE, 0.5)],
    "one that costs 4 %": [(_SLIGHT, 0.0)],
    "one that costs 8 %": [("triad", 0.0)],
    "one flood": [(_FLOOD, 0.0)],
    "two floods": [(_FLOOD, 0.0)] * 2,
    "one that computes beside a flood": [(_COMPUTE, 0.0), (_FLOOD, 0.0)],
}


def further() -> Iterator[tuple[str, Others, Sensing]]:
    for feed in ("pipeline", "triad", "chase"):
        for at in (0.0, 0.41, 2.13):
            for others in (
                [(_COMPUTE, at)] * 4, [(_COMPUTE, at), (_COMPUTE, at + 0.6)], [(_STORES, at)] * 3,
                [(_FLOOD, at), (_STORES, at)], [(_COMPUTE, at), (_COMPUTE, at), (_READS, at)],
                [(_FLOOD, at), (_COMPUTE, at + 0.4)], [(_COMPUTE, at), (_FLOOD, at + 0.9)],
            ):  # fmt: skip
                for sensing in (_BARE, _RESTLESS):
                    yield feed, others, sensing


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--seeds", type=int, default=6)
    options = arguments.parse_args()
    rows = []
    for name, others in TUNED.items():
        found = first(others, range(1, options.seeds + 1))
        rows += [Row(f"{name}: guaranteed work", found.speed, "of its speed"), Row("  its p99 step", found.p99, "x")]
        rows += [Row(f"  {kind} keeps", kept, "") for (kind, _), kept in zip(others, found.keeps, strict=True)]
    speeds, kept = list[float](), list[float]()
    for feed, others, sensing in further():
        found = first(others, range(21, 21 + options.seeds), feed=feed, sensing=sensing)
        speeds.append(found.speed)
        kept.append(
            min((one for (kind, _), one in zip(others, found.keeps, strict=True) if kind == _COMPUTE), default=1.0)
        )
    good = sum(speed >= KEPT and one >= HARMLESS for speed, one in zip(speeds, kept, strict=True))
    rows += [
        Row("further scenarios", len(speeds), ""), Row("  that meet both", good, ""),
        Row("  least speed of guaranteed work", min(speeds), ""),
        Row("  least that harmless work keeps", min(kept), ""),
    ]  # fmt: skip
    return report("guard_first_seconds (simulated)", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
