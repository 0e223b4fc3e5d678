"""How long one request of many or odd parts keeps all other callers of a gateway waiting.

    python benchmarks/serving_holdups.py [--rounds 3] [--json]

While each request is sent, another connection asks for the gateway's health again and again: its slowest answer is the
time for which the event loop was held up. The baseline is one plain tensor of 16 MiB in the same run. Reported is the
slowest of all rounds, and the requests' sizes.
"""

from __future__ import annotations

import http.client
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import orjson
from common import Row, parser, report
from serving_common import gateway

from shoal.inference import DataType, ModelSpec, TensorSpec
from shoal.serve import ServiceSpec

BAR_S = 0.5
_MIB = 1 << 20
_INFER = "/inference.GRPCInferenceService/ModelInfer"


def first(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"y": arrays["x"][:1]}


def documents() -> dict[str, tuple[bytes, int | None]]:
    """Bodies of REST requests, with the length of the JSON in them where that is not all."""
    one = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    plain = orjson.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [4 * _MIB],
                                      "parameters": {"binary_data_size": 16 * _MIB}}]})  # fmt: skip
    return {
        "a plain tensor of 16 MiB": (plain + bytes(16 * _MIB), len(plain)),
        "60,000 outputs, one of them twice": (
            orjson.dumps({"inputs": [one], "outputs": [{"name": f"y{at % 59_999}"} for at in range(60_000)]}), None,
        ),
        "60,000 inputs": (orjson.dumps({"inputs": [{**one, "name": f"x{at}"} for at in range(60_000)]}), None),
        "200,000 parameters": (
            orjson.dumps({"inputs": [one], "parameters": {str(at): at for at in range(200_000)}}), None,
        ),
        "2,000,000 numbers as JSON": (
            orjson.dumps({"inputs": [{**one, "shape": [2_000_000], "data": [1] * 2_000_000}]}), None,
        ),
        "lists in lists, 1,000,000 deep": (b"[" * 1_000_000, None),
    }  # fmt: skip


def messages() -> dict[str, bytes]:
    """gRPC messages of empty parts: outputs, inputs and raw contents."""
    parts = {"outputs": b"\x32\x00", "inputs": b"\x2a\x00", "raw contents": b"\x3a\x00"}
    return {f"gRPC, 8,000,000 empty {name}": part * 8_000_000 for name, part in parts.items()}


@contextmanager
def watched(address: str, slowest: list[float]) -> Iterator[None]:
    """Note the slowest answer of the gateway's health meanwhile."""
    ended = threading.Event()

    def ask() -> None:
        connection = http.client.HTTPConnection(address, timeout=600)
        worst = 0.0
        while not ended.is_set():
            began = time.perf_counter()
            connection.request("GET", "/v2/health/live")
            connection.getresponse().read()
            worst = max(worst, time.perf_counter() - began)
            time.sleep(0.001)
        slowest.append(worst)

    thread = threading.Thread(target=ask)
    thread.start()
    time.sleep(0.05)
    try:
        yield
    finally:
        time.sleep(0.05)
        ended.set()
        thread.join()


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=3)
    options = arguments.parse_args()
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)
    tensor = TensorSpec("x", DataType.FP32, (-1,))
    model = ModelSpec(
        "first", f"{Path(__file__).stem}:first", "callable", warmup=0, max_batch=0,
        inputs=(tensor,), outputs=(TensorSpec("y", DataType.FP32, (1,)),),
    )  # fmt: skip
    found: dict[str, list[float]] = {}
    sizes: dict[str, int] = {}
    with gateway([ServiceSpec("bench", "bench", (model,))]) as server:
        address = server.http.removeprefix("http://")

        def rest(body: bytes, header: int | None) -> None:
            headers = {} if header is None else {"Inference-Header-Content-Length": str(header)}
            connection = http.client.HTTPConnection(address, timeout=600)
            connection.request("POST", "/v2/models/first/infer", body, headers)
            connection.getresponse().read()

        def rpc(message: bytes) -> None:
            limit = [("grpc.max_send_message_length", -1)]
            with grpc.insecure_channel(server.grpc, limit) as channel:
                call = channel.unary_unary(_INFER, request_serializer=bytes, response_deserializer=bytes)
                with suppress(grpc.RpcError):  # refused, as it should be
                    call(message, timeout=600)

        acts: dict[str, Callable[[], None]] = {}
        for name, (body, header) in documents().items():
            acts[name], sizes[name] = (lambda body=body, header=header: rest(body, header)), len(body)
        for name, message in messages().items():
            acts[name], sizes[name] = (lambda message=message: rpc(message)), len(message)
        for _ in range(options.rounds):
            for name, act in acts.items():
                with watched(address, found.setdefault(name, [])):
                    act()
    table = []
    for name, times in found.items():
        worst = max(times)
        told = f"{name} ({sizes[name] / _MIB:.1f} MiB): slowest answer meanwhile"
        table.append(Row(told, worst * 1e3, "ms", f"<= {BAR_S * 1e3:g}", worst <= BAR_S))
    return report("others' wait beside one odd request, gateway with one model", table, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
