"""Every request the clients know, as a function that builds it. `Client` and `AsyncClient` take their methods here."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel

from shoal.contract.lifecycle import JobState
from shoal.contract.service_lifecycle import ServiceState
from shoal.core import Invalid, PriorityClass
from shoal.sdk import models
from shoal.sdk.effects import Call

M = TypeVar("M", bound=BaseModel)


def _as(model: type[M]) -> Callable[[httpx.Response], M]:
    return lambda response: model.model_validate_json(response.content)


def _nothing(_response: httpx.Response) -> None:
    return None


def _json(value: object) -> tuple[bytes, dict[str, str]]:
    return json.dumps(value).encode(), {"content-type": "application/json"}


def _piece(kind: str, name: str) -> str:
    """`name` as one piece of a path. Nothing is called `..` or `a/b`, and as a path these would lead elsewhere."""
    if "/" in name or not name.strip("."):
        raise Invalid(f"{name!r} cannot be the name of a {kind}", hint="names have letters, digits and dashes")
    return quote(name, safe="")


def _job(ref: str, rest: str = "") -> str:
    return f"/v1/jobs/{_piece('job', ref)}{rest}"


def _service(ref: str, rest: str = "") -> str:
    return f"/v1/services/{_piece('service', ref)}{rest}"


def _tenant(name: str, rest: str = "") -> str:
    return f"/v1/tenants/{_piece('tenant', name)}{rest}"


def _secret(name: str) -> str:
    return f"/v1/secrets/{_piece('secret', name)}"


# --- jobs ---


def submit_text(text: str | bytes, *, key: str, tenant: str | None) -> Call[models.JobView]:
    body = text.encode() if isinstance(text, str) else text
    headers = {"content-type": "application/yaml", "idempotency-key": key}
    return Call("POST", "/v1/jobs", _as(models.JobView), {"tenant": tenant}, body, headers)


def check_text(text: str | bytes, *, tenant: str | None, service: bool = False) -> Call[models.CheckView]:
    body = text.encode() if isinstance(text, str) else text
    headers = {"content-type": "application/yaml"}
    path = "/v1/service-manifests/check" if service else "/v1/manifests/check"
    return Call("POST", path, _as(models.CheckView), {"tenant": tenant}, body, headers)


def import_ffdl(text: str | bytes) -> Call[models.ImportView]:
    """Translate an FfDL manifest; nothing is submitted."""
    body = text.encode() if isinstance(text, str) else text
    headers = {"content-type": "application/yaml"}
    return Call("POST", "/v1/manifests/ffdl", _as(models.ImportView), {}, body, headers)


def upload(archive: bytes, *, tenant: str | None = None) -> Call[models.BundleView]:
    """Upload working files as a tar archive; the answer's `bundle` is what a manifest of that tenant names."""
    headers = {"content-type": "application/x-tar"}
    return Call("POST", "/v1/bundles", _as(models.BundleView), {"tenant": tenant}, archive, headers, wait_s=60.0)


def jobs(
    *,
    tenant: str | None = None,
    state: Iterable[JobState | str] | None = None,
    name: str | None = None,
    limit: int = 100,
    before: str | None = None,
    replicas: bool = False,
) -> Call[models.JobList]:
    """Jobs, newest first; continue with `before=answer.next`. `replicas` lists those of services as well."""
    states = [str(one) for one in state] if state is not None else None
    params = {
        "tenant": tenant, "state": states, "name": name, "limit": limit, "before": before,
        "replicas": "true" if replicas else None,
    }  # fmt: skip
    return Call("GET", "/v1/jobs", _as(models.JobList), params)


def job(ref: str, *, tenant: str | None = None, wait_s: float = 0.0) -> Call[models.JobDetail]:
    """One job by id, unique beginning of its id, or name. With `wait_s`, answers when it is over or that time is."""
    params = {"tenant": tenant, "wait_s": wait_s or None}
    return Call("GET", _job(ref), _as(models.JobDetail), params, wait_s=wait_s)


def cancel(ref: str, *, tenant: str | None = None, cause: str = "") -> Call[models.JobView]:
    """End a job; a running one is asked to stop first, and killed when its grace is over."""
    return Call("POST", _job(ref, "/cancel"), _as(models.JobView), {"tenant": tenant, "cause": cause or None})


def halt(ref: str, *, tenant: str | None = None, cause: str = "") -> Call[models.JobView]:
    """Pause a job; it checkpoints if it can, and `resume` puts it back into the queue."""
    return Call("POST", _job(ref, "/halt"), _as(models.JobView), {"tenant": tenant, "cause": cause or None})


