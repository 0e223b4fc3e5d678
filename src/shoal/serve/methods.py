"""`client.services`: deploy services, wait for them, see why they are as they are."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from shoal.contract import bundle
from shoal.contract.calls import Call, Exchange, Flow, Pause, fresh_key, json_body, path_piece, reads, reads_mapping
from shoal.contract.methods import Namespace, Operation, Stream, single
from shoal.contract.models import CheckView, EventList, EventView
from shoal.contract.sending import Manifest, called, follow_events, manifest_text, time_left, upload
from shoal.core import NotFound, ShoalError, Unavailable
from shoal.serve.lifecycle import ServiceState
from shoal.serve.models import ServiceDetail, ServiceExplanationView, ServiceHistory, ServiceList, ServiceView

_SETTLED_PAUSE_S = 0.5


def _service(ref: str, rest: str = "") -> str:
    return f"/v1/services/{path_piece('service', ref)}{rest}"


def deploy_text(text: str | bytes, *, key: str, tenant: str | None) -> Call[ServiceView]:
    body = text.encode() if isinstance(text, str) else text
    headers = {"content-type": "application/yaml", "idempotency-key": key}
    return Call("POST", "/v1/services", reads(ServiceView), {"tenant": tenant}, body, headers)


def list_services(
    *,
    tenant: str | None = None,
    state: Iterable[ServiceState | str] | None = None,
    name: str | None = None,
    limit: int = 100,
    before: str | None = None,
) -> Call[ServiceList]:
    """Services, newest first, without those that are STOPPED unless `state` asks for them."""
    states = [str(one) for one in state] if state is not None else None
    params = {"tenant": tenant, "state": states, "name": name, "limit": limit, "before": before}
    return Call("GET", "/v1/services", reads(ServiceList), params)


def get_service(ref: str, *, tenant: str | None = None, wait_s: float = 0.0) -> Call[ServiceDetail]:
    """One service by name or id, with its replicas. With `wait_s`, answers when it is ready, or will not be by waiting,
    or has stopped; or when that time is over."""
    params = {"tenant": tenant, "wait_s": wait_s or None}
    return Call("GET", _service(ref), reads(ServiceDetail), params, wait_s=wait_s)


def scale(ref: str, replicas: int, *, tenant: str | None = None, cause: str = "") -> Call[ServiceView]:
    """Change how many replicas are wanted; 0 keeps the service without any."""
    body, headers = json_body({"replicas": replicas})
    params = {"tenant": tenant, "cause": cause or None}
    return Call("POST", _service(ref, "/scale"), reads(ServiceView), params, body, headers)


def undeploy(ref: str, *, tenant: str | None = None, cause: str = "") -> Call[ServiceView]:
    """End a service: its replicas are asked to end, and it is STOPPED when all have."""
    params = {"tenant": tenant, "cause": cause or None}
    return Call("DELETE", _service(ref), reads(ServiceView), params)


def explain(ref: str, *, tenant: str | None = None) -> Call[ServiceExplanationView]:
    """Why it is not ready: the gateway's reasons and each replica's."""
    return Call("GET", _service(ref, "/explain"), reads(ServiceExplanationView), {"tenant": tenant})


def history(ref: str, *, tenant: str | None = None) -> Call[ServiceHistory]:
    """Latency, rate and refusals as the gateway measured them, of a day at most."""
    return Call("GET", _service(ref, "/history"), reads(ServiceHistory), {"tenant": tenant})


def check_text(text: str | bytes, *, tenant: str | None) -> Call[CheckView]:
    body = text.encode() if isinstance(text, str) else text
    headers = {"content-type": "application/yaml"}
    return Call("POST", "/v1/service-manifests/check", reads(CheckView), {"tenant": tenant}, body, headers)


def manifest_schema() -> Call[dict[str, Any]]:
    """The JSON Schema that the server checks a service's manifest by."""
    return Call("GET", "/v1/service-manifests/schema", reads_mapping)


def event_page(
    ref: str, *, tenant: str | None = None, after: int | None = None, limit: int = 500, wait_s: float = 0.0
) -> Call[EventList]:
    """A page of events of one service and its replicas."""
    params = {"tenant": tenant, "after": after, "limit": limit, "wait_s": wait_s or None}
    return Call("GET", _service(ref, "/events"), reads(EventList), params, wait_s=wait_s)


