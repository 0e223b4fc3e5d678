"""Throughput with 8 clients that each wait for their answer: Shoal beside other servers, same network, same client.

The network is the orientation CNN (1x3x48x192 floats), run by onnxruntime with one thread in one worker process, in
every server. Each is asked in the form that is natural to it: Shoal and Triton with binary tensors of the Open
Inference Protocol, MLServer with its JSON (it takes no binary ones), mosec and Ray Serve with raw bytes, LitServe with
base64 in JSON. The client is Shoal's load generator, which for each server has nothing to do but send prepared bytes.
Answers are compared with those of the network in this process; whoever answers otherwise is not measured.

One peer at a time stands beside Shoal, and short windows of both alternate (A B B A): the ratio is taken round by
round, and reported is its geometric mean with the interval over the rounds. The bound is the network called in this
process, one call after the other.

The peers live in an environment of their own, which `--install` makes; one that is missing there is named and left out.
Triton is the binary in the nvidia-pytriton wheel with its Python backend: the wheel has no onnxruntime backend.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from common import Row, parser, report
from models import fetch, samples
from serving_common import VARIETY, first_in_line, gateway, note, options_of, rows, service
from serving_overhead import in_process

from shoal.core import ShoalError
from shoal.measure.load import Encoding
from shoal.measure.load.generator import ClosedLoad, Settings, drive, run
from shoal.measure.load.inputs import given_inputs
from shoal.measure.load.oip import Client, Prepared, prepare
from shoal.measure.load.wire import Address, head
from shoal.measure.statistics import geometric_mean
from shoal.measure.types import Target

MODEL, CLIENTS = "orientation", 8
HERE = Path(__file__).parent / "peers"
WARM_S, START_S, ANSWER_S = 1.0, 60.0, 20.0
MARK = "SHOAL_BENCH_PEER"
"""In the environment of a peer's processes: all that carry it are ended with the peer, whoever started them."""


Making = Callable[[str], Prepared]
"""Makes the requests for the server at a URL."""


@dataclass(frozen=True)
class Peer:
    """`package` is where its code is in `site-packages`; `answer` reads the two scores out of a response's body;
    Shoal shall answer `at_least` so many times as many."""

    name: str
    package: str
    script: str
    prepared: Making
    answer: Callable[[bytes], Any]
    at_least: float
    options: tuple[str, ...] = ()


def main() -> int:
    arguments = parser(__doc__)
    place = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "shoal" / "peers"
    arguments.add_argument("--peers", type=Path, default=place, metavar="DIR", help=f"their environment [{place}]")
    arguments.add_argument("--install", action="store_true", help="make that environment first (1 GB or so)")
    arguments.add_argument("--only", nargs="+", metavar="NAME", choices=[peer.name for peer in PEERS])
    arguments.add_argument("--rounds", type=int, default=6)
    arguments.add_argument("--window", type=float, default=0.3, metavar="S")
    options = options_of(arguments)
    if options.install:
        install(options.peers)
    wanted = [peer for peer in PEERS if not options.only or peer.name in options.only]
    bound = Bound()
    found: list[Row] = []
    with gateway([service("bench", MODEL)]) as server:
        ours = Side(run(prepare(server.target(MODEL))), server.processes)
        ours.window(WARM_S)
        for peer in wanted:
            try:
                found += beside(peer, options, ours, bound)
            except (ShoalError, Missing) as error:
                note(f"{peer.name} is left out: {error}")
                found.append(Row(f"{peer.name}: left out", 0, ""))
        if not bound.windows:
            for _ in range(options.rounds):
                bound.window(options.window)
                ours.window(options.window)
            found += rows("Shoal", geometric_mean(ours.rates), "/s")
    found += rows("the network in this process, one caller (bound)", geometric_mean(bound.windows), "/s")
    return report(f"throughput, {MODEL} CNN, {CLIENTS} clients", found, as_json=options.json)


