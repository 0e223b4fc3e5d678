"""Gateways for tests: one over replicas that the test plays, and real ones with processes, on a loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import uvloop

from shoal.core import Reason, ShoalError, token_digest
from shoal.inference.errors import BadModel
from shoal.inference.opening import LoadReport, WarmupRuns
from shoal.inference.types import InferRequest, InferResponse, ModelMetadata, ModelSpec, TensorSpec
from shoal.serve.contract import (
    Address,
    Deployment,
    GatewayConfig,
    GatewayStatus,
    ServiceStatus,
    TenantEntry,
    read_status,
    write_config,
)
from shoal.serve.errors import ReplicaLost
from shoal.serve.gateway.core import Gateway
from shoal.serve.gateway.meter import Meter
from shoal.serve.gateway.replicas.execution import ExecutionResult
from shoal.serve.gateway.replicas.spawner import ReplicaProcess, SpawnedReplica
from shoal.serve.gateway.standalone import Standalone
from shoal.serve.replica.messages import Times
from shoal.serve.types import ServiceSpec
from tests.serve.client import InferenceClient
from tests.serve.models import FLOATS, ROOT, floats

T = TypeVar("T")
ENDS_WITHIN_S = 30.0
"""Only to fail instead of hanging."""


def eventually(true: Callable[[], Any], within_s: float = ENDS_WITHIN_S) -> Any:
    """The first truth, for threads."""
    until = time.monotonic() + within_s
    while not (found := true()):
        assert time.monotonic() < until, "it never came true"
        time.sleep(0.01)
    return found


# --- configurations ---


def service(name: str, models: Sequence[ModelSpec], tenant: str = "ada", **more: Any) -> ServiceSpec:
    return ServiceSpec(name, tenant, tuple(models), **more)


def token_of(service_id: str, generation: int) -> str:
    return f"replicas of {service_id} {generation}"


def deployment(spec: ServiceSpec, generation: int = 1) -> Deployment:
    """The service's id is its name."""
    return Deployment(spec.name, generation, spec, token_digest(token_of(spec.name, generation)))


def config(*deployments: Deployment, socket: Path = Path("/socket"), **more: Any) -> GatewayConfig:
    fields: dict[str, Any] = {"generation": 1, "slots": 2, "anonymous": "", "tenants": (TenantEntry("ada"),), **more}
    return GatewayConfig(socket=str(socket), services=deployments, **fields)


# --- replicas that the test plays ---


def report_of(spec: ModelSpec, resident_bytes: int = 0, load_s: float = 0.01) -> LoadReport:
    metadata = ModelMetadata(
        spec.name, (spec.version,), "test", spec.inputs or FLOATS, (TensorSpec("y", *_kind()),),
        spec.max_batch if spec.max_batch > 1 else 0,
    )  # fmt: skip
    runs = (WarmupRuns(1, (0.5, 0.001)),)
    if not spec.state:
        return LoadReport(metadata, load_s, 0.0, resident_bytes, runs)
    metadata = replace(metadata, sequences_only=True)
    return LoadReport(metadata, load_s, 0.0, resident_bytes, runs, ("sessions",), session_bytes=8)


def _kind() -> Any:
    return FLOATS[0].datatype, FLOATS[0].shape


