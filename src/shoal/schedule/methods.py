"""`client.schedule`: the live state, for asking what another policy would decide."""

from __future__ import annotations

from shoal.contract.calls import Call
from shoal.contract.methods import Namespace, single


def snapshot() -> Call[str]:
    """The live state as JSON lines that `shoal schedule` reads (admin)."""
    return Call("GET", "/v1/schedule/snapshot", lambda response: response.text)


class ScheduleMethods(Namespace):
    """The methods of `client.schedule`."""

    snapshot = single(snapshot)
