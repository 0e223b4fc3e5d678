"""Every request the clients know, as a function that builds it. `Client` and `AsyncClient` take their methods here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from shoal.contract.calls import Call, json_body, path_piece, reads, reads_mapping, reads_nothing
from shoal.contract.lifecycle import JobOrder, JobState
from shoal.contract.pages import Page, PageList
from shoal.contract.principal import TokenRole
from shoal.core import PriorityClass, Sandbox
from shoal.sdk import models

if TYPE_CHECKING:
    import httpx


def _job(ref: str, rest: str = "") -> str:
    return f"/v1/jobs/{path_piece('job', ref)}{rest}"


def _tenant(name: str, rest: str = "") -> str:
    return f"/v1/tenants/{path_piece('tenant', name)}{rest}"


def _secret(name: str) -> str:
    return f"/v1/secrets/{path_piece('secret', name)}"


# --- jobs ---


def manifest_schema() -> Call[dict[str, Any]]:
    """The JSON Schema that the server checks a job's manifest by."""
    return Call("GET", "/v1/manifests/schema", reads_mapping)


def submit_text(text: str | bytes, *, key: str, tenant: str | None) -> Call[models.SubmittedView]:
    body = text.encode() if isinstance(text, str) else text
    headers = {"content-type": "application/yaml", "idempotency-key": key}
    return Call("POST", "/v1/jobs", reads(models.SubmittedView), {"tenant": tenant}, body, headers)


def check_text(text: str | bytes, *, tenant: str | None) -> Call[models.CheckView]:
    body = text.encode() if isinstance(text, str) else text
    headers = {"content-type": "application/yaml"}
    return Call("POST", "/v1/manifests/check", reads(models.CheckView), {"tenant": tenant}, body, headers)


def jobs(
    *,
    tenant: str | None = None,
    state: Iterable[JobState | str] | None = None,
    name: str | None = None,
    since: float | None = None,
    sort: JobOrder | str | None = None,
    limit: int = 100,
    before: str | None = None,
    owned: bool = False,
    fold: bool = False,
) -> Call[models.JobList]:
    """Jobs, newest first unless `sort` says otherwise; continue with `before=answer.next`. In `name`, * stands for any
    text and ? for any character. `since`: the Unix time of the earliest submission. `owned` lists those of services
    as well. With `fold`, job arrays come in place of their tasks."""
    states = [str(one) for one in state] if state is not None else None
    params = {
        "tenant": tenant, "state": states, "name": name, "since": since, "sort": sort, "limit": limit, "before": before,
        "owned": "true" if owned else None, "fold": "true" if fold else None,
    }  # fmt: skip
    return Call("GET", "/v1/jobs", reads(models.JobList), params)


def job(ref: str, *, tenant: str | None = None, wait_s: float = 0.0) -> Call[models.JobDetail]:
    """One job by id, unique beginning of its id, or name. With `wait_s`, answers when it is over or that time is."""
    params = {"tenant": tenant, "wait_s": wait_s or None}
    return Call("GET", _job(ref), reads(models.JobDetail), params, wait_s=wait_s)


def cancel(ref: str, *, tenant: str | None = None, cause: str = "") -> Call[models.JobView]:
    """End a job; a running one is asked to stop first, and killed when its grace is over."""
    return Call("POST", _job(ref, "/cancel"), reads(models.JobView), {"tenant": tenant, "cause": cause or None})


def cancel_jobs(ids: Iterable[str], *, cause: str = "") -> Call[models.JobsChange]:
    """End jobs by their ids, at most a thousand at a time, far faster than one after the other."""
    body, headers = json_body({"jobs": list(ids)})
    given = {"cause": cause or None}
    return Call("POST", "/v1/jobs/cancel", reads(models.JobsChange), given, body, headers, wait_s=120.0)


def suspend(ref: str, *, tenant: str | None = None, cause: str = "") -> Call[models.JobView]:
    """Pause a job; it checkpoints if it can, and `resume` puts it back into the queue."""
    return Call("POST", _job(ref, "/suspend"), reads(models.JobView), {"tenant": tenant, "cause": cause or None})


def resume(ref: str, *, tenant: str | None = None, cause: str = "") -> Call[models.JobView]:
    params = {"tenant": tenant, "cause": cause or None}
    return Call("POST", _job(ref, "/resume"), reads(models.JobView), params, repeatable=False)


def _array(ref: str, rest: str = "") -> str:
    return f"/v1/arrays/{path_piece('array', ref)}{rest}"