def deploy(
    exchange: Exchange,
    manifest: Manifest,
    *,
    tenant: str | None = None,
    idempotency_key: str | None = None,
    base: str | Path | None = None,
) -> Flow[ServiceView]:
    """Deploy a service, or update the one of this name; it is durable when this returns, and served a little later:
    see `wait_ready`.

    Its `files`, and models that are files, are packed relative to `base` (default: the manifest's directory, else the
    present one) and uploaded first. Without an `idempotency_key` a fresh one is made.
    """
    from shoal.serve.manifest import parse_service

    text, folder, source = manifest_text(manifest, base)
    parsed = parse_service(text, source=source)
    uploads = parsed.uploads()
    if uploads:
        archive = bundle.pack(folder, uploads, too_much="name a large model by its path on the server, or by a URL")
        uploaded = yield from exchange.perform(upload(archive, tenant=tenant or parsed.tenant))
        text = parsed.with_bundle(uploaded.bundle).canonical_json()
    key = idempotency_key or fresh_key()
    with called(source):
        return (yield from exchange.perform(deploy_text(text, key=key, tenant=tenant)))


def wait_ready(
    exchange: Exchange, ref: str, *, tenant: str | None = None, timeout_s: float | None = None
) -> Flow[ServiceDetail]:
    """The service once it is READY. Raises ShoalError when it will hardly be by waiting (it failed, an update does not
    come up, it was stopped), and Unavailable when `timeout_s` passes before; both say why."""
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        service = yield from exchange.perform(get_service(ref, tenant=tenant, wait_s=time_left(give_up_at)))
        if service.state is ServiceState.READY:
            return service
        why = f": {service.reason.text}" if service.reason is not None else ""
        hint = f"`shoal explain {service.name}` tells more"
        if service.settled or service.state is ServiceState.STOPPING:
            raise ShoalError(f"service {service.name} is {service.state}{why}", where=service.id, hint=hint)
        if give_up_at is not None and time.monotonic() >= give_up_at:
            what = f"service {service.name} is still {service.state} after {timeout_s:g} s{why}"
            raise Unavailable(what, where=service.id, hint=hint)
        ref = service.id


def wait_stopped(
    exchange: Exchange, ref: str, *, tenant: str | None = None, timeout_s: float | None = None
) -> Flow[ServiceDetail]:
    """The service once it is STOPPED. Raises Unavailable when `timeout_s` passes before."""
    give_up_at = None if timeout_s is None else time.monotonic() + timeout_s
    while True:
        service = yield from exchange.perform(get_service(ref, tenant=tenant, wait_s=time_left(give_up_at)))
        if service.state.terminal:
            return service
        if give_up_at is not None and time.monotonic() >= give_up_at:
            what = f"service {service.name} is still {service.state} after {timeout_s:g} s"
            raise Unavailable(what, where=service.id)
        if service.settled:
            yield Pause(_SETTLED_PAUSE_S)  # it was not asked to stop yet: the server would answer at once
        ref = service.id


def check(exchange: Exchange, manifest: Manifest, *, tenant: str | None = None) -> Flow[CheckView]:
    """What would become of a service's manifest, without deploying it. Raises Invalid with every problem."""
    text, _, source = manifest_text(manifest, None)
    with called(source):
        return (yield from exchange.perform(check_text(text, tenant=tenant)))


def events(
    exchange: Exchange, ref: str, *, tenant: str | None = None, after: int | None = None, follow: bool = False
) -> Flow[None]:
    """Events of one service and its replicas in order; each comes once. Following ends with the service."""
    yield from follow_events(
        exchange,
        lambda after, wait_s: event_page(ref, tenant=tenant, after=after, wait_s=wait_s),
        after=after or 0,
        follow=follow,
        ends=_ends,
    )


def _ends(event: EventView) -> bool:
    if event.new_state is None or event.kind != "service.state":
        return False
    return ServiceState(event.new_state).terminal


_ALL = 1000


def running(exchange: Exchange) -> Flow[list[str]]:
    """The services that are not STOPPED, as `service NAME`; none where a server has no services."""
    return [f"service {one.name}" for one in (yield from _all(exchange))]


def _all(exchange: Exchange) -> Flow[list[ServiceView]]:
    try:
        return (yield from exchange.perform(list_services(limit=_ALL))).services
    except NotFound:  # services are off there
        return []


def stop_all(exchange: Exchange, *, timeout_s: float) -> Flow[None]:
    """Undeploy all services, and wait until they are STOPPED. Raises Unavailable when one is not by then."""
    give_up_at = time.monotonic() + timeout_s
    found = yield from _all(exchange)
    for one in found:
        yield from exchange.perform(undeploy(one.id, cause="the server is to stop with its jobs"))
    for one in found:
        yield from wait_stopped(exchange, one.id, timeout_s=max(0.0, give_up_at - time.monotonic()))


class Services(Namespace):
    """The methods of `client.services`."""

    deploy = Operation(deploy)
    check = Operation(check)
    manifest_schema = single(manifest_schema)
    wait_ready = Operation(wait_ready)
    wait_stopped = Operation(wait_stopped)
    events = Stream(events, EventView)
    running = Operation(running)
    stop_all = Operation(stop_all)

    list = single(list_services)
    get = single(get_service)
    scale = single(scale)
    undeploy = single(undeploy)
    explain = single(explain)
    history = single(history)
    event_page = single(event_page)
