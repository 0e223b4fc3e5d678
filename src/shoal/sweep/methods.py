"""`client.sweeps`: how the trials of a sweep fare."""

from __future__ import annotations

from shoal.contract.calls import Call, path_piece, reads
from shoal.contract.methods import Namespace, single
from shoal.sweep.models import SweepView


def get(ref: str, *, tenant: str | None = None, metric: str | None = None) -> Call[SweepView]:
    """The newest sweep of this name, or the one with this id: its trials, the best first by its metric, or by this."""
    path = f"/v1/sweeps/{path_piece('sweep', ref)}"
    return Call("GET", path, reads(SweepView), {"tenant": tenant, "metric": metric})


class SweepMethods(Namespace):
    """The methods of `client.sweeps`."""

    get = single(get)
