"""Reconciliation of our records with the provider's instances. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from shoal.market.live.provider import Instance
from shoal.market.live.records import Rental, RentalState


@dataclass(frozen=True, slots=True)
class Launch:
    """Ask for the instance, perhaps once more: the token makes it one."""

    rental: Rental


@dataclass(frozen=True, slots=True)
class Write:
    """The record becomes this."""

    rental: Rental
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class Extend:
    instance: Instance
    until: float


@dataclass(frozen=True, slots=True)
class Terminate:
    instance: Instance
    why: str
    orphan: bool = False


Action = Launch | Write | Extend | Terminate


def reconcile(
    rentals: Mapping[str, Rental], instances: Iterable[Instance], now: float, *, unseen_s: float = 120.0
) -> list[Action]:
    """`rentals` are those that are open, and ended ones whose instances are listed still. `unseen_s`: a provider may
    list a new instance only so long after its launch; until then one that is not listed is not gone."""
    actions: list[Action] = []
    by_token: dict[str, list[Instance]] = {}
    for instance in instances:
        by_token.setdefault(instance.token, []).append(instance)
    for token, found in by_token.items():
        rental = rentals.get(token)
        found.sort(key=lambda one: (rental is not None and one.id != rental.instance_id, one.ended_at is not None,
                                    one.launched_at, one.id))  # fmt: skip
        for extra in found[1:]:
            if extra.ended_at is None:
                actions.append(Terminate(extra, f"another instance has the token {token}", orphan=True))
        if rental is None:
            if found[0].ended_at is None:
                actions.append(Terminate(found[0], "no record knows it", orphan=True))
            continue
        actions += _one(rental, found[0], now)
    for token, rental in rentals.items():
        if token not in by_token and rental.open:
            actions += _absent(rental, now, unseen_s)
    return actions


def _one(rental: Rental, instance: Instance, now: float) -> list[Action]:
    if rental.state is RentalState.ENDED:
        actions: list[Action] = []
        if instance.ended_at is None:
            actions.append(Terminate(instance, "its record has ended", orphan=True))
        elif not rental.exact or rental.instance_id != instance.id:
            told = rental.ended(rental.cause, instance, now)
            if told != rental:
                actions.append(Write(told))  # the bill came, or an instance that was thought never to be
        return actions
    if instance.ended_at is not None:
        return [Write(rental.ended("the provider ended it", instance, now))]
    if rental.state is RentalState.ENDING:
        return [Terminate(instance, rental.cause)]
    actions = []
    known = rental.launched(instance)
    if known != rental:
        actions.append(Write(known))
    if instance.until < rental.until:
        actions.append(Extend(instance, rental.until))
    return actions


def _absent(rental: Rental, now: float, unseen_s: float) -> list[Action]:
    if now >= rental.until:
        if rental.launched_at is None:
            return [Write(rental.ended("it was never launched", None, now))]
        gone = Instance(rental.instance_id, rental.id, rental.launched_at, rental.until, ended_at=rental.until)
        return [Write(rental.ended("its time was over", gone, now))]
    if rental.state is RentalState.WANTED:
        return [Launch(rental)]
    # An ENDING one that was never seen may have been launched all the same: its money stays set aside until its end.
    if rental.launched_at is not None and now >= rental.launched_at + unseen_s:
        gone = Instance(rental.instance_id, rental.id, rental.launched_at, rental.until, ended_at=now)
        return [Write(rental.ended("the provider does not know it any more", gone, now))]
    return []
