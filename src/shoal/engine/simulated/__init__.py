"""A cluster in memory, by the clock and to the letter of a script: deterministic, with faults on demand.

The gangs live in a `SimulatedCluster`; a `SimulatedEngine` is a server's connection to it. A test kills a server by
dropping the engine and everything above it, and opens another on the same cluster: what ran, runs on. Under `run`
(or any `VirtualLoop`) a simulated day takes as long as its events need.

    cluster = SimulatedCluster(nodes, clock=VirtualClock(), behaviour=lambda gang: Script(run_s=60))
    engine = SimulatedEngine(cluster)
    await engine.open()
"""

from shoal.engine.simulated.cluster import POOL, SimulatedCluster
from shoal.engine.simulated.engine import SimulatedEngine, by_last_word, simulated_engine
from shoal.engine.simulated.history import Happening, Overlap, find_overlaps
from shoal.engine.simulated.script import CHECKPOINTED, Line, Script
from shoal.engine.simulated.virtual_time import Deadlock, RealIO, VirtualClock, VirtualLoop, run

__all__ = [
    "CHECKPOINTED", "POOL", "Deadlock", "Happening", "Line", "Overlap", "RealIO", "Script", "SimulatedCluster",
    "SimulatedEngine", "VirtualClock", "VirtualLoop", "by_last_word", "find_overlaps", "run",
    "simulated_engine",
]  # fmt: skip
