"""Policies against each other, on a set of workloads, simulated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from host.simulate.oracle import best_static
from host.simulate.outcome import Outcome
from host.simulate.run import simulate
from host.simulate.subdomain import Subdomain
from host.simulate.workloads import Drift, HostSpec, Mechanism, Placed, Scenario, Sensing
from shoal.core import Invalid, PriorityClass
from shoal.host.policy import POLICIES, make_policy
from shoal.host.policy.exclusive import ExclusiveCpus
from shoal.host.types import Control, Domain, Group, Policy

SUBDOMAIN, ORACLE = "subdomain", "oracle"
NAMES = (*POLICIES, SUBDOMAIN, ORACLE)
"""The policies that are compared: the guard's, one of Kelp's paper that no guard has, and the best fixed setting."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """`outcomes` by scenario, then policy; each scenario has `none`."""

    outcomes: Mapping[str, Mapping[str, Outcome]]

    def efficiency(self, policy: str) -> float | None:
        """What guaranteed work gains against `none`, per unit of work that best-effort work loses, both as parts of
        their undisturbed speed and summed over the scenarios (Kelp's measure). None if nothing is lost."""
        gained = lost = 0.0
        for found in self.outcomes.values():
            gained += found[policy].speed - found["none"].speed
            lost += (found["none"].work - found[policy].work) / max(found["none"].work, 1e-9)
        return gained / lost if lost > 1e-6 else None

    def policies(self) -> tuple[str, ...]:
        first = next(iter(self.outcomes.values()), {})
        return tuple(first)


def policy_of(name: str) -> Policy[Any]:
    return ExclusiveCpus(Subdomain()) if name == SUBDOMAIN else make_policy(name)


def compare(policies: Iterable[str] = NAMES, scenarios: Sequence[Scenario] | None = None) -> Comparison:
    """`none` is always among them: the others are measured against it. Raises `Invalid` for an unknown policy."""
    names = list(dict.fromkeys(("none", *policies)))
    if unknown := [name for name in names if name not in NAMES]:
        hint = f"one of {', '.join(NAMES)}"
        raise Invalid(f"there is no policy {unknown[0]!r}", where="policy", hint=hint)
    outcomes: dict[str, dict[str, Outcome]] = {}
    for scenario in workload_set() if scenarios is None else scenarios:
        outcomes[scenario.name] = {
            name: best_static(scenario) if name == ORACLE else simulate(scenario, policy_of(name)) for name in names
        }
    return Comparison(outcomes)


def _guaranteed(name: str = "feed", kind: str = "pipeline", **more: Any) -> Placed:
    return Placed(Group(name, PriorityClass.GUARANTEED), kind, **more)


def _neighbour(name: str, kind: str, **more: Any) -> Placed:
    return Placed(Group(name, PriorityClass.BEST_EFFORT), kind, **more)


def _domains(*sizes: int) -> tuple[Domain, ...]:
    found, first = [], 0
    for number, size in enumerate(sizes):
        found.append(Domain(number, frozenset(range(first, first + size)), frozenset({number})))
        first += size
    return tuple(found)


_ALL = frozenset({Control.DOMAINS, Control.SHARE, Control.PREFETCHING, Control.CORES, Control.FREEZE})


def workload_set() -> tuple[Scenario, ...]:
    """From the small machine that the model was fitted to, up to two core complexes of eight cores."""
    pair, apart = HostSpec(_domains(2)), HostSpec(_domains(1, 1))
    complex_ = HostSpec(_domains(8), controls=_ALL, sensing=Sensing(saturation=True))
    two = HostSpec(_domains(8, 8), controls=_ALL, sensing=Sensing(saturation=True))
    return (
        Scenario(
            "pair-nt", "two cores, one domain: a neighbour floods memory with non-temporal stores", pair,
            (_guaranteed(), _neighbour("flood", "nt-stores")),
        ),
        Scenario(
            "pair-stores", "the same with plain stores", pair, (_guaranteed(), _neighbour("flood", "stores")),
        ),
        Scenario(
            "pair-quota", "the same flood where only a CPU quota can limit it",
            HostSpec(_domains(2), mechanism=Mechanism.QUOTA), (_guaranteed(), _neighbour("flood", "nt-stores")),
        ),
        Scenario(
            "pair-apart", "two cores in different domains: the flood does next to no harm", apart,
            (_guaranteed(), _neighbour("flood", "nt-stores", domain=1)),
        ),
        Scenario(
            "pair-phases", "the flood comes and goes, 3 s on and 2 s off, beginning after 2 s", pair,
            (_guaranteed(), _neighbour("flood", "nt-stores", from_s=2.0, on_s=3.0, off_s=2.0)), 22.0,
        ),
        Scenario(
            "pair-drift", "undisturbed work itself becomes 4 % slower half-way", pair,
            (_guaranteed(), _neighbour("flood", "nt-stores")), drifts=(Drift(10.0, 1.04),),
        ),
        Scenario(
            "pair-unreported", "the guaranteed work does not report its steps: only the latency probe tells",
            HostSpec(_domains(2), sensing=Sensing(step_time=False)), (_guaranteed(), _neighbour("flood", "stores")),
        ),
        Scenario(
            "complex-mixed", "a core complex of eight: two cores feed an accelerator beside a flood, a reader and "
            "four cores of computing", complex_,
            (
                _guaranteed(cores=2), _neighbour("flood", "nt-stores"), _neighbour("reader", "reads"),
                _neighbour("render", "compute", cores=4),
            ),
        ),
        Scenario(
            "complex-analytics", "a core complex of eight: two cores feed an accelerator beside four of analytics",
            complex_, (_guaranteed(cores=2), _neighbour("analytics", "triad", cores=4)),
        ),
        Scenario(
            "complex-allocation", "the same beside stores and computing, with bandwidth allocation in hardware",
            HostSpec(_domains(8), controls=_ALL, mechanism=Mechanism.ALLOCATION, sensing=Sensing(saturation=True)),
            (
                _guaranteed(cores=2), _neighbour("flood", "stores", cores=2), _neighbour("render", "compute", cores=4),
            ),
        ),
        Scenario(
            "two-complexes", "two complexes of eight, the flood begins in the guaranteed one; the other has room", two,
            (
                _guaranteed(cores=4), _neighbour("flood", "nt-stores", cores=2),
                _neighbour("render", "compute", domain=1, cores=4),
            ),
        ),
    )  # fmt: skip