class Played:
    """As a `Replica`, for a gateway without a registry. Executes at once unless it is `held`; loads at once unless
    the model is among those that are `slow`, until `finish`. `broken` models cannot be loaded. `sizes` are resident
    bytes."""

    def __init__(self, gateway: Gateway, name: str, token: str) -> None:
        self.gateway = gateway
        self.name = name
        self.token_digest = token_digest(token)
        self.models: dict[tuple[str, str], LoadReport] = {}
        self.leaving = False
        self.lost: Reason | None = None
        self.held = False
        self.slow: set[str] = set()
        self.broken: set[str] = set()
        self.sizes: Mapping[str, int] = {}
        self.device_s = 0.001
        self.log: list[tuple[str, str]] = []
        self.asked: list[tuple[Sequence[InferRequest], str, asyncio.Future[ExecutionResult]]] = []
        self.held_sequences = 0
        self.steps: list[list[tuple[int, int]]] = []
        self.ended: list[int] = []
        self._loads: dict[str, asyncio.Future[None]] = {}

    @property
    def in_flight(self) -> int:
        return len(self.asked) + len(self._loads)

    def expect(self, slo_s: float | None, load_timeout_s: float) -> None:
        self.expected = (slo_s, load_timeout_s)

    async def load(self, spec: ModelSpec, kept: bytes | None = None) -> LoadReport:
        self.kept = kept
        self.log.append(("load", spec.name))
        if spec.name in self.slow:
            self._loads[spec.name] = asyncio.get_running_loop().create_future()
            await self._loads[spec.name]
        if self.lost is not None:
            raise ReplicaLost(self.lost.text)
        if spec.name in self.broken:
            raise BadModel(f"{spec.name} is damaged")
        report = self.models[spec.name, spec.version] = report_of(spec, self.sizes.get(spec.name, 0))
        self.gateway.replica_set.ready(self, (spec.name, spec.version))  # type: ignore[arg-type]
        return report

    def finish(self, name: str) -> None:
        """The loading of a slow model."""
        self.slow.discard(name)
        self._loads.pop(name).set_result(None)

    def unload(self, name: str, version: str) -> asyncio.Future[None]:
        self.log.append(("unload", name))
        del self.models[name, version]
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def stop(self) -> None:
        self.leaving = True

    def end_sequence(self, model: tuple[str, str], number: int) -> None:
        self.held_sequences -= 1
        self.ended.append(number)

    def leave(self) -> None:
        """As a process that got SIGTERM."""
        self.leaving = True
        self.gateway.replica_set.leaving(self)  # type: ignore[arg-type]

    def execute(
        self, model: str, version: str, requests: Sequence[InferRequest], steps: Sequence[tuple[int, int]] = ()
    ) -> asyncio.Future[ExecutionResult]:
        self.log.append(("execute", model))
        if steps:
            self.steps.append(list(steps))
        done: asyncio.Future[ExecutionResult] = asyncio.get_running_loop().create_future()
        assert self.lost is None
        assert (model, version) in self.models
        self.asked.append((requests, version, done))
        if not self.held:
            self.answer(at=-1)
        return done

    def answer(self, *outcomes: ShoalError, at: int = 0) -> None:
        """The first batch that was asked; with these errors, if there are any, for its first requests."""
        requests, version, done = self.asked.pop(at)
        answers = [InferResponse(request.model, version, [], request.id) for request in requests]
        responses = (*outcomes, *answers[len(outcomes) :])
        if not done.done():
            done.set_result(ExecutionResult(responses, Times(0.0, self.device_s, 0.0, self.device_s)))

    def die(self) -> None:
        """As a killed process, seen by the registry."""
        self.lost = Reason("closed", "the process closed the connection")
        self.models.clear()
        for _, _, done in self.asked:
            done.set_exception(ReplicaLost(self.lost.text, where=self.name))
        for loading in self._loads.values():
            loading.set_result(None)
        self.asked.clear()
        self._loads.clear()
        self.gateway.replica_set.lost(self, self.lost)  # type: ignore[arg-type]


class Stage:
    """A gateway over replicas that are played."""

    def __init__(self, *deployments: Deployment, scheduler: str = "deadline", **more: Any) -> None:
        clock = asyncio.get_running_loop().time  # so that it leaps with the loop's
        self.gateway = Gateway(slots=2, scheduler=scheduler, meter=Meter(config()), clock=clock)
        self.follow(*deployments, **more)

    def follow(self, *deployments: Deployment, **more: Any) -> None:
        self.gateway.follow(config(*deployments, **more))

    def replica(self, name: str = "a", of: str = "s", generation: int = 1, **set_to: Any) -> Played:
        """One that joins."""
        played = Played(self.gateway, name, token_of(of, generation))
        for attribute, value in set_to.items():
            setattr(played, attribute, value)
        self.gateway.replica_set.joined(played)  # type: ignore[arg-type]
        return played

    def ask(self, model: str = "m", **more: Any) -> asyncio.Task[InferResponse]:
        request = floats("x", [[1.0]], model, **{"tenant": "ada", **more})
        return asyncio.get_running_loop().create_task(self.gateway.infer(request))

    async def settle(self) -> None:
        """Until nothing more happens by itself."""
        for _ in range(20):
            await asyncio.sleep(0)

    def state(self, model: str = "m", version: str = "1") -> tuple[str, str]:
        status = self.gateway.status(self.gateway.directory.find("ada", model), version)
        return status.state, status.reason


@contextlib.asynccontextmanager
async def stage(*deployments: Deployment, **more: Any) -> Any:
    made = Stage(*deployments, **more)
    try:
        yield made
    finally:
        await made.gateway.close()
        assert len(asyncio.all_tasks()) == 1, "it left tasks behind"


# --- real ones ---


