"""Plan for a service: a pure function of its row, its replicas, and what the gateway says of them.

Updates follow the rolling update of Kubernetes' deployment controller: at most one replica more than wanted (`surge`)
or one fewer (`replace`), and older replicas leave only as far as ready ones stay enough. Those that are not ready go
first. Generations that never served anything leave at once: no client depends on them, and they may hold the very
capacity that their repair needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from shoal.contract.lifecycle import JobState
from shoal.core import Reason
from shoal.serve.lifecycle import (
    EMPTY,
    FAILING,
    GATEWAY,
    MODEL,
    ROLLING,
    STARTING,
    STOPPING,
    WAITING,
    ServiceState,
)
from shoal.serve.live.records import ServiceRecord

FAILURES = 3
"""A replica that ended so often in a row is said to fail."""


@dataclass(frozen=True, slots=True)
class PlannedReplica:
    """One that has not ended. `leaving` once it was asked to. `failures` counts its ends since it last ran well; `last`
    says how it ended last, `why` why it waits."""

    job_id: str
    name: str
    index: int
    generation: int
    state: JobState
    leaving: bool = False
    failures: int = 0
    last: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class ObservedService:
    """What the gateway says of one service.

    `alive` False: there is no gateway to say anything, for the reason `why`; `failing` when there will hardly be one.
    `ready` are names of replicas; `loading` says of each other connected one what it is at, `broken` which of those
    cannot load a model, and why.
    """

    alive: bool
    why: str = ""
    ready: frozenset[str] = frozenset()
    loading: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, str] = field(default_factory=dict)
    failing: bool = False


UNSEEN = ObservedService(False, "the gateway was not asked yet")


@dataclass(frozen=True, slots=True)
class Cancel:
    job_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Start `create` replicas of the present generation, end some, and write down the state with its reason. `serves`
    is the newest generation of which a replica was ever ready."""

    create: int
    cancel: tuple[Cancel, ...]
    state: ServiceState
    reason: Reason | None
    serves: int


def plan(
    service: ServiceRecord, replicas: Sequence[PlannedReplica], observed: ObservedService, *, surge: bool = True
) -> Plan:
    """`surge`: an update starts a new replica before an old one ends; else an old one ends first."""
    if service.state is ServiceState.STOPPING:
        return _stop(service, replicas)
    staying = [replica for replica in replicas if not replica.leaving]
    ready = [replica for replica in staying if replica.name in observed.ready]
    serves = max((service.serves, *(replica.generation for replica in ready)))
    never = [replica for replica in staying if service.serves < replica.generation < service.generation]
    never = [replica for replica in never if replica not in ready]
    cancel = [Cancel(one.job_id, f"generation {one.generation} never served, and is replaced") for one in never]
    current = [replica for replica in staying if replica.generation == service.generation]
    older = [replica for replica in staying if replica.generation < service.generation and replica not in never]

    cancel += _surplus(service, current, ready)
    if observed.alive:
        cancel += _replaced(service, current, older, ready, least=service.replicas - (0 if surge else 1))
    given_up = _given_up(service)
    if given_up is not None and not older:
        # A replica that cannot load its models never will: it leaves its room to others until the next deployment.
        why = observed.broken
        cancel += [Cancel(one.job_id, f"it failed: {why[one.name]}") for one in current if one.name in why]
        if not current:
            return Plan(0, tuple(cancel), ServiceState.FAILED, given_up, serves)
    going = {one.job_id for one in cancel}
    most = service.replicas + (1 if surge and older else 0)
    left = sum(replica.job_id not in going for replica in (*current, *older))
    create = 0 if given_up is not None else max(0, min(service.replicas - len(current), most - left))
    state, reason = _judge(service, current, older, ready, observed)
    return Plan(create, tuple(cancel), state, reason, serves)


def _given_up(service: ServiceRecord) -> Reason | None:
    """Why the service was found to have failed for a model that cannot be loaded, if it was."""
    found = service.reason
    return found if service.state is ServiceState.FAILED and found is not None and found.code == MODEL else None


def _stop(service: ServiceRecord, replicas: Sequence[PlannedReplica]) -> Plan:
    if not replicas:
        return Plan(0, (), ServiceState.STOPPED, None, service.serves)
    cancel = tuple(Cancel(one.job_id, "its service is stopping") for one in replicas if not one.leaving)
    left = f"{len(replicas)} replica{' has' if len(replicas) == 1 else 's have'} not ended yet"
    return Plan(0, cancel, ServiceState.STOPPING, Reason(STOPPING, left), service.serves)


