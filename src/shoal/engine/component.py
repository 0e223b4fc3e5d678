"""The declaration of the engines: where processes run."""

from shoal.base.component import Component

ENGINES = Component(
    engines={
        "local": "shoal.engine.local:local_engine",
        "simulated": "shoal.engine.simulated:simulated_engine",
        "kubernetes": "shoal.engine.kubernetes:kubernetes_engine",
        "ray": "shoal.engine.ray:ray_engine",
        "slurm": "shoal.engine.slurm:slurm_engine",
    },
    engine_settings={
        "local": "shoal.engine.local.settings:LocalSettings",
        "kubernetes": "shoal.engine.kubernetes:KubernetesSettings",
        "ray": "shoal.engine.ray:RaySettings",
        "slurm": "shoal.engine.slurm:SlurmSettings",
    },
    engine_probes={
        "kubernetes": "shoal.engine.kubernetes:probe_cluster",
        "ray": "shoal.engine.ray:probe_cluster",
        "slurm": "shoal.engine.slurm:probe_cluster",
    },
)
