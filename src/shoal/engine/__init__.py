"""Where processes run. One protocol, many engines; Shoal decides, an engine runs.

The protocol (`shoal.engine.protocol`) is written for engines beyond one machine too (Slurm, Ray, Kubernetes). Every
launch carries a deterministic name: a launch repeated after a crash adopts the first one instead of doubling it. The
truth is what the engine holds, never what the caller remembers.
"""

from shoal.engine.bundle import inspect
from shoal.engine.protocol import (
    Engine,
    EngineOptions,
    Exit,
    Gang,
    GangStatus,
    Inventory,
    Joinable,
    LaunchFailed,
    Limits,
    LogChunk,
    LogTimes,
    Phase,
    RankSpec,
    RankStatus,
    Refused,
    TimeLimit,
)

__all__ = [
    "Engine", "EngineOptions", "Exit", "Gang", "GangStatus", "Inventory", "Joinable", "LaunchFailed", "Limits",
    "LogChunk", "LogTimes", "Phase", "RankSpec", "RankStatus", "Refused", "TimeLimit", "inspect",
]  # fmt: skip
