"""A gateway with replicas of its own: for one machine, without a control plane."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.base.http import Limits
from shoal.core import Invalid, Money, token_digest
from shoal.serve.contract import FREE, Address, Deployment, GatewayConfig, TenantEntry, write_config
from shoal.serve.gateway.process import GatewayProcess
from shoal.serve.gateway.replicas.spawner import ReplicaProcess, SpawnedReplica
from shoal.serve.types import ServiceSpec

_SOCKET = "gateway.sock"


class Standalone:
    """Serves `services` from `folder` (private to this gateway, and short: a socket lives in it). The replicas' output
    goes there, too.

    `tokens` gives each tenant's bearer token, `admin_token` the administrator's; without any token, every client is
    the administrator. Callables are imported from `python_path`. A replica that dies is started again.
    """

    def __init__(
        self,
        folder: Path,
        services: Sequence[ServiceSpec],
        *,
        slots: int,
        http: Address | None = None,
        grpc: Address | None = None,
        tokens: Mapping[str, str] | None = None,
        admin_token: str | None = None,
        weights: Mapping[str, float] | None = None,
        price_per_hour: Money = FREE,
        python_path: Sequence[Path] = (),
        scheduler: str = "deadline",
        limits: Limits | None = None,
    ) -> None:
        """Raises Invalid for services without models, or of the same tenant and name."""
        tokens, weights = tokens or {}, weights or {}
        self.folder = folder
        self._by_id = {f"{service.tenant}.{service.name}": service for service in services}
        if len(self._by_id) < len(services):
            raise Invalid("two services of a tenant have the same name", where="services")
        for service_id, service in self._by_id.items():
            if not service.models:
                raise Invalid("a service has at least one model", where=f"service {service_id}")
        tenants = sorted({*tokens, *(service.tenant for service in services)})
        self._key = secrets.token_urlsafe(32)
        self._config = GatewayConfig(
            generation=1,
            socket=str(folder / _SOCKET),
            slots=slots,
            http=http or Address(),
            grpc=grpc or Address(),
            price_per_hour=price_per_hour,
            tenants=tuple(
                TenantEntry(name, weights.get(name, 1.0), (token_digest(tokens[name]),) if name in tokens else ())
                for name in tenants
            ),
            admin_token_hashes=(token_digest(admin_token),) if admin_token else (),
            anonymous=None if tokens or admin_token else "",
            services=tuple(
                Deployment(service_id, 1, service, token_digest(self._token(service_id)))
                for service_id, service in self._by_id.items()
            ),
            http_limits=limits or Limits(),
        )
        self._python_path = python_path
        self.process = GatewayProcess(folder, scheduler=scheduler)
        self.replicas: dict[str, SpawnedReplica] = {}

    async def start(self) -> None:
        """Returns when it listens; replicas join and load from then on. Raises as `GatewayProcess.start`."""
        write_config(self.folder, self._config)
        await self.process.start()
        for service_id, service in self._by_id.items():
            how = ReplicaProcess(
                socket=self.folder / _SOCKET,
                token=self._token(service_id),
                log_directory=self.folder,
                threads=max(model.threads for model in service.models),
                python_path=self._python_path,
                memory_bytes=service.memory_bytes,
            )
            for index in range(service.replicas):
                name = f"{service_id}-{index}-1"
                self.replicas[name] = SpawnedReplica(name, how)

    async def stop(self, drain_s: float = 2.0) -> None:
        """Answer what was asked, for at most so long, and end the replicas."""
        await self.process.stop(drain_s)
        await asyncio.gather(*(replica.close() for replica in self.replicas.values()))

    def _token(self, service_id: str) -> str:
        return self._key + service_id
