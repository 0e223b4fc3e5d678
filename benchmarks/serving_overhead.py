"""What the server adds to a prediction: one client's median latency over the same network called in process.

The network is the orientation CNN (1x3x48x192 floats, 110 kB a call), onnxruntime with 1 thread and without spinning on
both sides. The baseline is `session.run` in this process; the server is asked over HTTP on a plain socket (the figure
with the target), so that a client's own time is not counted, and by tritonclient over gRPC. A round asks in each way
forwards and then backwards (A B C C B A), a few dozen calls at a time, and its figure is the difference of the medians,
so that what slows the machine down for a second slows both sides. Reported is the median over the rounds, with its
interval.
"""

from __future__ import annotations

import re
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from itertools import cycle
from typing import Any, NoReturn, Self
from urllib.parse import urlsplit

import orjson
from common import Row, median, parser, report
from models import fetch, samples
from serving_common import VARIETY, Gateway, gateway, middle, note, options_of, rows, service

from shoal.base.statistics import quantile
from shoal.inference.protocol import requests
from shoal.inference.tensors import to_array, to_tensor
from shoal.inference.types import DataType, InferRequest, Tensor

MODEL, TARGET_MS = "orientation", 0.4
Ask = Callable[[Mapping[str, Any]], object]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=60)
    arguments.add_argument("--calls", type=int, default=50, help="in each half of a round, of each way")
    options = options_of(arguments)
    with gateway([service("bench", MODEL)]) as server, ExitStack() as stack:
        ways = dict(all_ways(server, stack))
        inputs = cycle([sample.inputs for sample in samples(MODEL, VARIETY)])
        for ask in ways.values():
            times(ask, inputs, options.calls)
        found = [one_round(ways, inputs, options.calls) for _ in range(options.rounds)]
    return report(f"added latency of the server, {MODEL} CNN, one client", list(table(found)), as_json=options.json)


def all_ways(server: Gateway, stack: ExitStack) -> Iterator[tuple[str, Ask]]:
    session = in_process()
    yield "in process", lambda inputs: session.run(None, inputs)
    yield "HTTP", stack.enter_context(Connection(server.http)).ask
    try:
        yield "gRPC (tritonclient)", through_grpc(server, stack)
    except ImportError:
        note("gRPC is left out: pip install 'tritonclient[grpc]'")


def in_process(model: str = MODEL) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    path = fetch([model], progress=lambda *_: None)[model]
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Connection:
    """Binary tensors to the gateway over one kept connection, and nothing more that a client might do."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._socket = socket.create_connection((address.hostname, address.port), 30.0)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        request = InferRequest(MODEL, [to_tensor(name, array) for name, array in inputs.items()])
        header, binary = requests.encode(request)
        size = len(header) + sum(map(len, binary))
        head = (
            f"POST /v2/models/{MODEL}/infer HTTP/1.1\r\nHost: bench\r\nContent-Length: {size}\r\n"
            f"Inference-Header-Content-Length: {len(header)}\r\n\r\n"
        )
        pieces = [memoryview(head.encode() + header), *map(memoryview, binary)]
        while pieces:
            sent = self._socket.sendmsg(pieces)
            while pieces and sent >= len(pieces[0]):
                sent -= len(pieces.pop(0))
            if sent:
                pieces[0] = pieces[0][sent:]
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        received = b""
        while b"\r\n\r\n" not in received:
            received += self._receive()
        head, _, body = received.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise OSError(f"the gateway answered {received[:500]!r}")
        fields = {name.lower(): int(value) for name, value in re.findall(rb"([\w-]*-Length): (\d+)", head, re.I)}
        while len(body) < fields[b"content-length"]:
            body += self._receive()
        at = fields[b"inference-header-content-length"]
        found = {}
        for output in orjson.loads(body[:at])["outputs"]:
            end = at + output["parameters"]["binary_data_size"]
            tensor = Tensor(output["name"], DataType(output["datatype"]), tuple(output["shape"]), body[at:end])
            found[tensor.name], at = to_array(tensor), end
        return found

    def _receive(self) -> bytes:
        return self._socket.recv(1 << 16) or _hung_up()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()


def _hung_up() -> NoReturn:
    raise OSError("the gateway hung up")


def through_grpc(server: Gateway, stack: ExitStack) -> Ask:
    from tritonclient import grpc

    client = grpc.InferenceServerClient(server.grpc)
    stack.callback(client.close)

    def ask(inputs: Mapping[str, Any]) -> object:
        ((name, array),) = inputs.items()
        tensor = grpc.InferInput(name, array.shape, "FP32")
        tensor.set_data_from_numpy(array)
        answer = client.infer(MODEL, [tensor])
        return answer.as_numpy(answer.get_response().outputs[0].name)

    return ask


def one_round(ways: Mapping[str, Ask], inputs: Iterator[Any], calls: int) -> dict[str, list[float]]:
    """Seconds of every call by way, forwards and backwards."""
    found: dict[str, list[float]] = {name: [] for name in ways}
    for name in [*ways, *reversed(ways)]:
        found[name] += times(ways[name], inputs, calls)
    return found


def times(ask: Ask, inputs: Iterator[Any], calls: int) -> list[float]:
    found = []
    for _ in range(calls):
        given = next(inputs)
        began = time.perf_counter()
        ask(given)
        found.append(time.perf_counter() - began)
    return found


def table(found: list[dict[str, list[float]]]) -> Iterator[Row]:
    baseline, aimed, *others = found[0]
    for name in found[0]:
        every = [seconds for one in found for seconds in one[name]]
        yield Row(f"{name}, p50", median(every) * 1e3, "ms")
        yield Row("  p99", quantile(every, 0.99) * 1e3, "ms")
    for name in (aimed, *others):
        added = middle([median(one[name]) - median(one[baseline]) for one in found])
        target, ok = (f"<= {TARGET_MS:g}", added.value * 1e3 <= TARGET_MS) if name == aimed else ("", None)
        yield from rows(f"added by {name}, p50", added, "ms", target, ok, scale=1e3)
    yield Row("  rounds", len(found), "")


if __name__ == "__main__":
    sys.exit(main())
