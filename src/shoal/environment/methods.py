"""`client.environments`: what was made for jobs to run with."""

from __future__ import annotations

from shoal.contract.calls import Call, path_piece, reads
from shoal.contract.methods import Namespace, single
from shoal.environment.models import EnvironmentList


def listing(*, tenant: str | None = None) -> Call[EnvironmentList]:
    """What was made, the one that was used last first."""
    return Call("GET", "/v1/environments", reads(EnvironmentList), {"tenant": tenant})


def remove(key: str, *, tenant: str | None = None) -> Call[EnvironmentList]:
    """Remove the one with this key, or a unique beginning of it, which no job may run with. Returns what it was."""
    path = f"/v1/environments/{path_piece('environment', key)}"
    return Call("DELETE", path, reads(EnvironmentList), {"tenant": tenant})


class EnvironmentMethods(Namespace):
    """The methods of `client.environments`."""

    list = single(listing)
    remove = single(remove)