class Threaded:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self.loop = uvloop.new_event_loop()
        self.complaints: list[dict[str, Any]] = []
        self.loop.set_exception_handler(lambda _, context: self.complaints.append(context))
        self._thread = threading.Thread(target=self.loop.run_forever, name="gateway", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(ENDS_WITHIN_S)

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(ENDS_WITHIN_S)
        self.loop.close()
        assert not self.complaints, self.complaints


class Live:
    """A `Standalone` that runs."""

    def __init__(self, alone: Standalone, threaded: Threaded) -> None:
        self.alone = alone
        self.process = alone.process
        self.gateway = alone.process.gateway
        self.run = threaded.run

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.process.http.port}"

    def client(self, token: str | None = None, **more: Any) -> InferenceClient:
        return InferenceClient(self.url, token=token, patience_s=ENDS_WITHIN_S, **more)

    def status(self) -> GatewayStatus:
        found = read_status(self.alone.folder)
        assert found is not None
        return found

    def service(self, service_id: str) -> ServiceStatus:
        return next(one for one in self.status().services if one.id == service_id)


@contextlib.contextmanager
def standalone(
    folder: Path, services: Sequence[ServiceSpec], *, wait: bool = True, drain_s: float = 1.0, **more: Any
) -> Iterator[Live]:
    threaded = Threaded()
    alone = Standalone(folder, services, python_path=[ROOT], **{"slots": 2, **more})
    try:
        threaded.run(alone.start())
        try:
            live = Live(alone, threaded)
            if wait:
                eventually(live.gateway.ready)
            yield live
        finally:
            threaded.run(alone.stop(drain_s))
    finally:
        threaded.close()


class Home:
    """A directory with a gateway process of its own, and replicas that outlive it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.generation = 0
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / "gateway.log"
        self._threaded = Threaded()
        self.spawned: dict[str, SpawnedReplica] = {}

    def configure(self, *deployments: Deployment, **more: Any) -> None:
        self.generation += 1
        fields = {"http": Address(), "generation": self.generation, **more}
        write_config(self.folder, config(*deployments, socket=self.folder / "s", **fields))

    def start(self) -> None:
        command = [sys.executable, "-m", "shoal.serve.gateway", "--home-dir", str(self.folder)]
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
        eventually(lambda: self.lives() and self.seen() is not None)

    def lives(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        return True

    def seen(self) -> GatewayStatus | None:
        """What the running gateway says."""
        status = read_status(self.folder)
        return status if status is not None and self.process is not None and status.pid == self.process.pid else None

    @property
    def status(self) -> GatewayStatus:
        found = self.seen()
        assert found is not None
        return found

    def service(self, service_id: str) -> ServiceStatus | None:
        return next((one for one in self.status.services if one.id == service_id), None)

    def followed(self) -> bool:
        return self.status.generation == self.generation

    def end(self, number: int) -> int:
        """The gateway's exit code, once it has ended by this signal."""
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(ENDS_WITHIN_S)

    def replicas(self, service_id: str, generation: int, *names: str) -> None:
        """Have these of the deployment running."""
        token = token_of(service_id, generation)
        how = ReplicaProcess(self.folder / "s", token, self.folder, python_path=[ROOT])

        async def add() -> None:
            self.spawned |= {name: SpawnedReplica(name, how, first_pause_s=0.01) for name in names}

        self._threaded.run(add())

    def client(self, **more: Any) -> InferenceClient:
        return InferenceClient(f"http://127.0.0.1:{self.status.http.port}", patience_s=ENDS_WITHIN_S, **more)

    def close(self) -> None:
        for replica in self.spawned.values():
            self._threaded.run(replica.close())
        if self.process is not None and self.process.poll() is None:
            self.end(signal.SIGKILL)
        self._threaded.close()


@contextlib.contextmanager
def home(folder: Path) -> Iterator[Home]:
    made = Home(folder)
    try:
        yield made
    finally:
        made.close()


class Load:
    """Threads that ask the same for as long as they may, and what came of it: "ok", or an error's code."""

    def __init__(self, ask: Callable[[], Any], threads: int = 4, *, warm: int = 20) -> None:
        self.outcomes: Counter[str] = Counter()
        self.errors: list[ShoalError] = []
        self._ask = ask
        self._warm = warm
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(threads)]

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                self._ask()
                self.outcomes["ok"] += 1
            except ShoalError as error:
                self.outcomes[error.code] += 1
                self.errors.append(error)
                time.sleep(0.005)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        self.more(self._warm)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(ENDS_WITHIN_S)
            assert not thread.is_alive(), "a request hangs"

    def more(self, answers: int = 20) -> None:
        """Return once so many more were answered."""
        wanted = self.outcomes["ok"] + answers
        eventually(lambda: self.outcomes["ok"] >= wanted)


def lets_nobody_in(client: InferenceClient) -> bool:
    try:
        return not client.live()
    except ShoalError:  # it was let in, and hung up on: the next one will not be
        return False


def kill(pid: int | None) -> None:
    assert pid is not None
    os.kill(pid, signal.SIGKILL)


ONE = np.ones((1, 4), np.float32)