def beside(peer: Peer, options: Any, ours: Side, bound: Bound) -> list[Row]:
    """Rounds of Shoal and this peer."""
    with running(peer, options.peers) as (url, processes):
        theirs = Side(first_answer(peer, url, bound.scores), processes)
        first_in_line(processes())
        theirs.window(WARM_S)
        ours.begin()
        theirs.begin()
        for _ in range(options.rounds):
            bound.window(options.window / 2)
            for side in (ours, theirs, theirs, ours):
                side.window(options.window)
    ratio = geometric_mean(np.divide(ours.by_round(), theirs.by_round()))
    return [
        Row(peer.name, geometric_mean(theirs.rates).value, "/s"),
        Row("  processor time for an answer", theirs.processor_ms, "ms"),
        Row("  Shoal beside it", geometric_mean(ours.rates).value, "/s"),
        Row("  processor time for an answer", ours.processor_ms, "ms"),
        *rows(f"Shoal over {peer.name}", ratio, "x", f">= {peer.at_least:g}", ratio.value >= peer.at_least),
    ]


class Side:
    """One server under the 8 clients. `rates` are answers per second by window since `begin`; `processor_ms` is what
    its processes used for an answer in the mean: a figure that a noisy neighbour hardly disturbs."""

    def __init__(self, prepared: Prepared, processes: Callable[[], list[psutil.Process]]) -> None:
        self._prepared = prepared
        self._processes = processes
        self.begin()

    def begin(self) -> None:
        self.rates: list[float] = []
        self._answers = 0
        self._spent_s = 0.0

    @property
    def processor_ms(self) -> float:
        return self._spent_s / self._answers * 1e3

    def by_round(self) -> np.ndarray:
        """Two windows are a round."""
        return np.reshape(self.rates, (-1, 2)).mean(axis=1)

    def window(self, seconds: float) -> None:
        warmup_s = min(0.2, seconds / 4)
        load = ClosedLoad(self._prepared.target, CLIENTS, seconds + warmup_s)
        settings = Settings(warmup_s=warmup_s, timeout_s=5.0, give_up_s=2.0)
        processes = self._processes()
        before_s = spent_s(processes)
        (result,) = run(drive([load], settings, prepared=[self._prepared]))
        self._spent_s += spent_s(processes) - before_s
        self._answers += len(result.status)
        if result.failures():
            raise Missing(f"{result.failures()} of {result.count()} requests failed: {result.errors()}")
        self.rates.append(result.completed_per_s())


def spent_s(processes: list[psutil.Process]) -> float:
    """Processor time so far, of those that are still there."""
    found = 0.0
    for process in processes:
        with suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system
    return found


class Bound:
    """The network in this process: what no server of one worker can do better than, and the right answers."""

    def __init__(self) -> None:
        self._session = in_process()
        self._inputs = [sample.inputs for sample in samples(MODEL, VARIETY)]
        self.scores = self._session.run(None, self._inputs[0])[0][0]
        self.windows: list[float] = []

    def window(self, seconds: float) -> None:
        began, calls = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            self._session.run(None, self._inputs[calls % VARIETY])
            calls += 1
        self.windows.append(calls / (time.perf_counter() - began))


# --- the peers ---


class Missing(Exception):
    """A peer that cannot be measured, and why."""


def oip(encoding: Encoding) -> Making:
    def make(url: str) -> Prepared:
        inputs = given_inputs([sample.inputs for sample in samples(MODEL, VARIETY)])
        return run(prepare(Target(url, MODEL, inputs=inputs), encoding=encoding, try_one=False))

    return make


def plain(
    path: str, body: Callable[[bytes], bytes], kind: str = "application/octet-stream"
) -> Callable[[str], Prepared]:
    """Requests to a server with a protocol of its own."""

    def make(url: str) -> Prepared:
        address, requests = Address.parse(url), []
        for sample in samples(MODEL, VARIETY):
            data = body(b"".join(array.tobytes() for array in sample.inputs.values()))
            requests.append(head(address, "POST", path, length=len(data), headers={"Content-Type": kind}) + data)
        return Prepared(Target(url, MODEL), address, tuple(requests), True)

    return make


def in_base64(data: bytes) -> bytes:
    return json.dumps({"x": base64.b64encode(data).decode()}).encode()


def floats(body: bytes) -> Any:
    """The last two of the body: all of a raw answer, and of a binary one what follows its JSON head."""
    return np.frombuffer(body[-8:], np.float32)


