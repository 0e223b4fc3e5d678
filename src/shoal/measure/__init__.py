"""Measuring servers: open-loop load, capacity under an objective, multi-tenant frontiers, interference and cost (after
Perseus, IC2E'20), for any server of the Open Inference Protocol.

Senses latencies from the moment requests were due; decides what to try next and when enough was seen; acts by sending
load. `planner` decides which models should share which servers. Searches take the function that measures, so that a
simulated server does too.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.measure.capacity import Capacity, find_capacity, ramp
    from shoal.measure.coldstart import ColdStarts, cold_starts
    from shoal.measure.comparison import Comparison, compare
    from shoal.measure.cost import MixCost, mix_cost
    from shoal.measure.frontier import Frontier, find_frontier
    from shoal.measure.generator import ClosedLoad, OpenLoad, Settings, run_load
    from shoal.measure.inputs import given_inputs
    from shoal.measure.interference import Interference, measure_interference
    from shoal.measure.judge import Effort, Goal, Verdict
    from shoal.measure.live import measure_capacity
    from shoal.measure.planner import Plan, plan
    from shoal.measure.profiles import Demand, ExecutionTime, ModelProfile, ServerType
    from shoal.measure.simulated import Serve, SimulatedServer
    from shoal.measure.statistics import Estimate
    from shoal.measure.traces import Trace, read_trace
    from shoal.measure.types import Failure, Floats, LoadResult, Target

__all__ = [
    "Capacity", "ClosedLoad", "ColdStarts", "Comparison", "Demand", "Effort", "Estimate", "ExecutionTime", "Failure",
    "Floats", "Frontier", "Goal", "Interference", "LoadResult", "MixCost", "ModelProfile", "OpenLoad", "Plan", "Serve",
    "ServerType", "Settings", "SimulatedServer", "Target", "Trace", "Verdict", "cold_starts", "compare",
    "find_capacity", "find_frontier", "given_inputs", "measure_capacity", "measure_interference", "mix_cost", "plan",
    "ramp", "read_trace", "run_load",
]  # fmt: skip

__getattr__ = on_first_use(
    globals(),
    {
        "Capacity": "capacity",
        "ClosedLoad": "generator",
        "ColdStarts": "coldstart",
        "Comparison": "comparison",
        "Demand": "profiles",
        "Effort": "judge",
        "Estimate": "statistics",
        "ExecutionTime": "profiles",
        "Failure": "types",
        "Floats": "types",
        "Frontier": "frontier",
        "Goal": "judge",
        "Interference": "interference",
        "LoadResult": "types",
        "MixCost": "cost",
        "ModelProfile": "profiles",
        "OpenLoad": "generator",
        "Plan": "planner",
        "Serve": "simulated",
        "ServerType": "profiles",
        "Settings": "generator",
        "SimulatedServer": "simulated",
        "Target": "types",
        "Trace": "traces",
        "Verdict": "judge",
        "cold_starts": "coldstart",
        "compare": "comparison",
        "find_capacity": "capacity",
        "find_frontier": "frontier",
        "given_inputs": "inputs",
        "measure_capacity": "live",
        "measure_interference": "interference",
        "mix_cost": "cost",
        "plan": "planner",
        "ramp": "capacity",
        "read_trace": "traces",
        "run_load": "generator",
    },
)
