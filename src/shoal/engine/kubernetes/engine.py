"""The Kubernetes engine: gangs as Indexed Jobs."""

from __future__ import annotations

from pathlib import Path

from shoal.core import Clock, SystemClock
from shoal.engine.batch import handover
from shoal.engine.batch.cluster import refuse_slots
from shoal.engine.batch.engine import BatchEngine
from shoal.engine.kubernetes.api import Api
from shoal.engine.kubernetes.cluster import KubernetesCluster, mount_of
from shoal.engine.kubernetes.settings import KubernetesSettings
from shoal.engine.protocol import EngineOptions


class KubernetesEngine(BatchEngine):
    """The cluster that the kubeconfig names, as one pool."""

    def __init__(
        self, home: Path, settings: KubernetesSettings, *,
        api: Api | None = None, clock: Clock | None = None, look_every_s: float = 5.0, poll_s: float = 1.0,
    ) -> None:  # fmt: skip
        clock = clock or SystemClock()
        home = home.absolute()
        mount = mount_of(home, settings)
        cluster = KubernetesCluster(settings, mount, handover.mark_of(home), clock, api or Api(settings))
        super().__init__(
            "kubernetes", home, cluster, lease_s=settings.lease_s, clock=clock, look_every_s=look_every_s,
            poll_s=poll_s,
        )  # fmt: skip
        cluster.changed = self._list_now.set


def kubernetes_engine(options: EngineOptions) -> KubernetesEngine:
    refuse_slots(options, "Kubernetes")
    section = options.settings
    assert isinstance(section, KubernetesSettings)
    return KubernetesEngine(options.home, section)
