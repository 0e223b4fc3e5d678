"""`client.notify`: who is told of what, and what was sent."""

from __future__ import annotations

from typing import Any

from shoal.contract.calls import Call, json_body, path_piece, reads, reads_nothing
from shoal.contract.methods import Namespace, single
from shoal.notify.models import DeliveryList, DeliveryView, NewSubscriptionView, SubscriptionList

_SUBSCRIPTIONS, _DELIVERIES = "/v1/notify/subscriptions", "/v1/notify/deliveries"


def add(
    name: str, *, kind: str, address: str, topics: list[str], tenant: str | None = None, **more: Any
) -> Call[NewSubscriptionView]:
    """Subscribe. `more` are the other fields of `shoal.notify.models.SubscriptionRequest`."""
    body, headers = json_body({"name": name, "kind": kind, "address": address, "topics": topics, **more})
    made = reads(NewSubscriptionView)
    return Call("POST", _SUBSCRIPTIONS, made, {"tenant": tenant}, body, headers, repeatable=False)


def subscriptions(*, tenant: str | None = None) -> Call[SubscriptionList]:
    """Who is told what."""
    return Call("GET", _SUBSCRIPTIONS, reads(SubscriptionList), {"tenant": tenant})


def remove(name: str, *, tenant: str | None = None, everyone: bool = False) -> Call[None]:
    """Remove a subscription."""
    return Call("DELETE", _one(name), reads_nothing, _whose(tenant, everyone=everyone))


def trial(name: str, *, tenant: str | None = None, everyone: bool = False) -> Call[DeliveryView]:
    """Send a trial message; its delivery, which is on its way."""
    whose = _whose(tenant, everyone=everyone)
    return Call("POST", f"{_one(name)}/test", reads(DeliveryView), whose, repeatable=False)


def deliveries(*, tenant: str | None = None, state: str | None = None, limit: int = 50) -> Call[DeliveryList]:
    """What was sent, waits, or was given up, the newest first."""
    return Call("GET", _DELIVERIES, reads(DeliveryList), {"tenant": tenant, "state": state, "limit": limit})


def delivery(delivery_id: str) -> Call[DeliveryView]:
    """One delivery."""
    return Call("GET", f"{_DELIVERIES}/{path_piece('delivery', delivery_id)}", reads(DeliveryView))


def retry(delivery_id: str) -> Call[DeliveryView]:
    """Send again what was given up, or at once what waits."""
    return Call("POST", f"{_DELIVERIES}/{path_piece('delivery', delivery_id)}/retry", reads(DeliveryView))


def _one(name: str) -> str:
    return f"{_SUBSCRIPTIONS}/{path_piece('subscription', name)}"


def _whose(tenant: str | None, *, everyone: bool) -> dict[str, Any]:
    return {"tenant": tenant, "everyone": "true" if everyone else None}


class NotifyMethods(Namespace):
    """The methods of `client.notify`."""

    add = single(add)
    subscriptions = single(subscriptions)
    remove = single(remove)
    trial = single(trial)
    deliveries = single(deliveries)
    delivery = single(delivery)
    retry = single(retry)
