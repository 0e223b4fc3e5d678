"""The engine for a Slurm cluster: one Slurm job per gang, our supervisor for each rank, on a shared directory.

Truth stands on the shared directory, as with the local engine; Slurm tells where a job can still have processes. A
job's name is the gang's, so that any later server finds it. Slurm may not start a gang again by itself: a second job
of its name ends at once. What Slurm gives up is fenced before it is called lost: see `rank`.

Senses: squeue, scontrol, records. Decides nothing. Acts: sbatch, scancel, files that supervisors read.
"""

from shoal.engine.slurm.engine import SlurmEngine, slurm_engine
from shoal.engine.slurm.probe import probe_cluster
from shoal.engine.slurm.settings import SlurmSettings

__all__ = ["SlurmEngine", "SlurmSettings", "probe_cluster", "slurm_engine"]
