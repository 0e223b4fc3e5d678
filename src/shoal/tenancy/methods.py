"""`client.planes`: make, list, suspend, resume and delete virtual control planes (admin of the shared server)."""

from __future__ import annotations

from shoal.contract.calls import Call, json_body, path_piece, reads, reads_nothing
from shoal.contract.methods import Namespace, single
from shoal.tenancy.models import AuditList, NewPlaneView, PlaneList, PlaneView, UsageView


def _plane(name: str, rest: str = "") -> str:
    return f"/v1/planes/{path_piece('plane', name)}{rest}"


def create(name: str, *, tenant: str) -> Call[NewPlaneView]:
    """A plane whose work counts against this tenant of the shared server."""
    body, headers = json_body({"name": name, "tenant": tenant})
    return Call("POST", "/v1/planes", reads(NewPlaneView), {}, body, headers)


def list_planes() -> Call[PlaneList]:
    """All planes, by name."""
    return Call("GET", "/v1/planes", reads(PlaneList))


def get(name: str) -> Call[PlaneView]:
    """One plane."""
    return Call("GET", _plane(name), reads(PlaneView))


def suspend(name: str) -> Call[PlaneView]:
    """It answers no more and nothing new of it starts; what runs goes on."""
    return Call("POST", _plane(name, "/suspend"), reads(PlaneView))


def resume(name: str) -> Call[PlaneView]:
    """It answers again."""
    return Call("POST", _plane(name, "/resume"), reads(PlaneView))


def token(name: str) -> Call[NewPlaneView]:
    """The token of another admin of it; those that were made before go on to count."""
    return Call("POST", _plane(name, "/token"), reads(NewPlaneView))


def delete(name: str, *, force: bool = False) -> Call[None]:
    """Remove a plane with all that it knows; with `force` also what it has in the shared pool."""
    return Call("DELETE", _plane(name), reads_nothing, {"force": force or None})


def usage(name: str, *, since: float = 0.0) -> Call[UsageView]:
    """What it used of the shared pool, of the jobs submitted since then that are kept."""
    return Call("GET", _plane(name, "/usage"), reads(UsageView), {"since": since or None})


def audit(name: str, *, after: int = 0, limit: int = 1000) -> Call[AuditList]:
    """Who did what in it, among this number of events behind that sequence number."""
    return Call("GET", _plane(name, "/audit"), reads(AuditList), {"after": after or None, "limit": limit})


def backup(name: str) -> Call[bytes]:
    """The content of a backup file, which holds the plane's key: keep it private."""
    return Call("GET", _plane(name, "/backup"), lambda response: response.content)


def restore(name: str, content: bytes) -> Call[PlaneView]:
    """Put a backup in the place of what the plane knows."""
    return Call("PUT", _plane(name, "/backup"), reads(PlaneView), {}, content, _BINARY)


def bring(name: str, content: bytes, *, tenant: str) -> Call[NewPlaneView]:
    """A new plane that goes on from the backup of a plane or of a server."""
    return Call("POST", _plane(name, "/import"), reads(NewPlaneView), {"tenant": tenant}, content, _BINARY)


_BINARY = {"content-type": "application/octet-stream"}


class PlaneMethods(Namespace):
    """The methods of `client.planes`."""

    create = single(create)
    list = single(list_planes)
    get = single(get)
    suspend = single(suspend)
    resume = single(resume)
    token = single(token)
    delete = single(delete)
    usage = single(usage)
    audit = single(audit)
    backup = single(backup)
    restore = single(restore)
    bring = single(bring)
