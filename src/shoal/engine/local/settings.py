"""The engine's own section of the server's settings."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from shoal.core import OWN_PREFIX, Effect, Taint


def _read_labels(value: object) -> object:
    """`zone=a,disk=ssd`, or a mapping in the settings file."""
    if not isinstance(value, str):
        return value
    parts = [part.strip().partition("=") for part in value.split(",") if part.strip()]
    if not all(equals and name.strip() for name, equals, _ in parts):
        raise ValueError(f"must be LABEL=VALUE,..., not {value!r}")
    return {name.strip(): text.strip() for name, _, text in parts}


def _read_taints(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _foreign(labels: dict[str, str]) -> dict[str, str]:
    for name in labels:
        if name.startswith(OWN_PREFIX):
            raise ValueError(f"labels that begin with {OWN_PREFIX} are the server's own: {name}")
    return labels


def taint_of(text: str) -> Taint:
    """Of `LABEL=VALUE:EFFECT` or `LABEL:EFFECT`. Raises ValueError."""
    rest, _, effect = text.partition(":")
    label, _, value = rest.partition("=")
    if not label or effect not in [*Effect]:
        raise ValueError(f"must be LABEL=VALUE:EFFECT with one of {', '.join(Effect)}, not {text!r}")
    _foreign({label: value})
    return Taint(label, value, Effect(effect))


def _check(taints: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(str(taint_of(one)) for one in taints)


class LocalSettings(BaseModel):
    """What this machine says of itself to jobs that choose nodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    labels: Annotated[dict[str, str], BeforeValidator(_read_labels), AfterValidator(_foreign)] = Field(
        default_factory=dict,
        description="labels of this machine, which `nodes` of a manifest may ask for: zone=a,disk=ssd",
    )
    taints: Annotated[tuple[str, ...], BeforeValidator(_read_taints), AfterValidator(_check)] = Field(
        default=(),
        description="taints of this machine, which keep jobs off that do not tolerate them: team=red:NoSchedule",
    )