def array(ref: str, *, tenant: str | None = None, wait_s: float = 0.0) -> Call[models.ArrayView]:
    """One job array by id or name. With `wait_s`, answers when all its tasks are over or that time is."""
    return Call(
        "GET", _array(ref), reads(models.ArrayView), {"tenant": tenant, "wait_s": wait_s or None}, wait_s=wait_s
    )


def change_array(
    ref: str, verb: str, *, tasks: str | None = None, tenant: str | None = None, cause: str = ""
) -> Call[models.ArrayChange]:
    """`verb` all tasks of a job array, or those with these indices: `cancel`, `suspend` or `resume`."""
    params = {"tenant": tenant, "cause": cause or None, "tasks": tasks}
    path = _array(ref, f"/{path_piece('verb', verb)}")
    return Call("POST", path, reads(models.ArrayChange), params, repeatable=verb != "resume", wait_s=120.0)


def explain_array(ref: str, *, tenant: str | None = None) -> Call[models.ExplanationView]:
    """Why the next task of a job array waits."""
    return Call("GET", _array(ref, "/explain"), reads(models.ExplanationView), {"tenant": tenant})


def explain(ref: str, *, tenant: str | None = None) -> Call[models.ExplanationView]:
    """Why it waits: every cause, what would have to change, and the estimated start."""
    return Call("GET", _job(ref, "/explain"), reads(models.ExplanationView), {"tenant": tenant})


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


def files(
    ref: str,
    path: str = "",
    *,
    tenant: str | None = None,
    attempt: int | None = None,
    recursive: bool = False,
    after: str | None = None,
    limit: int = 1000,
) -> Call[models.FileList]:
    """What lies at a path of a job's run directory, and the outputs that the server kept, by path. With `attempt`, of
    that attempt's run directory alone. Continue with `after=answer.next`."""
    params = {
        "tenant": tenant, "path": path or None, "attempt": attempt, "recursive": "true" if recursive else None,
        "after": after, "limit": limit,
    }  # fmt: skip
    return Call("GET", _job(ref, "/files"), reads(models.FileList), params)


def file_piece(
    ref: str,
    path: str,
    *,
    tenant: str | None = None,
    attempt: int | None = None,
    offset: int = 0,
    limit: int = 4 << 20,
    version: str | None = None,
) -> Call[models.FilePiece]:
    """A piece of a job's file. Raises Conflict where the file has changed since its `version`."""

    def piece(response: httpx.Response) -> models.FilePiece:
        headers = response.headers
        return models.FilePiece(
            data=response.content,
            size_bytes=int(headers["x-shoal-size"]),
            version=headers["x-shoal-version"],
            sha256=headers["x-shoal-sha256"],
        )

    params = {"tenant": tenant, "path": path, "attempt": attempt, "offset": offset, "limit": limit, "version": version}
    return Call("GET", _job(ref, "/file"), piece, params)


def event_page(
    ref: str | None = None,
    *,
    tenant: str | None = None,
    after: int | None = None,
    limit: int = 500,
    wait_s: float = 0.0,
) -> Call[models.EventList]:
    """A page of events, of one job or all. `limit=0` only tells the newest position."""
    path = "/v1/events" if ref is None else _job(ref, "/events")
    params = {"tenant": tenant, "after": after, "limit": limit, "wait_s": wait_s or None}
    return Call("GET", path, reads(models.EventList), params, wait_s=wait_s)


# --- tenants, tokens, secrets ---


def tenants() -> Call[list[models.TenantView]]:
    def listed(response: httpx.Response) -> list[models.TenantView]:
        return models.TenantList.model_validate_json(response.content).tenants

    return Call("GET", "/v1/tenants", listed)


def tenant(name: str) -> Call[models.TenantView]:
    return Call("GET", _tenant(name), reads(models.TenantView))


def create_tenant(
    name: str,
    *,
    weight: float = 1.0,
    quota: Mapping[str, Any] | None = None,
    max_priority_class: PriorityClass | str = PriorityClass.GUARANTEED,
    sandbox: Sandbox | str | None = None,
) -> Call[models.TenantView]:
    """`quota` as in `QuotaView`; what it leaves out is unlimited. Without `sandbox`, `user` where the server can give
    it, else `none`."""
    body, headers = json_body(
        {
            "name": name,
            "weight": weight,
            "quota": dict(quota or {}),
            "max_priority_class": str(max_priority_class),
            "sandbox": None if sandbox is None else str(sandbox),
        }
    )
    return Call("POST", "/v1/tenants", reads(models.TenantView), {}, body, headers, repeatable=False)


