"""Settings that a control plane gets once, when it is made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from shoal.admission import Policy
from shoal.base.http import Limits as HttpLimits
from shoal.control.home.bundles import BundleLimits
from shoal.control.home.retention import Retention
from shoal.control.limits import JobLimits
from shoal.core import Capability


@dataclass(frozen=True, slots=True)
class PlaneSettings:
    """`outermost` is the home of the control plane around this one, None where there is none: no job may name a path
    below it. `plane` is the id of the plane that this is, None of a shared server. `missing` are parts that could not
    be loaded. `any_port`: the services of jobs listen where they can."""

    policy: Policy = field(default_factory=Policy)
    jobs: JobLimits = field(default_factory=JobLimits)
    bundles: BundleLimits = field(default_factory=BundleLimits)
    retention: Retention = field(default_factory=Retention)
    http: HttpLimits = field(default_factory=HttpLimits)
    any_port: bool = False
    outermost: Path | None = None
    plane: str | None = None
    missing: Sequence[Capability] = ()
    reconcile_every_s: float = 5.0
    collect_every_s: float = 0.5
