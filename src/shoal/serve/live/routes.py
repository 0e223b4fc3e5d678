"""Shares of an update's requests among the versions of its generations: by how many replicas of each are ready.

Without it, a version that only the new generation has would get every request as soon as, or even before, its first
replica is ready, while the older ones that could answer are left idle.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from shoal.serve.types import Route, ServiceSpec

_NOT_YET = 1e-6
"""The weight of a generation without ready replicas: next to no requests, but all if no other can answer."""


def rolling(specs: Mapping[int, ServiceSpec], ready: Mapping[int, int]) -> ServiceSpec:
    """The newest generation's specification, its routes mixed with those of the older ones; shadows are its own alone.

    `specs` are those of the generations that have replicas, `ready` how many are ready of each.
    """
    new = specs[max(specs)]
    if len(specs) == 1:
        return new
    routes = dict(new.routes)
    for model, route in new.routes:
        shares: dict[str, float] = {}
        for generation, spec in specs.items():
            weight = ready.get(generation) or _NOT_YET
            for version, share in _shares(spec, model):
                shares[version] = shares.get(version, 0.0) + share * weight
        whole = sum(shares.values())
        routes[model] = replace(route, shares=tuple((version, share / whole) for version, share in shares.items()))
    return replace(new, routes=tuple(routes.items()))


def _shares(spec: ServiceSpec, model: str) -> Sequence[tuple[str, float]]:
    return dict(spec.routes).get(model, Route(())).shares
