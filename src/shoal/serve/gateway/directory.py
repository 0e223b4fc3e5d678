"""The permissions of callers: a configuration, indexed by token and by model name. Nothing here does I/O."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf

from shoal.core import Invalid, PriorityClass, token_digest
from shoal.inference.types import InferRequest, ModelSpec
from shoal.serve.contract import Deployment, GatewayConfig
from shoal.serve.errors import UnknownModel
from shoal.serve.gateway.routing import Router
from shoal.serve.types import Route, ServiceSpec


def queue_key(tenant: str, model: str, version: str) -> str:
    """Of the queue in which a tenant's requests for a version wait. Names hold no slash."""
    return f"{tenant}/{model}/{version}"


@dataclass(slots=True)
class Entry:
    """A model that a tenant may call. `service` is the newest generation's; `versions` are all that are deployed, and
    `takers` those of them that take requests, as far as that is known."""

    name: str
    service_id: str
    service: ServiceSpec
    weight: float
    versions: dict[str, ModelSpec]
    router: Router
    takers: frozenset[str] | None = None

    def check(self, version: str) -> None:
        """Raises UnknownModel unless the version is deployed."""
        if version not in self.versions:
            raise UnknownModel(f"there is no version {version!r}", where=f"model {self.name!r}")

    def key(self, version: str) -> str:
        return queue_key(self.service.tenant, self.name, version)

    @property
    def main(self) -> str:
        """The version with the greatest share of those that are deployed; the first if none has any."""
        shares = dict(self.router.route.shares)
        return max(self.versions, key=lambda version: shares.get(version, 0.0))

    def shadows(self, version: str) -> bool:
        """Whether the version only sees copies of what others answer."""
        route = self.router.route
        return version == route.shadow and all(named != version or share <= 0 for named, share in route.shares)

    def priority_class(self, version: str) -> PriorityClass:
        """A version that only shadows others is best-effort: no client waits for it."""
        return PriorityClass.BEST_EFFORT if self.shadows(version) else self.service.priority_class


def patience_s(entry: Entry, request: InferRequest) -> float | None:
    """How long the answer is of use; None: for ever."""
    return request.timeout_s if request.timeout_s is not None else entry.service.slo_p99_s


@dataclass(slots=True)
class Directory:
    """`deployments` are by the digest of their replicas' token, `services` the newest generation of each by its id.
    `names_taken` says of a service which of its models another service of the tenant has already."""

    config: GatewayConfig | None = None
    entries: dict[str, dict[str, Entry]] = field(default_factory=dict)
    deployments: dict[str, Deployment] = field(default_factory=dict)
    services: dict[str, ServiceSpec] = field(default_factory=dict)
    names_taken: dict[str, str] = field(default_factory=dict)
    _owners: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, config: GatewayConfig, before: Directory | None = None) -> Directory:
        """Routers of unchanged routes are kept, so that shares stay exact over a change elsewhere. Of services that
        claim the same name, the one with the lowest id has it, whatever their generations. Raises Invalid."""
        _check(config)
        made = cls(config)
        for digest in config.admin_token_hashes:
            made._owners[digest] = ""
        for tenant in config.tenants:
            for digest in tenant.token_hashes:
                made._owners[digest] = tenant.name
        weights = {tenant.name: tenant.weight for tenant in config.tenants}
        for deployment in sorted(config.services, key=lambda one: (one.id, -one.generation)):
            made.deployments[deployment.replica_token_hash] = deployment
            made.services.setdefault(deployment.id, deployment.spec)
            made._enter(deployment, weights.get(deployment.spec.tenant, 1.0), before)
        return made

    def __iter__(self) -> Iterator[Entry]:
        for models in self.entries.values():
            yield from models.values()

    def owner(self, token: str | None) -> str | None:
        """The tenant of a token, "" for the administrator's, None for an unknown one."""
        if token is None:
            return self.config.anonymous if self.config is not None else None
        return self._owners.get(token_digest(token))

    def find(self, tenant: str, model: str) -> Entry:
        """Raises UnknownModel."""
        if tenant:
            entry = self.entries.get(tenant, {}).get(model)
            if entry is not None:
                return entry
        else:
            found = [models[model] for models in self.entries.values() if model in models]
            if len(found) == 1:
                return found[0]
            if found:
                owners = ", ".join(sorted(entry.service.tenant for entry in found))
                raise UnknownModel(
                    f"several tenants have a model {model!r}: {owners}", where=model, hint="use a token of one of them"
                )
        raise UnknownModel(
            f"there is no model {model!r}", where=model, hint="ask v2/repository/index for those you have"
        )

    def visible(self, tenant: str) -> Iterator[Entry]:
        if tenant:
            yield from self.entries.get(tenant, {}).values()
        else:
            yield from self

    def _enter(self, deployment: Deployment, weight: float, before: Directory | None) -> None:
        spec = deployment.spec
        models = self.entries.setdefault(spec.tenant, {})
        routes = dict(spec.routes)
        for model in spec.models:
            entry = models.get(model.name)
            if entry is None:
                versions = tuple(one.version for one in spec.models if one.name == model.name)
                route = routes.get(model.name) or Route(((versions[-1], 1.0),))
                known = before.entries.get(spec.tenant, {}).get(model.name) if before is not None else None
                router = known.router if known is not None and known.router.route == route else Router(route)
                entry = models[model.name] = Entry(model.name, deployment.id, spec, weight, {}, router)
            elif entry.service_id != deployment.id:
                self.names_taken[deployment.id] = model.name
                continue
            entry.versions.setdefault(model.version, model)


def _check(config: GatewayConfig) -> None:
    """The writer of the configuration has checked it already. A second check keeps a bad one from being applied."""
    for tenant in config.tenants:
        if not 0 < tenant.weight < inf:
            raise Invalid(f"a weight must be positive and finite, not {tenant.weight}", where=f"tenant {tenant.name}")
    for deployment in config.services:
        spec = deployment.spec
        if not spec.models:
            raise Invalid("a service has at least one model", where=f"service {spec.name}")
        if spec.rate_limit is not None and not (spec.rate_limit > 0 and spec.burst_s > 0):
            raise Invalid("rate_limit and burst_s must be positive", where=f"service {spec.name}")
