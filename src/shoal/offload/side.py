"""One side of a measurement: `python -m shoal.offload.side NAME`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from shoal.offload.workloads import WORKLOADS, Workload, digest

_WHILE_S = 0.05


def answer(workload: Workload, program: Callable[..., tuple[Any, ...]]) -> None:
    """For a line with a size, make inputs; for any other, run the program, and answer with the seconds, those of the
    processors, and a digest of the results. For "many" it is run again for a while, and the least seconds are told."""
    inputs: tuple[Any, ...] = ()
    for line in sys.stdin:
        if line.strip().isdigit():
            inputs = workload.make(int(line))
            told: dict[str, Any] = {"ready": True}
        else:
            began, worked = time.perf_counter(), time.process_time()
            results = program(*inputs)
            seconds, cpu = time.perf_counter() - began, time.process_time() - worked
            told = {"seconds": seconds, "cpu": cpu, "digest": digest(results)}
            while line.strip() == "many" and time.perf_counter() - began < _WHILE_S:
                again = time.perf_counter()
                program(*inputs)
                told["seconds"] = min(told["seconds"], time.perf_counter() - again)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    found = WORKLOADS[sys.argv[1]]
    answer(found, found.run)
