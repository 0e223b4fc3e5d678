"""The declaration of this component."""

from shoal.extension import Component

_POLICIES = "shoal.schedule.policies"
_BASELINES = "shoal.schedule.baselines.policies"

SCHEDULE = Component(
    extension="shoal.schedule.live.extension:Schedule",
    commands={"schedule": "shoal.schedule.commands.schedule"},
    client={"schedule": "shoal.schedule.methods:ScheduleMethods"},
    policies={
        "allox": f"{_BASELINES}:ALLOX",
        "blend": f"{_POLICIES}:BLEND",
        "elastic": f"{_POLICIES}:ELASTIC",
        "fifo": f"{_POLICIES}:FIFO",
        "finish-time": f"{_POLICIES}:FINISH_TIME",
        "gandiva": f"{_BASELINES}:GANDIVA",
        "hierarchical": f"{_POLICIES}:HIERARCHICAL",
        "isolated": f"{_POLICIES}:ISOLATED",
        "makespan": f"{_POLICIES}:MAKESPAN",
        "max-min": f"{_POLICIES}:MAX_MIN",
        "max-throughput": f"{_POLICIES}:MAX_THROUGHPUT",
        "min-cost": f"{_POLICIES}:MIN_COST",
        "strategy-proof": f"{_BASELINES}:STRATEGY_PROOF",
    },
)
