"""The engine for a Ray cluster: see `shoal.engine.batch`, with a placement group for each gang.

Ray picks the nodes. A detached, named actor for each rank starts our supervisor in its bundle, so a gang outlives the
server, and any later server finds it by its name. Ray itself is used in a process of its own (`bridge`), which may hang
or die with the cluster.

Senses: Ray's tables of nodes, placement groups and named actors; records. Decides nothing. Acts: placement groups and
actors, files that supervisors read.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.engine.ray.engine import RayEngine, ray_engine
    from shoal.engine.ray.probe import probe_cluster
    from shoal.engine.ray.settings import RaySettings

__all__ = ["RayEngine", "RaySettings", "probe_cluster", "ray_engine"]

__getattr__ = on_first_use(globals(), {
    "engine": "RayEngine ray_engine",
    "probe": "probe_cluster",
    "settings": "RaySettings",
})  # fmt: skip
