"""The engine for a Slurm cluster: see `shoal.engine.batch`, with Slurm's commands.

Senses: squeue, scontrol, records. Decides nothing. Acts: sbatch, scancel, files that supervisors read.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.engine.slurm.engine import SlurmEngine, slurm_engine
    from shoal.engine.slurm.probe import probe_cluster
    from shoal.engine.slurm.settings import SlurmSettings

__all__ = ["SlurmEngine", "SlurmSettings", "probe_cluster", "slurm_engine"]

__getattr__ = on_first_use(globals(), {
    "engine": "SlurmEngine slurm_engine",
    "probe": "probe_cluster",
    "settings": "SlurmSettings",
})  # fmt: skip
