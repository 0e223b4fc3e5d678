"""The engine for a Slurm cluster: see `shoal.engine.batch`, with Slurm's commands.

Senses: squeue, scontrol, records. Decides nothing. Acts: sbatch, scancel, files that supervisors read.
"""

from shoal.engine.slurm.engine import SlurmEngine, slurm_engine
from shoal.engine.slurm.probe import probe_cluster
from shoal.engine.slurm.settings import SlurmSettings

__all__ = ["SlurmEngine", "SlurmSettings", "probe_cluster", "slurm_engine"]
