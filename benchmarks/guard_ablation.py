"""Simulated: what the policy `model` loses without each of its parts.

    python benchmarks/guard_ablation.py [--json] [--seeds 2] [--drawn 120] [--only TEXT]

Four sets of scenarios: the *workloads* of `guard_policies.py`, the *first seconds* made after tuning
(`guard_first_seconds.py`), *crowds* of 12 to 30 alike, and *drawn* ones: hosts, controls, sensors, promises, neighbours
and their phases by a fixed seed that no tuning has seen. A row has, for the whole policy and without each part: in how
many scenarios guaranteed work keeps its promise within a tenth, by its mean speed; the mean of what it loses beyond its
promise; and how much best-effort work is done.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from math import inf
from random import Random
from statistics import mean, stdev
from typing import Any
from unittest.mock import patch

from common import Row, parser, report
from guard_first_seconds import further, scenario
from host.simulate import (
    BEST_EFFORT,
    GUARANTEED,
    HostSpec,
    Mechanism,
    Scenario,
    Sensing,
    simulate,
    workload_set,
)
from host.simulate.workloads import Placed

from shoal.core import PriorityClass
from shoal.host.policy import contention, escalation, make_policy, model, pauses, placing
from shoal.host.types import Control, Domain, Group

_MODULES = (model, pauses, escalation, placing, contention)
_SIZES = ((2,), (4,), (8,), (2, 2), (4, 4), (8, 8))


def drawn(number: int) -> Scenario:
    random = Random(f"ablation {number}")
    sizes = random.choice(_SIZES)
    starts = [sum(sizes[:at]) for at in range(len(sizes))]
    domains = tuple(
        Domain(at, frozenset(range(start, start + size)), frozenset({at}))
        for at, (start, size) in enumerate(zip(starts, sizes, strict=True))
    )
    chances = {
        Control.FREEZE: 0.9, Control.CORES: 0.7, Control.PREFETCHING: 0.3,
        Control.DOMAINS: 0.8 * (len(sizes) > 1),
    }  # fmt: skip
    controls = {Control.SHARE} | {one for one, chance in chances.items() if random.random() < chance}
    sensing = Sensing(
        step_time=random.random() < 0.85, bandwidth=random.random() < 0.5, saturation=random.random() < 0.3,
        alone=random.random() < 0.3, noise=random.choice((0.003, 0.006, 0.012)),
        wander=random.choice((0.0, 0.0, 0.01, 0.02)), wander_s=random.choice((0.5, 2.0)),
    )  # fmt: skip
    mechanism = random.choice((*[Mechanism.PACING] * 3, Mechanism.QUOTA, Mechanism.ALLOCATION))
    host = HostSpec(
        domains, mechanism=mechanism, controls=frozenset(controls), sensing=sensing,
        least_share=random.choice((0.01, 0.05)),
    )  # fmt: skip
    work = []
    for at in range(random.choice((1, 1, 2)) if sizes[0] > 2 else 1):
        group = Group(f"feed-{at}", PriorityClass.GUARANTEED, max_slowdown=random.choice((1.05, 1.05, 1.1, 1.2)))
        work.append(Placed(group, random.choice(list(GUARANTEED)), cores=max(1, sizes[0] // 4)))
    for at in range(random.randint(1, 5)):
        home = random.randrange(len(sizes))
        group = Group(
            f"other-{at}", PriorityClass.BEST_EFFORT, weight=random.choice((1, 1, 2, 3)),
            min_share=random.choice((0.0, 0.05)),
        )  # fmt: skip
        work.append(
            Placed(
                group, random.choice(list(BEST_EFFORT)), home, random.randint(1, max(1, sizes[home] // 2)),
                from_s=random.choice((0.0, random.uniform(0, 6))), on_s=random.uniform(1, 6),
                off_s=random.choice((0.0, 0.0, random.uniform(0.5, 5))),
            )
        )  # fmt: skip
    seconds = 90.0 if len(sizes) > 1 and random.random() < 0.4 else 12.0  # what was moved may return after 30
    return Scenario(f"drawn {number}", "", host, tuple(work), seconds)


def crowd(count: int, kind: str, phases: tuple[float, float], seed: int) -> Scenario:
    """So many neighbours of a kind that come at once, each on and off for so long."""
    work = [Placed(Group("feed", PriorityClass.GUARANTEED), "pipeline")]
    for at in range(count):
        group = Group(f"other-{at}", PriorityClass.BEST_EFFORT)
        work.append(Placed(group, kind, on_s=phases[0], off_s=phases[1]))
    host = HostSpec((Domain(0, frozenset(range(count + 4))),), sensing=Sensing(bandwidth=False, alone=False))
    return Scenario(f"{count} of {kind}", "", host, tuple(work), 12.0, seed=seed)


def scenarios(seeds: int, count: int) -> Mapping[str, Sequence[Scenario]]:
    return {
        "workloads": [replace(one, seed=seed) for one in workload_set() for seed in range(1, 1 + 2 * seeds)],
        "first seconds": [
            scenario(others, seed, feed=feed, sensing=sensing)
            for feed, others, sensing in further() for seed in range(51, 51 + seeds)
        ],
        "crowds": [
            crowd(count, kind, phases, seed) for count in (12, 30) for kind in ("compute", "reads", "nt-stores")
            for phases in ((1.0, 0.0), (0.1, 0.4)) for seed in range(51, 51 + seeds)
        ],
        "drawn": [replace(drawn(number), seed=seed) for number in range(count) for seed in range(51, 51 + seeds)],
    }  # fmt: skip


def one_by_one() -> Callable[..., Any]:
    probe = model._probe
    return lambda state, doubtful: probe(state, sorted(doubtful)[:1])


PARTS: dict[str, Mapping[str, Any]] = {
    "pauses": {"next_pause": lambda _, last, **__: replace(last, groups=(), probe=(), settled=False)},
    "probes": {"_doubtful": lambda *_: []},
    "newcomers probed together": {"_probe": one_by_one()},
    "a look with a tenth of the share": {"LOOK_SHARE": 0.0},
    "the bound of a flood's probe": {"_BEARABLE": inf},
    "longer pauses for long units": {"LONG_S": pauses.SHORT_S},
    "the shorter wait under limits": {"BASELINE_S": pauses.CALM_BASELINE_S},
    "the longer wait without limits": {"CALM_BASELINE_S": pauses.BASELINE_S},
    "at most four probes in a row": {"_AT_ONCE": 1000},
    "several probes in a row": {"_AT_ONCE": 1},
    "a probe's share just below all": {"PROBE_SHARE": 1.0},
    "freezing": {"can_escalate": lambda *_: False},
    "the wait between freezing and letting go": {"COOL_DOWN_S": 0.0},
    "the runs of frozen work": {"_FREEZE_EVERY": 1000},
    "moving": {"better_place": lambda *_: None},
    "the least gain of a move": {"_WORTH": 1.0},
    "returning": {"may_return": lambda *_: None},
}


@dataclass(frozen=True)
class Found:
    """By scenario: the mean of what guaranteed groups lose beyond their promise, and what best-effort work does."""

    beyond: list[float]
    done: list[float]

    @property
    def kept(self) -> int:
        return sum(one <= 0 for one in self.beyond)


def tried(chosen: Sequence[Scenario], patches: Mapping[str, Any]) -> Found:
    found = Found([], [])
    with ExitStack() as stack:
        for name, value in patches.items():
            for module in (one for one in _MODULES if hasattr(one, name)):
                stack.enter_context(patch.object(module, name, value))
        for one in chosen:
            outcome = simulate(one, make_policy("model"))
            promised = {
                placed.group.name: 1 / (1 + 1.1 * (placed.group.max_slowdown - 1)) for placed in one.guaranteed()
            }
            found.beyond.append(max(promised[group.group] - group.speed for group in outcome.guaranteed))
            found.done.append(outcome.work)
    return found


def compared(name: str, whole: Found, less: Found) -> Iterator[Row]:
    yield Row(f"{name}: promise kept", less.kept - whole.kept, f"of {len(whole.beyond)}")
    for what, ours, theirs in (
        ("lost beyond it", [max(0.0, one) for one in whole.beyond], [max(0.0, one) for one in less.beyond]),
        ("best-effort work", whole.done, less.done),
    ):
        change = [b - a for a, b in zip(ours, theirs, strict=True)]
        error = 2 * stdev(change) / len(change) ** 0.5
        yield Row(f"  {what} (+- {100 * error:.2f})", 100 * mean(change), "points")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--seeds", type=int, default=2)
    arguments.add_argument("--drawn", type=int, default=120, help="scenarios [120]")
    arguments.add_argument("--only", default="", help="parts whose name has this text")
    options = arguments.parse_args()
    rows = []
    for kind, chosen in scenarios(options.seeds, options.drawn).items():
        whole = tried(chosen, {})
        rows.append(Row(f"{kind}: promise kept by the whole policy", whole.kept, f"of {len(chosen)}"))
        rows.append(Row("  lost beyond it, mean", 100 * mean(max(0.0, one) for one in whole.beyond), "points"))
        rows.append(Row("  best-effort work, mean", 100 * mean(whole.done), "%"))
        for name, patches in PARTS.items():
            if options.only in name:
                rows += compared(f"{kind}, without {name}", whole, tried(chosen, patches))
                print(*rows[-3:], sep="\n", file=sys.stderr, flush=True)
    return report("guard_ablation (simulated)", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
