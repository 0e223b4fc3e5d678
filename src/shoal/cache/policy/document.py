"""The format of `shoal cache solve`: a problem as JSON, and its answer."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shoal.base.validation import problems
from shoal.cache.policy.problem import Mode, Problem
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.cache.policy.decide import Decision

LARGEST = 20_000_000
"""Tenants times sets: a matrix of 160 MB."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


class SetDocument(_Part):
    """A data set. `load`: what it costs to load all of it, in the unit of the benefits; 0 unless given."""

    size: float = Field(ge=0)
    load: float = Field(0.0, ge=0)


class ProblemDocument(_Part):
    """`cached` names the sets that are held now, or gives the part of each that is."""

    mode: Mode = Mode.FRACTION
    capacity: float = Field(ge=0)
    tenants: dict[str, float]
    sets: dict[str, SetDocument]
    benefit: dict[str, dict[str, float]]
    cached: list[str] | dict[str, float] = Field(default_factory=list)


def read_problem(text: str, where: str) -> Problem:
    """Raises Invalid with every problem."""
    try:
        given = ProblemDocument.model_validate(json.loads(text))
    except ValidationError as error:
        found = tuple(Invalid(one.what, where=f"{where}: {one.where or 'the document'}") for one in problems(error))
        raise Invalid(found[0].what, where=found[0].where, problems=found) from None
    except (ValueError, RecursionError) as error:
        raise Invalid(f"is not JSON: {error}", where=where) from None
    sets = {name: at for at, name in enumerate(given.sets)}
    if len(given.tenants) * len(sets) > LARGEST:
        raise Invalid(f"tenants times sets is more than {LARGEST:,}", where=where)
    cached = given.cached if isinstance(given.cached, dict) else dict.fromkeys(given.cached, 1.0)
    known = {"tenants": given.benefit.keys() - given.tenants.keys(), "sets": cached.keys() - sets.keys()}
    known["sets"] |= {name for values in given.benefit.values() for name in values.keys() - sets.keys()}
    for kind, missing in known.items():
        if missing:
            raise Invalid(f"{min(missing)!r} is not under `{kind}`", where=f"{where}: {kind}")
    benefit, held = np.zeros((len(given.tenants), len(sets))), np.zeros(len(sets))
    for row, tenant in enumerate(given.tenants):
        for name, value in given.benefit.get(tenant, {}).items():
            benefit[row, sets[name]] = value
    for name, part in cached.items():
        held[sets[name]] = part
    if given.mode is Mode.LOTTERY and ((held > 0) & (held < 1)).any():
        raise Invalid("a set is held whole or not at all in a lottery", where=f"{where}: cached")
    return Problem.of(
        given.mode, given.capacity, [one.size for one in given.sets.values()], benefit, tenants=tuple(given.tenants),
        sets=tuple(given.sets), weight=list(given.tenants.values()), held=held,
        loading=np.array([one.load for one in given.sets.values()]),
    )  # fmt: skip


def answer(decision: Decision) -> dict[str, Any]:
    """The allocation, its gap, what each tenant saves, and the reasons. A gap that is infinite is null."""
    problem, certificate = decision.problem, decision.certificate
    if problem.mode is Mode.LOTTERY:
        shown: dict[str, Any] = {"lottery": [
            {"p": one.probability, "sets": [problem.sets[at] for at in np.flatnonzero(one.fractions)]}
            for one in decision.allocation.configurations
        ]}  # fmt: skip
    else:
        shown = {"fractions": dict(zip(problem.sets, decision.allocation.fractions.tolist(), strict=True))}
    rows = zip(certificate.saved, certificate.alone, decision.own(), certificate.claim, strict=True)
    return {
        **shown,
        "gap": certificate.gap if np.isfinite(certificate.gap) else None,
        "tenants": {
            name: {"saved": float(saved), "alone": float(alone), "own_part": float(own), "claim": float(claim)}
            for name, (saved, alone, own, claim) in zip(problem.tenants, rows, strict=True)
        },
        "reasons": {name: reason.as_json() for name, reason in decision.explain().items()},
    }
