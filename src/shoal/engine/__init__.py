"""Engines run processes. One protocol, many engines; Shoal decides, an engine runs.

The protocol (`shoal.engine.protocol`) is written for engines beyond one machine too (Slurm, Ray, Kubernetes). Every
launch carries a deterministic name: a launch repeated after a crash adopts the first one instead of doubling it. The
truth is what the engine holds, never what the caller remembers.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.engine.bundle import inspect
    from shoal.engine.protocol import (
        IMAGES_CAPABILITY,
        MOUNTS,
        MOUNTS_CAPABILITY,
        Account,
        Beside,
        Engine,
        EngineOptions,
        Enterable,
        Exit,
        Gang,
        GangStatus,
        HomeShown,
        Inventory,
        Joinable,
        LaunchFailed,
        Limits,
        LogChunk,
        LogTimes,
        Mount,
        Phase,
        RankSpec,
        RankStatus,
        Refused,
        TimeLimit,
    )

__all__ = [
    "IMAGES_CAPABILITY", "MOUNTS", "MOUNTS_CAPABILITY", "Account", "Beside", "Engine", "EngineOptions", "Enterable",
    "Exit", "Gang", "GangStatus", "HomeShown", "Inventory", "Joinable", "LaunchFailed", "Limits", "LogChunk",
    "LogTimes", "Mount", "Phase", "RankSpec", "RankStatus", "Refused", "TimeLimit", "inspect",
]  # fmt: skip

# The declaration of the engines is read by commands, which need none of this.
__getattr__ = on_first_use(globals(), {
    "bundle": "inspect",
    "protocol": (
        "IMAGES_CAPABILITY MOUNTS MOUNTS_CAPABILITY Account Beside Engine EngineOptions Enterable Exit Gang "
        "GangStatus HomeShown Inventory Joinable LaunchFailed Limits LogChunk LogTimes Mount Phase RankSpec "
        "RankStatus Refused TimeLimit"
    ),
})  # fmt: skip
