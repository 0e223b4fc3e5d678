"""The engine for one machine: real processes, one small supervisor per rank that outlives the server.

Truth stands on disk under `HOME/gangs/NAME/`; signals, a fifo and pidfds only hint that it changed. So the server may
be killed at any line: the next one reads the same truth and adopts what runs. A rank's processes are bound to its
supervisor (it is their subreaper and the main process dies with it), and are found again by two marks, their cgroup
and their environment, when the supervisor itself was killed.

Senses: NVML, /proc, cgroups. Decides nothing. Acts: processes, signals, cgroup limits. After FfDL's controller and
load-data containers (Middleware'19), as processes.
"""

from shoal.engine.local.engine import LocalEngine, local_engine

__all__ = ["LocalEngine", "local_engine"]
