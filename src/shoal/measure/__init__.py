"""Measuring servers: open-loop load, capacity under an objective, multi-tenant frontiers, interference and cost (after
Perseus, IC2E'20), for any server of the Open Inference Protocol.

Senses latencies from the moment requests were due; decides what to try next and when enough was seen; acts by sending
load. `plan` decides which models should share which servers. Searches take the function that measures, so that a
simulated server does too.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.measure.coldstart import ColdStarts, cold_starts
    from shoal.measure.comparison import Comparison, compare
    from shoal.measure.cost import MixCost, mix_cost
    from shoal.measure.interference import Interference, measure_interference
    from shoal.measure.live import measure_capacity
    from shoal.measure.load.generator import ClosedLoad, OpenLoad, Settings, run_load
    from shoal.measure.load.inputs import given_inputs
    from shoal.measure.load.traces import Trace, read_trace
    from shoal.measure.planning.planner import Plan, plan
    from shoal.measure.planning.profiles import Demand, ExecutionTime, ModelProfile, ServerType
    from shoal.measure.planning.simulated import Serve, SimulatedServer
    from shoal.measure.search.capacity import Capacity, find_capacity
    from shoal.measure.search.frontier import find_frontier
    from shoal.measure.search.judge import Effort, Goal, Verdict
    from shoal.measure.search.pareto import Frontier
    from shoal.measure.statistics import Estimate
    from shoal.measure.types import Failure, Floats, LoadResult, Target

__all__ = [
    "Capacity", "ClosedLoad", "ColdStarts", "Comparison", "Demand", "Effort", "Estimate", "ExecutionTime", "Failure",
    "Floats", "Frontier", "Goal", "Interference", "LoadResult", "MixCost", "ModelProfile", "OpenLoad", "Plan", "Serve",
    "ServerType", "Settings", "SimulatedServer", "Target", "Trace", "Verdict", "cold_starts", "compare",
    "find_capacity", "find_frontier", "given_inputs", "measure_capacity", "measure_interference", "mix_cost", "plan",
    "read_trace", "run_load",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "coldstart": "ColdStarts cold_starts",
    "comparison": "Comparison compare",
    "cost": "MixCost mix_cost",
    "interference": "Interference measure_interference",
    "live": "measure_capacity",
    "load.generator": "ClosedLoad OpenLoad Settings run_load",
    "load.inputs": "given_inputs",
    "load.traces": "Trace read_trace",
    "planning.planner": "Plan plan",
    "planning.profiles": "Demand ExecutionTime ModelProfile ServerType",
    "planning.simulated": "Serve SimulatedServer",
    "search.capacity": "Capacity find_capacity",
    "search.frontier": "find_frontier",
    "search.judge": "Effort Goal Verdict",
    "search.pareto": "Frontier",
    "statistics": "Estimate",
    "types": "Failure Floats LoadResult Target",
})  # fmt: skip
