"""Frames of a voice detector through the gateway: the state of each caller in the server, or sent with each request.

    python benchmarks/recurrent_gateway.py [--seconds 20] [--callers 16] [--json]

One server has both services. The callers of one after the other send frames, one waiting for its answer before it sends
the next, in turns of a second. What counts is the CPU time of gateway and replica for a frame: a core keeps up with as
many streams of one frame each 32 ms as fit. It depends less than latencies on what else the machine does, which are
printed too. `compiled`: all parts of the network are, as `shape` allows; ONNX Runtime runs it on the other side. Frames
of several sessions go to the replica in one message, which the network's shape forbids where the state goes along. A
session may also take several frames in a request: `frames of 4`.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
from common import Row, parser, report
from recurrent_nets import FRAME, voice_detector
from serving_common import gateway

from shoal.inference import ModelSpec
from shoal.serve import ServiceSpec

FRAME_S = 0.032
TURN_S = 1.0
CHUNK = 4
SIDES = {
    "sessions": "sessions, compiled",
    "chunks": f"the same, frames of {CHUNK}",
    "stateless": "state sent along, ONNX Runtime",
}


class Caller:
    """One stream: its frame, and its state where the server does not keep it."""

    def __init__(self, url: str, number: int, model: str) -> None:
        import tritonclient.http as triton

        self._triton, self.keeps, self.number = triton, model != "stateless", number
        self._url = f"{url}/v2/models/{model}/infer"
        shape = (1, CHUNK, *FRAME["input"]) if model == "chunks" else FRAME["input"]
        self._frame = np.random.default_rng(number).uniform(-1, 1, shape).astype(np.float32)
        self._state = np.zeros(FRAME["state"], np.float32)
        self._started = False

    async def ask(self, http: aiohttp.ClientSession) -> None:
        triton = self._triton
        given = {"input": self._frame} | ({} if self.keeps else {"state": self._state})
        inputs = []
        for name, array in given.items():
            inputs.append(triton.InferInput(name, list(array.shape), "FP32"))
            inputs[-1].set_data_from_numpy(array)
        outputs = [triton.InferRequestedOutput(n) for n in (("output",) if self.keeps else ("output", "stateN"))]
        more: dict[str, Any] = {}
        if self.keeps:
            more = {"sequence_id": self.number + 1, "sequence_start": not self._started}
        body, length = triton.InferenceServerClient.generate_request_body(inputs, outputs=outputs, **more)
        headers = {"Inference-Header-Content-Length": str(length)}
        async with http.post(self._url, data=body, headers=headers) as answer:
            found = await answer.read()
            if answer.status != 200:
                raise SystemExit(f"{answer.status}: {found[:300]!r}")
            header = answer.headers.get("Inference-Header-Content-Length")
        self._started = True
        if not self.keeps:
            result = triton.InferenceServerClient.parse_response_body(
                found, header_length=None if header is None else int(header)
            )
            self._state = result.as_numpy("stateN")


async def turn(http: aiohttp.ClientSession, callers: list[Caller], seconds: float) -> list[float]:
    """The latencies of the frames that all together got answered."""
    ends = time.monotonic() + seconds
    found: list[float] = []

    async def stream(caller: Caller) -> None:
        while time.monotonic() < ends:
            began = time.perf_counter()
            await caller.ask(http)
            found.append(time.perf_counter() - began)

    await asyncio.gather(*map(stream, callers))
    return found


def cpu_s(processes: list[Any]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


async def measured(server: Any, callers: int, seconds: float) -> list[Row]:
    sides = {name: [Caller(server.http, at, name) for at in range(callers)] for name in SIDES}
    spent: dict[str, float] = dict.fromkeys(sides, 0.0)
    times: dict[str, list[float]] = {name: [] for name in sides}
    async with aiohttp.ClientSession() as http:
        for one in sides.values():
            await turn(http, one, 0.5)
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            for name, one in sides.items():
                processes = server.processes()
                before = cpu_s(processes)
                times[name] += await turn(http, one, TURN_S)
                spent[name] += cpu_s(processes) - before
    rows, per_core = [], {}
    for name, text in SIDES.items():
        each = spent[name] / (len(times[name]) * (CHUNK if name == "chunks" else 1))
        per_core[name] = FRAME_S / each
        p99 = np.quantile(times[name], 0.99) * 1e3
        text = f"{text}: {each * 1e6:.0f} us of CPU for a frame, p99 {p99:.1f} ms; streams a core keeps up with"
        rows.append(Row(text, per_core[name], ""))
    gains = {name: per_core[name] / per_core["stateless"] for name in ("sessions", "chunks")}
    rows.append(Row("streams with sessions over those that send their state, a frame each", gains["sessions"], "x"))
    best = max(gains.values())
    return [*rows, Row("the same, the better of both", best, "x", ">= 1.5x", best >= 1.5)]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--seconds", type=float, default=20.0, help="for both together")
    arguments.add_argument("--callers", type=int, default=16, help="at once")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = str(voice_detector(Path(folder) / "vad.onnx"))
        options = {"state": {"state": "stateN"}}
        kept = partial(ModelSpec, source=path, runtime="recurrent", max_batch=given.callers)
        models = {
            "sessions": kept("sessions", options=options),
            "chunks": kept("chunks", options={**options, "frames": True}),
            "stateless": ModelSpec("stateless", path, runtime="onnx"),
        }
        services = [ServiceSpec(name, "bench", (model,)) for name, model in models.items()]
        with gateway(services, slots=2) as server:
            rows = asyncio.run(measured(server, given.callers, given.seconds))
    return report("streams of frames through the gateway", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
