"""What callers' shared memory is worth: large tensors sent over HTTP, against the same in system shared memory.

    python benchmarks/serving_shared_memory.py [--rounds 5] [--calls 20] [--json]

One client (tritonclient, unmodified) on the server's machine asks two models, by turns in both ways: one that takes a
large tensor and gives a small one, and one that gives the large one back. A call counts from an array to an array: the
copy into the region is part of it, and outputs are read where they lie. Reported is the median of the rounds' ratios of
medians.
"""

from __future__ import annotations

import os
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from common import Row, median, parser, report
from serving_common import gateway

from shoal.inference import DataType, ModelSpec, TensorSpec
from shoal.serve import ServiceSpec

SIZES_MIB = (1, 16)
WORTH = 1.2
"""The least gain, at one size at least, for which shared memory is kept."""
_ANY, _ONE = (TensorSpec("x", DataType.FP32, (-1,)),), (TensorSpec("y", DataType.FP32, (1,)),)
_BACK = (TensorSpec("y", DataType.FP32, (-1,)),)


def first(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": arrays["x"][:1]}


def same(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": arrays["x"]}


def models() -> tuple[ModelSpec, ...]:
    return tuple(
        ModelSpec(
            name, f"{Path(__file__).stem}:{name}", "callable", warmup=0, max_batch=0,
            inputs=_ANY, outputs=outputs,
        )
        for name, outputs in (("first", _ONE), ("same", _BACK))
    )  # fmt: skip


@contextmanager
def ways(client: Any, model: str, mib: int) -> Iterator[dict[str, Callable[[], Any]]]:
    import tritonclient.http as http
    from tritonclient.utils import shared_memory

    array = np.random.default_rng(mib).random(mib << 18, dtype=np.float32)
    back = array.nbytes if model == "same" else 4

    def sent() -> Any:
        tensor = http.InferInput("x", array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        return client.infer(model, [tensor], outputs=[http.InferRequestedOutput("y")]).as_numpy("y")

    names = [f"{part}-{uuid.uuid4().hex}" for part in ("in", "out")]
    regions = [shared_memory.create_shared_memory_region(name, f"/{name}", size)
               for name, size in zip(names, (array.nbytes, back), strict=True)]  # fmt: skip
    for name, size in zip(names, (array.nbytes, back), strict=True):
        client.register_system_shared_memory(name, f"/{name}", size)

    def shared() -> Any:
        shared_memory.set_shared_memory_region(regions[0], [array])
        tensor = http.InferInput("x", array.shape, "FP32")
        tensor.set_shared_memory(names[0], array.nbytes)
        output = http.InferRequestedOutput("y")
        output.set_shared_memory(names[1], back)
        client.infer(model, [tensor], outputs=[output])
        return shared_memory.get_contents_as_numpy(regions[1], np.float32, (back // 4,))

    try:
        yield {"sent": sent, "shared": shared}
    finally:
        for name, region in zip(names, regions, strict=True):
            client.unregister_system_shared_memory(name)
            shared_memory.destroy_shared_memory_region(region)


def timed(ask: Callable[[], Any], calls: int) -> float:
    found = []
    for _ in range(calls):
        began = time.perf_counter()
        ask()
        found.append(time.perf_counter() - began)
    return median(found)


def main() -> int:
    import tritonclient.http as http

    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--calls", type=int, default=20, help="of each way in a round")
    options = arguments.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    table: list[Row] = []
    with gateway([ServiceSpec("bench", "bench", models())]) as server:
        client = http.InferenceServerClient(server.http.removeprefix("http://"), network_timeout=60)
        for model in ("first", "same"):
            for mib in SIZES_MIB:
                found: dict[str, list[float]] = {}
                with ways(client, model, mib) as asks:
                    for ask in asks.values():
                        timed(ask, 3)
                    for _ in range(options.rounds):
                        for name, ask in asks.items():
                            found.setdefault(name, []).append(timed(ask, options.calls))
                what = f"{mib} MiB in, {mib if model == 'same' else 0} MiB out"
                table += [Row(f"{what}: {name}, p50", median(times) * 1e3, "ms") for name, times in found.items()]
                ratio = median([sent / shared for sent, shared in zip(found["sent"], found["shared"], strict=True)])
                table.append(Row(f"{what}: sent over shared", ratio, "x", f">= {WORTH:g}", ratio >= WORTH))
    return report("large tensors in callers' shared memory, one client", table, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
