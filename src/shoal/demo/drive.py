"""Sends the demo's load from a process of its own: what it is to do comes as JSON on stdin, what came of it goes out.

Requests are rows that the models have not seen, at random moments (Poisson), and latency counts from those moments.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np

from shoal.base.arrivals import poisson
from shoal.demo.services import requests
from shoal.measure import LoadResult, OpenLoad, Settings, Target, given_inputs, run_load


def main() -> int:
    asked = json.load(sys.stdin)
    duration_s, warmup_s = asked["duration_s"], asked["warmup_s"]
    loads = []
    for number, one in enumerate(asked["targets"]):
        inputs = given_inputs(requests(one["model"]))
        target = Target(asked["url"], one["model"], token=asked["token"], tenant=asked["tenant"], inputs=inputs)
        times = poisson(one["rate_per_s"], warmup_s + duration_s, seed=asked["seed"] + number)
        loads.append(OpenLoad(target, times, warmup_s + duration_s))
    results = run_load(loads, Settings(warmup_s=warmup_s, timeout_s=5.0, give_up_s=30.0))
    answered = {
        one["model"]: _facts(result, one["slo_s"]) for one, result in zip(asked["targets"], results, strict=True)
    }
    print(json.dumps(answered))
    return 0


def _facts(result: LoadResult, slo_s: float) -> dict[str, Any]:
    """`unanswered` counts requests that ended without an HTTP answer: none may."""
    failed = result.status[result.measured() & (result.status < 0)]
    return {
        "requests": result.count(),
        "answered": int(np.count_nonzero((result.status >= 200) & (result.status < 300) & result.measured())),
        "errors": result.errors(),
        "unanswered": int(failed.size),
        "p50_ms": round(result.quantile(0.5).value * 1e3, 3),
        "p99_ms": round(result.quantile(0.99).value * 1e3, 3),
        "within_slo": round(result.attainment(slo_s).value, 5),
        "goodput_per_s": round(result.goodput(slo_s).value, 2),
    }


if __name__ == "__main__":
    sys.exit(main())
