"""One side of a measurement: `python -m shoal.offload.side NAME SIZE [BACKEND]`.

It runs a workload for each line it reads, by hand for a backend where one is named, and answers with the seconds, those
of its processors, and a digest of the results.
"""

from __future__ import annotations

import json
import sys
import time

from shoal.offload.workloads import WORKLOADS, digest


def _main() -> None:
    name, size = sys.argv[1], int(sys.argv[2])
    workload = WORKLOADS[name]
    program = workload.run
    if sys.argv[3:]:
        from shoal.offload.baselines.by_hand import programs

        program = programs(name)[sys.argv[3]]
    inputs = workload.make(size)
    print(json.dumps({"ready": True}), flush=True)
    for _ in sys.stdin:
        began, worked = time.perf_counter(), time.process_time()
        results = program(*inputs)
        seconds, cpu = time.perf_counter() - began, time.process_time() - worked
        print(json.dumps({"seconds": seconds, "cpu": cpu, "digest": digest(results)}), flush=True)


if __name__ == "__main__":
    _main()
