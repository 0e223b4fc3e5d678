"""Speeds of jobs where they have not run yet, for components that plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shoal.core import Estimate
from shoal.forecast.features import Features
from shoal.forecast.steptime import StepTime


@dataclass(frozen=True)
class InferredSpeeds:
    """`shoal.core.Speeds` of kinds of jobs whose features are known. What was measured of a kind of job, on a kind of
    accelerator and with a number of workers, outweighs what is inferred."""

    step_time: StepTime
    features: Mapping[str, Features]
    measured: Mapping[tuple[str, str, int], Estimate] = field(default_factory=dict)

    def steps_per_s(self, job: str, kind: str, workers: int = 1) -> Estimate | None:
        """None where nothing is known; gangs of several workers must have been measured."""
        found = self.measured.get((job, kind, workers))
        if found is not None or workers != 1 or job not in self.features:
            return found
        seconds = self.step_time.predict(self.features[job], kind)
        return None if seconds is None else seconds.inverse()
