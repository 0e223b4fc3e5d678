"""Predictions with intervals: how fast a job is, when it finishes, how long a transient server lives.

After CM-DARE (ICDCS'20): step time from what a model is made of, speed over workers and parameter servers, checkpoint
time from sizes, lifetimes by age. Models are pure, fit and predict apart, and are kept as versioned JSON. Intervals
come from whole models left out. Nothing here is imported by the server while the extension is off.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.forecast.allreduce import AllReduce, Gang
    from shoal.forecast.bottleneck import Slowdown, detect
    from shoal.forecast.checkpoint import CheckpointTime, best_interval_s
    from shoal.forecast.cluster import ClusterSpeed
    from shoal.forecast.features import Features
    from shoal.forecast.finish import Track
    from shoal.forecast.lifetimes import Exposure, HourlyLifetimes
    from shoal.forecast.steptime import StepTime
    from shoal.forecast.transient import Training, total_time

__all__ = [
    "AllReduce", "CheckpointTime", "ClusterSpeed", "Exposure", "Features", "Gang", "HourlyLifetimes", "Slowdown",
    "StepTime", "Track", "Training", "best_interval_s", "detect", "total_time",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "allreduce": "AllReduce Gang",
    "bottleneck": "Slowdown detect",
    "checkpoint": "CheckpointTime best_interval_s",
    "cluster": "ClusterSpeed",
    "features": "Features",
    "finish": "Track",
    "lifetimes": "Exposure HourlyLifetimes",
    "steptime": "StepTime",
    "transient": "Training total_time",
})  # fmt: skip