def change_tenant(
    name: str,
    *,
    weight: float | None = None,
    quota: Mapping[str, Any] | None = None,
    max_priority_class: PriorityClass | str | None = None,
    sandbox: Sandbox | str | None = None,
) -> Call[models.TenantView]:
    """Only what is given changes; None within `quota` lifts that limit."""
    given = {
        "weight": weight,
        "quota": dict(quota) if quota is not None else None,
        "max_priority_class": str(max_priority_class) if max_priority_class is not None else None,
        "sandbox": str(sandbox) if sandbox is not None else None,
    }
    body, headers = json_body({key: value for key, value in given.items() if value is not None})
    return Call("PATCH", _tenant(name), reads(models.TenantView), {}, body, headers)


def create_token(
    tenant: str, *, label: str = "", role: TokenRole = TokenRole.MEMBER
) -> Call[models.NewTokenView]:  # fmt: skip
    """A new token, shown this once."""
    body, headers = json_body({"label": label, "role": role})
    path = _tenant(tenant, "/tokens")
    return Call("POST", path, reads(models.NewTokenView), {}, body, headers, repeatable=False)


def tokens(tenant: str) -> Call[list[models.TokenView]]:
    def listed(response: httpx.Response) -> list[models.TokenView]:
        return models.TokenList.model_validate_json(response.content).tokens

    return Call("GET", _tenant(tenant, "/tokens"), listed)


def revoke_token(token_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/tokens/{path_piece('token', token_id)}", reads_nothing)


def secrets(*, tenant: str | None = None) -> Call[list[models.SecretView]]:
    """Names only: a stored secret is never shown."""

    def listed(response: httpx.Response) -> list[models.SecretView]:
        return models.SecretList.model_validate_json(response.content).secrets

    return Call("GET", "/v1/secrets", listed, {"tenant": tenant})


def set_secret(name: str, value: str, *, tenant: str | None = None) -> Call[None]:
    body, headers = json_body({"value": value})
    return Call("PUT", _secret(name), reads_nothing, {"tenant": tenant}, body, headers)


def delete_secret(name: str, *, tenant: str | None = None) -> Call[None]:
    return Call("DELETE", _secret(name), reads_nothing, {"tenant": tenant}, repeatable=False)


# --- the server ---


def _nodes(response: httpx.Response) -> list[models.NodeView]:
    return models.NodeList.model_validate_json(response.content).nodes


def nodes() -> Call[list[models.NodeView]]:
    return Call("GET", "/v1/nodes", _nodes)


def drain_node(name: str, *, because: str = "") -> Call[list[models.NodeView]]:
    """Give a node no new work; what runs there goes on (admin). Answers with all nodes."""
    body, headers = json_body({"because": because})
    return Call("POST", f"/v1/nodes/{path_piece('node', name)}/drain", _nodes, {}, body, headers)


def undrain_node(name: str) -> Call[list[models.NodeView]]:
    """Give a drained node work again (admin)."""
    return Call("POST", f"/v1/nodes/{path_piece('node', name)}/undrain", _nodes, repeatable=False)


def collect_garbage(*, dry_run: bool = False) -> Call[models.GarbageView]:
    """Remove what is over and old (admin); with `dry_run`, only tell what that would be."""
    params = {"dry_run": "true" if dry_run else None}
    return Call("POST", "/v1/gc", reads(models.GarbageView), params, wait_s=600.0)


def _pages(response: httpx.Response) -> dict[str, Page]:
    return PageList.model_validate_json(response.content).pages


def pages() -> Call[dict[str, Page]]:
    """What each component shows of itself, by its name."""
    return Call("GET", "/v1/pages", _pages)


def page(component: str) -> Call[Page]:
    """What a component shows of itself. Raises NotFound for one that shows nothing here."""
    return Call("GET", f"/v1/pages/{path_piece('component', component)}", reads(Page))


def settings() -> Call[models.SettingList]:
    """Every setting of the server as it was started (admin). Secrets are hidden."""
    return Call("GET", "/v1/settings", reads(models.SettingList))


def doctor() -> Call[models.DoctorView]:
    """What the server's machine offers to jobs, tried now (admin)."""
    return Call("GET", "/v1/doctor", reads(models.DoctorView), wait_s=60.0)


def status() -> Call[models.StatusView]:
    return Call("GET", "/v1/status", reads(models.StatusView))
