"""The machines: nodes, status, health, metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Path, Request, Response
from prometheus_client import CONTENT_TYPE_LATEST
from prometheus_client.core import Metric

from shoal import __version__
from shoal.admission import NodeState
from shoal.contract import models
from shoal.contract.lifecycle import JobState
from shoal.contract.pages import Page, PageList
from shoal.control.api.context import Ctx
from shoal.control.api.responses import node_views
from shoal.control.api.tenants import tenant_counts
from shoal.core import NotFound, Unavailable
from shoal.extension.describe import fails, shows
from shoal.extension.metrics import gauge
from shoal.extension.routing import Router
from shoal.extension.web import Who, answer

router = Router(tags=["system"])

Name = Annotated[str, Path(description="the node's name", max_length=253)]


@router.get("/v1/nodes", summary="Nodes and who holds what", responses={**shows(models.NodeList), **fails(503)})
async def nodes(context: Ctx, who: Who) -> Response:
    """A tenant sees which devices are taken, but by whom only where it is itself."""
    plane = context.plane
    return answer({"nodes": node_views(plane.nodes(), plane.cache.active(), who)})


@router.post(
    "/v1/nodes/{name}/drain",
    summary="Give a node no new work (admin)",
    responses={**shows(models.NodeList), **fails(403, 404, 422, 503)},
)
async def drain(context: Ctx, who: Who, name: Name, given: models.DrainGiven | None = None) -> Response:
    """What runs there goes on. It stays drained over restarts, and while the node is away."""
    who.require_admin("drain a node")
    await context.plane.drain_node(name, actor=who.actor, because=given.because if given is not None else "")
    return await nodes(context, who)


@router.post(
    "/v1/nodes/{name}/undrain",
    summary="Give a drained node work again (admin)",
    responses={**shows(models.NodeList), **fails(403, 404, 422, 503)},
)
async def undrain(context: Ctx, who: Who, name: Name) -> Response:
    who.require_admin("undrain a node")
    await context.plane.undrain_node(name, actor=who.actor)
    return await nodes(context, who)


_OF_ALL = ("version", "ready", "last_write_failed", "uptime_s", "engine")
"""Of the status, what a tenant learns as well."""


@router.get("/v1/status", summary="How the server is", responses={**shows(models.StatusView), **fails(503)})
async def status(context: Ctx, who: Who) -> Response:
    """A tenant's view counts its own jobs and leaves out the server's inner figures."""
    whole = {"version": __version__, **context.plane.status(await context.read(context.plane.store.job_counts))}
    shown = context.plane.extensions.pages(None if who.admin else who.tenant or "")
    figures = {name: [one.model_dump(mode="json") for one in page.figures] for name, page in shown.items()}
    if who.admin:
        return answer({**whole, "components": figures})
    counts = await tenant_counts(context)
    own: Mapping[str, Any] = {key: whole[key] for key in _OF_ALL if key in whole}
    return answer({**own, "jobs": dict(counts.get(who.tenant or "", {})), "components": figures})


@router.get(
    "/v1/pages", summary="What each component shows of itself", responses={**shows(PageList), **fails(403, 503)}
)
async def pages(context: Ctx, who: Who) -> Response:
    """Key figures, tables, values over time and what may be done, by the component's name; a tenant sees its own."""
    shown = context.plane.extensions.pages(None if who.admin else who.tenant or "")
    return answer(PageList(pages=shown).model_dump(mode="json"))


@router.get(
    "/v1/pages/{component}",
    summary="What a component shows of itself",
    responses={**shows(Page), **fails(403, 404, 422, 503)},
)
async def page(
    context: Ctx, who: Who, component: Annotated[str, Path(description="its name", max_length=64)]
) -> Response:
    found = context.plane.extensions.pages(None if who.admin else who.tenant or "")
    if component not in found:
        hint = f"shown here: {', '.join(found)}" if found else "no component shows anything here"
        raise NotFound(f"no component {component!r} shows anything", where="component", hint=hint)
    return answer(found[component].model_dump(mode="json"))


@router.post(
    "/v1/gc",
    summary="Remove what is over and old (admin)",
    responses={**shows(models.GarbageView), **fails(403, 422, 503)},
)
async def collect_garbage(context: Ctx, who: Who, dry_run: bool = False) -> Response:
    """The server does the same by itself now and then. With `dry_run`, only tells what would be removed."""
    who.require_admin("remove what is over")
    removed = await context.plane.garbage.collect(dry_run=dry_run)
    return answer({"dry_run": dry_run, **asdict(removed)})


@router.get("/healthz", summary="Alive", responses={200: {"content": {"text/plain": {}}}}, response_class=Response)
async def healthz() -> Response:
    return Response("ok\n", media_type="text/plain")


@router.get("/readyz", summary="Ready to accept work", response_class=Response, responses={503: fails(503)[503]})
async def readyz(request: Request) -> Response:
    if not request.app.state.context.plane.ready:
        raise Unavailable("the server is starting or leaving", hint="ask again in a second")
    return Response("ready\n", media_type="text/plain")


@router.get("/metrics", summary="Figures for Prometheus (admin)", response_class=Response, responses=fails(403, 503))
async def metrics(context: Ctx, who: Who) -> Response:
    who.require_admin("read the server's metrics")
    plane = context.plane
    counts = await context.read(plane.store.job_counts)
    snapshot, status = plane.snapshot(), plane.status(counts)
    told = [metric for extension in plane.extensions for metric in extension.metrics()]

    def render() -> bytes:
        return context.metrics.render([*gauges(counts, snapshot.nodes.values(), status), *told])

    return Response(await context.read(render), media_type=CONTENT_TYPE_LATEST)


_FIGURES = {
    "epoch": ("shoal_epoch", "Epoch of the control lease that this server holds."),
    "uptime_s": ("shoal_uptime_seconds", "Since the server opened."),
    "reconcile_s": ("shoal_reconcile_seconds", "What the server's start spent on reconciling."),
    "live": ("shoal_live_jobs", "Jobs that are not over."),
    "decisions": ("shoal_decision_cycles", "Decision cycles since the start."),
    "last_decision_s": ("shoal_last_decision_seconds", "How long the last decision cycle took."),
    "repaired": ("shoal_repaired", "Orphans repaired by the reconciler since the start."),
}
"""Figures of the plane's status that are worth a time series."""


def gauges(
    jobs: Mapping[tuple[str, JobState], int],
    nodes: Iterable[NodeState],
    status: Mapping[str, Any],
) -> list[Metric]:
    """What is shown at each scrape."""
    counts: dict[tuple[str, ...], float] = {
        (tenant, state.value): float(number) for (tenant, state), number in jobs.items()
    }
    devices: Counter[tuple[str, ...]] = Counter()
    free: Counter[tuple[str, ...]] = Counter()
    for node in nodes:
        for device in node.node.devices:
            devices[node.node.name, device.type] += 1
        for kind, ids in node.free_devices.items():
            free[node.node.name, kind] += len(ids)
    found = [
        gauge("shoal_jobs", "Jobs by tenant and state.", ("tenant", "state"), counts),
        gauge("shoal_devices", "Accelerators and slots.", ("node", "type"), devices),
        gauge("shoal_devices_free", "Accelerators and slots that are free.", ("node", "type"), free),
    ]
    for key, (figure, text) in _FIGURES.items():
        found.append(gauge(figure, text, (), {(): float(status[key])}))
    return found
