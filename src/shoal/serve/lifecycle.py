"""The life of a service: states, the one table of legal transitions, and the kinds of events."""

from __future__ import annotations

from enum import StrEnum

from shoal.contract.events import EventKinds
from shoal.core import Conflict


class ServiceEvent(EventKinds):
    """The kinds of events that services have beside those of their replicas."""

    DEPLOYED = "service.deployed", "A service was deployed or updated."
    SCALED = "service.scaled", "The number of replicas that a service should have was changed."
    STATE = "service.state", "A service stepped from one state to another."
    MODEL = "service.model", "A model's runtime gives it another state than before."
    WAITING = "service.waiting", "The reason for which a service is not ready is another one now."


class ServiceState(StrEnum):
    """DEPLOYING: what is wanted is not complete yet. READY: every wanted replica takes requests. DEGRADED: it was
    complete and something is missing now, or an update does not come up while older replicas go on serving. FAILED: it
    does not come up and nothing serves; it is tried on all the same, and a new deployment may mend it. STOPPED is the
    only end."""

    DEPLOYING = "DEPLOYING"
    READY = "READY"
    DEGRADED = "DEGRADED"
    FAILED = "FAILED"
    STOPPING = "STOPPING"
    STOPPED = "STOPPED"

    @property
    def terminal(self) -> bool:
        return self is ServiceState.STOPPED


GATEWAY, FAILING, MODEL, WAITING, STARTING, ROLLING, EMPTY, STOPPING = (
    "gateway", "failing", "model", "waiting", "starting", "rolling", "empty", "stopping",
)  # fmt: skip
"""Codes of why a service is not ready."""

TROUBLES = frozenset({FAILING, MODEL})
"""Those that waiting alone will hardly mend."""

_S = ServiceState

TRANSITIONS: dict[ServiceState, frozenset[ServiceState]] = {
    _S.DEPLOYING: frozenset({_S.READY, _S.DEGRADED, _S.FAILED, _S.STOPPING}),
    _S.READY: frozenset({_S.DEPLOYING, _S.DEGRADED, _S.FAILED, _S.STOPPING}),
    _S.DEGRADED: frozenset({_S.DEPLOYING, _S.READY, _S.FAILED, _S.STOPPING}),
    _S.FAILED: frozenset({_S.DEPLOYING, _S.READY, _S.DEGRADED, _S.STOPPING}),
    _S.STOPPING: frozenset({_S.STOPPED}),
    _S.STOPPED: frozenset(),
}
"""From each state, the states a service may step to."""


def check_step(old: ServiceState, new: ServiceState, *, service_id: str = "") -> None:
    """Raise Conflict when the step is not in the table."""
    if new not in TRANSITIONS[old]:
        allowed = ", ".join(sorted(TRANSITIONS[old])) or "nothing: the state is final"
        raise Conflict(f"a service cannot go from {old} to {new}", where=service_id or None, hint=f"allowed: {allowed}")
