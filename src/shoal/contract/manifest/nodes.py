"""On which nodes a job may run: `nodes: {require: ..., prefer: ..., tolerate: ...}`."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from shoal.base.validation import shown
from shoal.contract.manifest.quantities import problem
from shoal.contract.manifest.values import Part, json_of
from shoal.core import OWN_PREFIX, Affinity, Effect, Preference, Toleration

_WORD = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_LABEL = re.compile(rf"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]{{0,251}}[A-Za-z0-9])?/)?{_WORD}")
_VALUE = re.compile(_WORD)
LABEL_HINT = "letters, digits, dots, dashes and underscores, with an optional DOMAIN/ before them"
TOLERATION_HINT = "LABEL, LABEL=VALUE or LABEL=VALUE:EFFECT, as `kubectl taint` writes taints"


def read_label(value: Any) -> str:
    """The name of a label, as Kubernetes allows it."""
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise problem(f"{shown(value)} is not the name of a label", LABEL_HINT)
    return value


def read_value(value: Any) -> str:
    """A value of a label."""
    if not isinstance(value, str):
        raise problem(f"{shown(value)} is no text", "values of labels are text: quote numbers, yes and no")
    if not _VALUE.fullmatch(value):
        raise problem(f"{shown(value)} is not a label's value", "1 to 63 letters, digits, dots, dashes, underscores")
    return value


def _read_labels(value: Any) -> Any:
    """Of each label one value or a list of them; in the order of their names."""
    if not isinstance(value, dict):
        raise problem(f"{shown(value)} does not name labels", "write {LABEL: VALUE} or {LABEL: [VALUE, ...]}")
    found = {}
    for name in sorted(value, key=str):
        values = value[name] if isinstance(value[name], list | tuple) else [value[name]]
        if not values:
            raise problem(f"label {name} has no value", "write {LABEL: VALUE} or {LABEL: [VALUE, ...]}")
        found[read_label(name)] = tuple(dict.fromkeys(read_value(one) for one in values))
    return found


def read_toleration(value: Any) -> str:
    """A taint that is tolerated, in the words of `kubectl taint`."""
    if not isinstance(value, str):
        raise problem(f"{shown(value)} does not name a taint", TOLERATION_HINT)
    given = toleration_of(value)
    if given.label.startswith(OWN_PREFIX):
        raise problem(f"{shown(given.label)} is the server's own taint, which no manifest tolerates", TOLERATION_HINT)
    return str(given)


def toleration_of(text: str) -> Toleration:
    """Raises a problem for what does not name a taint."""
    rest, colon, effect = text.partition(":")
    label, equals, value = rest.partition("=")
    if colon and effect not in [*Effect]:
        raise problem(f"{shown(effect)} is no effect of a taint", f"it is one of {', '.join(Effect)}")
    return Toleration(
        read_label(label), read_value(value) if equals else None, Effect(effect) if colon else None
    )  # fmt: skip


NodeLabels = Annotated[
    dict[str, tuple[str, ...]],
    BeforeValidator(_read_labels),
    Field(max_length=16),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
            },
        }
    ),
]


class PreferredNodes(Part):
    """Nodes with all these labels are worth `weight` seconds to the job: about as much run time as it saves there."""

    labels: NodeLabels = Field(description="a value of each label, or a list of which one is enough", min_length=1)
    weight: Annotated[float, Field(strict=True, gt=0, le=1_000_000)] = Field(
        default=1.0, description="the run time that the job saves there, in seconds; weights of one node add up"
    )


class Nodes(Part):
    """On which nodes it may run, by their labels and taints: `shoal nodes --json` shows both."""

    require: NodeLabels = Field(
        default={}, description="only nodes with all these labels: a value of each, or a list of which one is enough"
    )
    prefer: tuple[PreferredNodes, ...] = Field(
        default=(), max_length=16, description="of the nodes on which the whole job fits, first those worth most"
    )
    tolerate: tuple[Annotated[str, BeforeValidator(read_toleration), json_of("string", TOLERATION_HINT)], ...] = Field(
        default=(), max_length=16, description="taints of nodes that do not keep it away: LABEL[=VALUE][:EFFECT]"
    )

    @cached_property
    def affinity(self) -> Affinity:
        return Affinity(
            tuple(self.require.items()),
            tuple(Preference(tuple(one.labels.items()), one.weight) for one in self.prefer),
            tuple(toleration_of(one) for one in self.tolerate),
        )

    @classmethod
    def of(cls, affinity: Affinity) -> Nodes | None:
        """The section that says this; None for one that says nothing."""
        if not affinity:
            return None
        prefer = [PreferredNodes(labels=dict(one.labels), weight=one.seconds_saved) for one in affinity.prefer]
        tolerate = [str(one) for one in affinity.tolerate]
        return cls.model_validate({"require": dict(affinity.require), "prefer": prefer, "tolerate": tolerate})
