"""The engine for a Kubernetes cluster: see `shoal.engine.batch`, with an Indexed Job per gang and a pod per rank.

Kubernetes picks the nodes. A gang's Job has one completion for each rank and is never started again by Kubernetes; a
headless Service gives its pods names, and a Secret holds the key of its secrets. Both belong to the Job, so that
deleting it leaves nothing behind. Ranks begin together: each waits on the shared volume until all are there.

Senses: watches of Jobs, pods and nodes; records. Decides nothing. Acts: creates and deletes Jobs, files that
supervisors read.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.engine.kubernetes.engine import KubernetesEngine, kubernetes_engine
    from shoal.engine.kubernetes.probe import probe_cluster
    from shoal.engine.kubernetes.settings import KubernetesSettings

__all__ = ["KubernetesEngine", "KubernetesSettings", "kubernetes_engine", "probe_cluster"]

__getattr__ = on_first_use(globals(), {
    "engine": "KubernetesEngine kubernetes_engine",
    "probe": "probe_cluster",
    "settings": "KubernetesSettings",
})  # fmt: skip