PEERS = (
    Peer("Triton", "pytriton", "serve_triton.py", oip(Encoding.BINARY), floats, 1.0),
    Peer(
        "mosec", "mosec", "serve_mosec.py", plain("/inference", bytes), floats, 1.0, ("--address", "127.0.0.1")
    ),
    Peer(
        "LitServe", "litserve", "serve_litserve.py", plain("/predict", in_base64, "application/json"),
        lambda body: json.loads(body)["y"][0], 1.8,
    ),
    Peer(
        "MLServer", "mlserver", "serve_mlserver.py", oip(Encoding.JSON),
        lambda body: json.loads(body)["outputs"][0]["data"], 3.0,
    ),
    Peer("Ray Serve", "ray", "serve_ray.py", plain("/infer", bytes), floats, 3.0),
)  # fmt: skip


def install(folder: Path) -> None:
    """A virtual environment with the peers, by uv where it is installed."""
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    uv = shutil.which("uv")
    pip = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
    subprocess.run([*pip, "-r", str(HERE / "requirements.txt")], check=True)


@contextmanager
def running(peer: Peer, folder: Path) -> Iterator[tuple[str, Callable[[], list[psutil.Process]]]]:
    """The peer's URL and processes while it runs, in a temporary directory of its own. Raises Missing."""
    if not any(folder.glob(f"lib/python*/site-packages/{peer.package}")):
        raise Missing(f"it is not installed in {folder} (--install)")
    port, mark = free_port(), secrets.token_hex(8)
    environ = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ} | {
        MARK: mark,
        "MODEL": str(fetch([MODEL], progress=lambda *_: None)[MODEL]),
        "PYTHONPATH": str(HERE),
        "OMP_NUM_THREADS": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    # Short, for the sockets that Ray puts into it.
    with tempfile.TemporaryDirectory(prefix="peer-", ignore_cleanup_errors=True) as place:
        command = [str(folder / "bin" / "python"), str(HERE / peer.script), "--port", str(port), *peer.options]
        with (Path(place) / "log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=place, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        try:
            wait_for(process, port, Path(place) / "log")
            yield f"http://127.0.0.1:{port}", lambda: marked(mark)
        finally:
            end(process, mark)


def wait_for(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    """Until it listens."""
    until = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < until:
        with socket.socket() as knock:
            knock.settimeout(0.5)
            if not knock.connect_ex(("127.0.0.1", port)):
                return
        time.sleep(0.1)
    last = log.read_text(errors="replace").strip().splitlines()[-1:]
    raise Missing(f"it did not start: {last[0] if last else 'no reason given'}")


def first_answer(peer: Peer, url: str, scores: Any) -> Prepared:
    """Its requests, once it answers the first one rightly. Raises Missing."""
    until = time.monotonic() + ANSWER_S
    while True:
        try:
            prepared = peer.prepared(url)
            body = run(ask(url, prepared.requests[0]))
            break
        except ShoalError as error:  # it listens before it has the model
            if time.monotonic() > until:
                raise Missing(f"it does not answer: {error}") from None
            time.sleep(0.2)
    if not np.allclose(peer.answer(body), scores, atol=1e-4):
        raise Missing(f"it answers {peer.answer(body)} where the network says {scores}")
    return prepared


async def ask(url: str, request: bytes) -> bytes:
    async with Client(url, timeout_s=10.0) as client:
        return await client.infer(request)


def free_port() -> int:
    """One whose next is free as well: some servers want two."""
    while True:
        with socket.socket() as one, socket.socket() as other:
            one.bind(("127.0.0.1", 0))
            port = int(one.getsockname()[1])
            if port < 65535 and other.connect_ex(("127.0.0.1", port + 1)):
                return port


def end(process: subprocess.Popen[bytes], mark: str) -> None:
    """The peer's processes: asked first, then killed, those that left its process group as well."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    while left := marked(mark):
        for one in left:
            with suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(left, timeout=1)


def marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get(MARK) == mark:
                found.append(process)
    return found


if __name__ == "__main__":
    sys.exit(main())
