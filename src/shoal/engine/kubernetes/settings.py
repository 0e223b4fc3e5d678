"""The engine's own section of the server's settings."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from shoal.engine.pool import AHEAD


class KubernetesSettings(BaseModel):
    """How the server uses its Kubernetes cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    image: str = Field("", description="image of every pod; it has a shell and a Python (required)")
    namespace: str = Field("default", description="namespace of everything that is created")
    context: str = Field("", description="context of the kubeconfig [its current one; in a pod: the service account]")
    volume: str = Field(
        "", description="persistent volume claim that every pod mounts [a path of the nodes, the same on each]"
    )
    mount: str = Field("", description="where it is mounted, here and in pods; it holds the server's home [the home]")
    python: str = Field("/usr/bin/python3", description="Python of the image, 3.11 or newer, for our supervisor")
    queue: str = Field("", description="Kueue's local queue of a job; `{tenant}` stands for its tenant [no Kueue]")
    priority_class: str = Field("", description="priority class of every pod [the cluster's default]")
    service_account: str = Field("", description="service account of every pod; its token is not mounted [the default]")
    accelerators: str = Field(
        "nvidia.com/gpu,amd.com/gpu", description="resources of nodes that are accelerators, with commas between"
    )
    type_label: str = Field("nvidia.com/gpu.product", description="label of a node that names their type")
    together: str = Field(
        "topology.kubernetes.io/rack,topology.kubernetes.io/zone",
        description="labels of nodes, the first weighing most, one value of which a gang's pods prefer to share; with "
        "commas between",
    )
    ahead: float = Field(AHEAD, ge=0, le=10, description="part of the pool that is handed over beyond what can run")
    lease_s: float = Field(
        15.0, ge=2, le=3600,
        description="seconds without an answer of the shared volume after which a rank ends itself; a job that "
        "Kubernetes gave up is started again after them",
    )  # fmt: skip
