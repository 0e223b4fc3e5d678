"""Serving models to many tenants: the Open Inference Protocol in front, replicas behind, and between them a scheduler
that shares compute by weight and deadline (after Perseus, IC2E'20).

Senses how long each model takes at each batch size and what waits; decides what to execute next and whom to refuse;
acts by handing batches to replica processes.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.serve.contract import read_status
    from shoal.serve.gateway.standalone import Standalone
    from shoal.serve.manifest import SERVICE, ServiceManifest, parse_service
    from shoal.serve.scheduling import DEFAULT_SCHEDULER, SCHEDULERS, Profiles, make_scheduler
    from shoal.serve.scheduling.interface import QueueSpec
    from shoal.serve.scheduling.simulate import Stream, simulate
    from shoal.serve.types import ServiceSpec

__all__ = [
    "DEFAULT_SCHEDULER", "SCHEDULERS", "SERVICE", "Profiles", "QueueSpec", "ServiceManifest",
    "ServiceSpec", "Standalone", "Stream", "make_scheduler", "parse_service", "read_status",
    "simulate",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "contract": "read_status",
    "gateway.standalone": "Standalone",
    "manifest": "SERVICE ServiceManifest parse_service",
    "scheduling": "DEFAULT_SCHEDULER SCHEDULERS Profiles make_scheduler",
    "scheduling.interface": "QueueSpec",
    "scheduling.simulate": "Stream simulate",
    "types": "ServiceSpec",
})  # fmt: skip
