"""Routing of requests to versions of a model: canary shares kept exactly, and which requests a shadow sees as well."""

from __future__ import annotations

from dataclasses import dataclass, field

from shoal.serve.types import Route

_ROUNDING = 1e-9


@dataclass(slots=True)
class Router:
    """Shares out one model's requests without a random number: of the first n, however many, each version gets its
    share to within less than one request.

    A version is owed its share of every request and pays one for each that it serves. Of those that are owed
    something, the one goes next that would be first to be owed a whole request: the earliest deadline first among
    windows, as in proportionate fairness (Baruah et al., 1996). `ready` versions only take part; a share of one that
    is not ready falls to the others.
    """

    route: Route
    _owed: dict[str, float] = field(default_factory=dict)
    _shadowed: float = 0.0

    def choose(self, ready: frozenset[str]) -> str | None:
        """The version for the next request; None if none with a share is ready."""
        shares = self.route.shares
        if len(shares) == 1:
            version, share = shares[0]
            return version if share > 0 and version in ready else None
        taking = [(version, share) for version, share in shares if share > 0 and version in ready]
        if not taking:
            return None
        total = sum([share for _, share in taking])
        owed, best, urgency = self._owed, "", (False, 0.0)
        for version, share in taking:
            mine = owed[version] = owed.get(version, 0.0) + share / total
            candidate = (mine > _ROUNDING, (mine - 1.0) / share)
            if not best or candidate > urgency:
                best, urgency = version, candidate
        owed[best] -= 1.0
        return best

    def shadow(self, ready: frozenset[str]) -> str | None:
        """The version that is to see a copy of this request too."""
        if self.route.shadow is None or self.route.shadow not in ready:
            return None
        self._shadowed += self.route.shadow_share
        if self._shadowed < 1.0 - _ROUNDING:
            return None
        self._shadowed -= 1.0
        return self.route.shadow