def _surplus(
    service: ServiceRecord, current: Sequence[PlannedReplica], ready: Sequence[PlannedReplica]
) -> list[Cancel]:
    """More of the present generation than wanted: those that are not ready leave first, then the newest."""
    order = sorted(current, key=lambda one: (one in ready, -one.index))
    going = order[: max(0, len(current) - service.replicas)]
    return [Cancel(one.job_id, f"{service.replicas} replicas are wanted") for one in going]


def _replaced(
    service: ServiceRecord,
    current: Sequence[PlannedReplica],
    older: Sequence[PlannedReplica],
    ready: Sequence[PlannedReplica],
    *,
    least: int,
) -> list[Cancel]:
    """Older replicas that the new ones make superfluous, those that are not ready first. As many stay as new ones are
    not ready yet, so that no fewer than `least` are ready unless they were fewer before."""
    unready_new = sum(replica not in ready for replica in current)
    may_go = max(0, len(current) + len(older) - max(0, least) - unready_new)
    going = sorted(older, key=lambda one: (one in ready, one.generation, one.index))[:may_go]
    return [Cancel(one.job_id, f"replaced by generation {service.generation}") for one in going]


def _judge(
    service: ServiceRecord,
    current: Sequence[PlannedReplica],
    older: Sequence[PlannedReplica],
    ready: Sequence[PlannedReplica],
    observed: ObservedService,
) -> tuple[ServiceState, Reason | None]:
    wanted = service.replicas
    ready_new = sum(replica in ready for replica in current)
    if ready_new >= wanted and not older and (observed.alive or wanted == 0):
        return ServiceState.READY, Reason(EMPTY, "it is scaled to no replica") if wanted == 0 else None
    counts = f"{ready_new} of {wanted} replica{'' if wanted == 1 else 's'} ready"
    facts = {"ready": ready_new, "wanted": wanted, "older": len(older), "generation": service.generation}
    if not observed.alive:
        state = ServiceState.FAILED if observed.failing else _unsettled(service)
        return state, Reason(GATEWAY, f"{counts}: {observed.why}", facts)
    trouble = _trouble(current, ready, observed)
    if trouble is not None:
        code, about = trouble
        goes_on = [one.generation for one in older if one in ready]
        serving = f", generation {max(goes_on)} goes on serving" if goes_on else ""
        reason = Reason(code, f"{counts}{serving}: {about}", facts)
        return (ServiceState.DEGRADED if ready else ServiceState.FAILED), reason
    code, about = _delay(current, older, ready, observed)
    return _unsettled(service), Reason(code, f"{counts}: {about}", facts)


def _unsettled(service: ServiceRecord) -> ServiceState:
    """Neither complete nor in trouble: it is on its way, or something that was there is missing."""
    complete_before = service.state in (ServiceState.READY, ServiceState.DEGRADED)
    return ServiceState.DEGRADED if complete_before else ServiceState.DEPLOYING


def _trouble(
    current: Sequence[PlannedReplica], ready: Sequence[PlannedReplica], observed: ObservedService
) -> tuple[str, str] | None:
    """One of `TROUBLES`, if there is any."""
    for replica in current:
        if replica in ready:
            continue
        if replica.name in observed.broken:
            return MODEL, f"{replica.name}: {observed.broken[replica.name]}"
        if replica.failures >= FAILURES:
            return FAILING, f"{replica.name} ended {replica.failures} times: {replica.last}"
    return None


def _delay(
    current: Sequence[PlannedReplica],
    older: Sequence[PlannedReplica],
    ready: Sequence[PlannedReplica],
    observed: ObservedService,
) -> tuple[str, str]:
    unready = [replica for replica in current if replica not in ready]
    code = ROLLING if older else STARTING
    for replica in unready:
        if replica.state is JobState.QUEUED and replica.why:
            return WAITING, f"{replica.name} {replica.why}"
    for replica in unready:
        if replica.name in observed.loading:
            return code, f"{replica.name} loads its models ({observed.loading[replica.name]})"
        if replica.state is not JobState.QUEUED:
            return code, f"{replica.name} is starting"
    if unready:
        return code, f"{unready[0].name} waits for its turn"
    if older:
        return code, f"generation {max(replica.generation for replica in older)} is being replaced"
    return code, "replicas are being started"