def resume(ref: str, *, tenant: str | None = None, cause: str = "") -> Call[models.JobView]:
    params = {"tenant": tenant, "cause": cause or None}
    return Call("POST", _job(ref, "/resume"), _as(models.JobView), params, repeatable=False)


def explain(ref: str, *, tenant: str | None = None) -> Call[models.ExplanationView]:
    """Why it waits: every cause, what would have to change, and the estimated start."""
    return Call("GET", _job(ref, "/explain"), _as(models.ExplanationView), {"tenant": tenant})


def metrics(
    ref: str, *, tenant: str | None = None, name: str | None = None, limit: int = 1000
) -> Call[list[models.MetricView]]:
    """The newest points that the job reported, oldest of them first."""

    def points(response: httpx.Response) -> list[models.MetricView]:
        return models.MetricList.model_validate_json(response.content).metrics

    return Call("GET", _job(ref, "/metrics"), points, {"tenant": tenant, "name": name, "limit": limit})


def log_piece(
    ref: str,
    *,
    tenant: str | None = None,
    rank: int = 0,
    attempt: int | None = None,
    offset: int = 0,
    limit: int = 1 << 20,
    tail: int | None = None,
    since: float | None = None,
    timestamps: bool = False,
    wait_s: float = 0.0,
) -> Call[models.LogPiece]:
    """A piece of a rank's log from `offset`, of its last `tail` lines, or of what was written after the Unix time
    `since`. With `timestamps` each line follows its time. With `wait_s`, waits so long for something to read."""

    def piece(response: httpx.Response) -> models.LogPiece:
        headers = response.headers
        return models.LogPiece(
            attempt=int(headers["x-shoal-attempt"]),
            offset=int(headers["x-shoal-offset"]),
            next_offset=int(headers["x-shoal-next-offset"]),
            data=response.content,
            ended=headers["x-shoal-ended"],
        )

    params = {
        "tenant": tenant, "rank": rank, "attempt": attempt, "offset": offset, "limit": limit,
        "tail": tail, "since": since, "timestamps": timestamps or None, "wait_s": wait_s or None,
    }  # fmt: skip
    return Call("GET", _job(ref, "/logs"), piece, params, wait_s=wait_s)


def event_page(
    ref: str | None = None,
    *,
    service: str | None = None,
    tenant: str | None = None,
    after: int | None = None,
    limit: int = 500,
    wait_s: float = 0.0,
) -> Call[models.EventList]:
    """A page of events, of one job, one service or all. `limit=0` only tells the newest position."""
    path = "/v1/events"
    if ref is not None:
        path = _job(ref, "/events")
    elif service is not None:
        path = _service(service, "/events")
    params = {"tenant": tenant, "after": after, "limit": limit, "wait_s": wait_s or None}
    return Call("GET", path, _as(models.EventList), params, wait_s=wait_s)


# --- services ---


def deploy_text(text: str | bytes, *, key: str, tenant: str | None) -> Call[models.ServiceView]:
    body = text.encode() if isinstance(text, str) else text
    headers = {"content-type": "application/yaml", "idempotency-key": key}
    return Call("POST", "/v1/services", _as(models.ServiceView), {"tenant": tenant}, body, headers)


def services(
    *,
    tenant: str | None = None,
    state: Iterable[ServiceState | str] | None = None,
    name: str | None = None,
    limit: int = 100,
    before: str | None = None,
) -> Call[models.ServiceList]:
    """Services, newest first, without those that are STOPPED unless `state` asks for them."""
    states = [str(one) for one in state] if state is not None else None
    params = {"tenant": tenant, "state": states, "name": name, "limit": limit, "before": before}
    return Call("GET", "/v1/services", _as(models.ServiceList), params)


def service(ref: str, *, tenant: str | None = None, wait_s: float = 0.0) -> Call[models.ServiceDetail]:
    """One service by name or id, with its replicas. With `wait_s`, answers when it is ready, or will not be by waiting,
    or has stopped; or when that time is over."""
    params = {"tenant": tenant, "wait_s": wait_s or None}
    return Call("GET", _service(ref), _as(models.ServiceDetail), params, wait_s=wait_s)


def scale(ref: str, replicas: int, *, tenant: str | None = None, cause: str = "") -> Call[models.ServiceView]:
    """Change how many replicas are wanted; 0 keeps the service without any."""
    body, headers = _json({"replicas": replicas})
    params = {"tenant": tenant, "cause": cause or None}
    return Call("POST", _service(ref, "/scale"), _as(models.ServiceView), params, body, headers)


