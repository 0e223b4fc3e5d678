"""What one client may take of the gateway."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.http import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits(Limits):
    """`json` limits the JSON of a request, which is read on the event loop while everybody waits; binary tensors only
    count towards `body`."""

    json: int = 4 << 20
