"""`client.crons`: make, list, suspend and remove cron jobs, or run one now. `client.calendar`: reserve devices."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from shoal.calendar.models import CronDetail, CronList, CronView, FiredView, PlanList, PlanView
from shoal.calendar.schedule import Missed, Overlap
from shoal.calendar.windows import Repeat
from shoal.contract import bundle
from shoal.contract.calls import Call, Exchange, Flow, fresh_key, json_body, path_piece, reads, reads_nothing
from shoal.contract.methods import Namespace, Operation, single
from shoal.contract.sending import Manifest, manifest_text, upload


def _cron(name: str, rest: str = "") -> str:
    return f"/v1/crons/{path_piece('cron job', name)}{rest}"


def add(
    exchange: Exchange,
    name: str,
    manifest: Manifest,
    *,
    at: str,
    zone: str | None = None,
    overlap: Overlap | str = Overlap.SKIP,
    missed: Missed | str = Missed.RUN_ONCE,
    replace: bool = False,
    tenant: str | None = None,
    base: str | Path | None = None,
) -> Flow[CronView]:
    """Make a cron job of this manifest; the same again changes nothing. With `replace` it changes the one of this name.

    Files of the manifest are packed relative to `base` (default: the manifest's directory, else the present one) and
    uploaded now: each of its jobs gets them as they are now.
    """
    from shoal.contract.manifest import parse_manifest

    text, folder, source = manifest_text(manifest, base)
    parsed = parse_manifest(text, source=source)
    owner = tenant or parsed.tenant
    if parsed.files:
        uploaded = yield from exchange.perform(upload(bundle.pack(folder, parsed.files), tenant=owner))
        parsed = parsed.with_bundle(uploaded.bundle)
    asked = {
        "name": name, "at": at, "zone": zone, "overlap": str(overlap), "missed": str(missed), "replace": replace,
        "manifest": json.loads(parsed.canonical_json()),
    }  # fmt: skip
    body, headers = json_body(asked)
    return (yield from exchange.perform(Call("POST", "/v1/crons", reads(CronView), {"tenant": owner}, body, headers)))


def list_crons(*, tenant: str | None = None) -> Call[CronList]:
    """All that the caller may see, by tenant and name."""
    return Call("GET", "/v1/crons", reads(CronList), {"tenant": tenant})


def get(name: str, *, tenant: str | None = None) -> Call[CronDetail]:
    """One, with its manifest, its coming times and what happened lately."""
    return Call("GET", _cron(name), reads(CronDetail), {"tenant": tenant})


def suspend(name: str, *, tenant: str | None = None) -> Call[CronView]:
    """Its times get no jobs until `resume`."""
    return Call("POST", _cron(name, "/suspend"), reads(CronView), {"tenant": tenant})


def resume(name: str, *, tenant: str | None = None) -> Call[CronView]:
    """It goes on with its next time; those that passed meanwhile get no jobs."""
    return Call("POST", _cron(name, "/resume"), reads(CronView), {"tenant": tenant})


def remove(name: str, *, tenant: str | None = None) -> Call[None]:
    """Its jobs stay as they are."""
    return Call("DELETE", _cron(name), reads_nothing, {"tenant": tenant}, repeatable=False)


def run(name: str, *, tenant: str | None = None, key: str | None = None) -> Call[FiredView]:
    """Submit its job now. The same `key` twice is one job; without one, a fresh key is made."""
    headers = {"idempotency-key": key or fresh_key()}
    return Call("POST", _cron(name, "/run"), reads(FiredView), {"tenant": tenant}, None, headers)


def reserve(
    name: str,
    *,
    begin: str,
    end: str,
    tenant: str | None = None,
    nodes: Sequence[str] = (),
    accelerators: int | None = None,
    kind: str = "any",
    repeat: Repeat | str = Repeat.NEVER,
    last: str | None = None,
    zone: str | None = None,
    because: str = "",
) -> Call[PlanView]:
    """Keep devices free for a tenant at a time; without a tenant: maintenance, for nobody (admin). The same again
    changes nothing."""
    asked = {
        "name": name, "tenant": tenant, "begin": begin, "end": end, "nodes": list(nodes), "accelerators": accelerators,
        "kind": kind, "repeat": str(repeat), "last": last, "zone": zone, "because": because,
    }  # fmt: skip
    body, headers = json_body(asked)
    return Call("POST", "/v1/plans", reads(PlanView), {}, body, headers)


def list_plans() -> Call[PlanList]:
    """Reservations and maintenance windows, by the time of the next one."""
    return Call("GET", "/v1/plans", reads(PlanList))


def unreserve(name: str) -> Call[None]:
    """Remove a reservation or maintenance (admin)."""
    return Call("DELETE", f"/v1/plans/{path_piece('plan', name)}", reads_nothing, {}, repeatable=False)


class CalendarMethods(Namespace):
    """The methods of `client.calendar`."""

    reserve = single(reserve)
    list = single(list_plans)
    remove = single(unreserve)


class CronMethods(Namespace):
    """The methods of `client.crons`."""

    add = Operation(add)
    list = single(list_crons)
    get = single(get)
    suspend = single(suspend)
    resume = single(resume)
    remove = single(remove)
    run = single(run)