def undeploy(ref: str, *, tenant: str | None = None, cause: str = "") -> Call[models.ServiceView]:
    """End a service: its replicas are asked to end, and it is STOPPED when all have."""
    params = {"tenant": tenant, "cause": cause or None}
    return Call("DELETE", _service(ref), _as(models.ServiceView), params)


def explain_service(ref: str, *, tenant: str | None = None) -> Call[models.ServiceExplanationView]:
    """Why it is not ready: the gateway's reasons and each replica's."""
    return Call("GET", _service(ref, "/explain"), _as(models.ServiceExplanationView), {"tenant": tenant})


# --- tenants, tokens, secrets ---


def tenants() -> Call[list[models.TenantView]]:
    def listed(response: httpx.Response) -> list[models.TenantView]:
        return models.TenantList.model_validate_json(response.content).tenants

    return Call("GET", "/v1/tenants", listed)


def tenant(name: str) -> Call[models.TenantView]:
    return Call("GET", _tenant(name), _as(models.TenantView))


def create_tenant(
    name: str,
    *,
    weight: float = 1.0,
    quota: Mapping[str, Any] | None = None,
    max_priority_class: PriorityClass | str = PriorityClass.GUARANTEED,
) -> Call[models.TenantView]:
    """`quota` as in `QuotaView`; what it leaves out is unlimited."""
    body, headers = _json(
        {"name": name, "weight": weight, "quota": dict(quota or {}), "max_priority_class": str(max_priority_class)}
    )
    return Call("POST", "/v1/tenants", _as(models.TenantView), {}, body, headers, repeatable=False)


def change_tenant(
    name: str,
    *,
    weight: float | None = None,
    quota: Mapping[str, Any] | None = None,
    max_priority_class: PriorityClass | str | None = None,
) -> Call[models.TenantView]:
    """Only what is given changes; None within `quota` lifts that limit."""
    given = {
        "weight": weight,
        "quota": dict(quota) if quota is not None else None,
        "max_priority_class": str(max_priority_class) if max_priority_class is not None else None,
    }
    body, headers = _json({key: value for key, value in given.items() if value is not None})
    return Call("PATCH", _tenant(name), _as(models.TenantView), {}, body, headers)


def create_token(tenant: str, *, label: str = "") -> Call[models.NewTokenView]:
    """A new token, shown this once."""
    body, headers = _json({"label": label})
    path = _tenant(tenant, "/tokens")
    return Call("POST", path, _as(models.NewTokenView), {}, body, headers, repeatable=False)


def tokens(tenant: str) -> Call[list[models.TokenView]]:
    def listed(response: httpx.Response) -> list[models.TokenView]:
        return models.TokenList.model_validate_json(response.content).tokens

    return Call("GET", _tenant(tenant, "/tokens"), listed)


def revoke_token(token_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/tokens/{_piece('token', token_id)}", _nothing)


def secrets(*, tenant: str | None = None) -> Call[list[models.SecretView]]:
    """Names only: a stored secret is never shown."""

    def listed(response: httpx.Response) -> list[models.SecretView]:
        return models.SecretList.model_validate_json(response.content).secrets

    return Call("GET", "/v1/secrets", listed, {"tenant": tenant})


def set_secret(name: str, value: str, *, tenant: str | None = None) -> Call[None]:
    body, headers = _json({"value": value})
    return Call("PUT", _secret(name), _nothing, {"tenant": tenant}, body, headers)


def delete_secret(name: str, *, tenant: str | None = None) -> Call[None]:
    return Call("DELETE", _secret(name), _nothing, {"tenant": tenant}, repeatable=False)


# --- the server ---


def nodes() -> Call[list[models.NodeView]]:
    def listed(response: httpx.Response) -> list[models.NodeView]:
        return models.NodeList.model_validate_json(response.content).nodes

    return Call("GET", "/v1/nodes", listed)


def schedule_snapshot() -> Call[str]:
    """The live state as JSON lines that `shoal schedule` reads (admin)."""
    return Call("GET", "/v1/schedule/snapshot", lambda response: response.text)


def collect_garbage(*, dry_run: bool = False) -> Call[models.GarbageView]:
    """Remove what is over and old (admin); with `dry_run`, only tell what that would be."""
    params = {"dry_run": "true" if dry_run else None}
    return Call("POST", "/v1/gc", _as(models.GarbageView), params, wait_s=600.0)


def status() -> Call[models.StatusView]:
    return Call("GET", "/v1/status", _as(models.StatusView))
