"""A runtime of tests: cascades with a clock on which an hour is a millisecond, so that being blind for an hour is seen
in a test."""

from __future__ import annotations

import time
from dataclasses import replace

from shoal.cascade.runtime import CascadeRuntime
from shoal.cascade.runtimes import CASCADE
from shoal.inference import ModelSpec

HASTY = replace(CASCADE, name="hasty", platform="test_hasty", suffixes=(), opener="tests.cascade.hasty:HastyRuntime")
HOURS_PER_S = 1000


class HastyRuntime(CascadeRuntime):
    def __init__(self, spec: ModelSpec) -> None:
        super().__init__(spec, lambda: time.monotonic() * HOURS_PER_S * 3600)
