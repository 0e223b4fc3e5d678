"""What one client may take of the gateway."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.base.http import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpLimits(Limits):
    """`json` limits the JSON of a request, which is parsed on the event loop while all other requests wait. Binary
    tensors count only towards `body`."""

    json: int = 4 << 20
