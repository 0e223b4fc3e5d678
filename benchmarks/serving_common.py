"""What the benchmarks of serving share: real networks and inputs, a private gateway, and rows with an interval."""

from __future__ import annotations

import argparse
import asyncio
import atexit
import logging
import math
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
from common import Row
from models import fetch, find, samples

from shoal.core import Reason, ShoalError
from shoal.measure.load.inputs import given_inputs
from shoal.measure.statistics import Estimate, quantile
from shoal.measure.types import Target
from shoal.serve import ServiceSpec

VARIETY = 16
"""So many different inputs go round in a load."""
_READY_S = 180.0


def options_of(arguments: argparse.ArgumentParser) -> argparse.Namespace:
    """Parse, and go first in line for the processor if that is allowed."""
    arguments.add_argument("--nice", type=int, default=-20, help="of all that is measured; below 0 only for root [-20]")
    options = arguments.parse_args()
    try:
        os.nice(options.nice)
        atexit.register(_group(os.getpid()).write_text, "0")
        first_in_line([psutil.Process()])
    except PermissionError:
        note("not allowed to go first in line for the processor: what else runs here will show in the figures")
    return options


def first_in_line(processes: Iterable[psutil.Process]) -> None:
    """Give these the priority that this process has, on whichever side of a comparison they are.

    A client, a gateway and a replica wait for each other at every request: on a small machine that is shared, a
    neighbour's process would else be most of what is measured. Linux shares the processor among sessions first, so
    theirs count as well, and a new session (a replica's, a peer's) begins as nobody special.
    """
    nice = os.nice(0)
    for process in processes:
        with suppress(psutil.NoSuchProcess, OSError):
            process.nice(nice)
            _group(process.pid).write_text(str(nice))


def _group(pid: int) -> Path:
    """The session's niceness; not every kernel has it."""
    return Path(f"/proc/{pid}/autogroup")


@dataclass(frozen=True)
class Gateway:
    """A running gateway: `http` is its URL, `grpc` its host:port, `folder` where its replicas' logs are; the replicas
    are children of `pid`."""

    http: str
    grpc: str
    pid: int
    folder: Path
    tokens: Mapping[str, str] = field(repr=False)

    def processes(self) -> list[psutil.Process]:
        """The gateway and its replicas."""
        root = psutil.Process(self.pid)
        return [root, *root.children(recursive=True)]

    def target(self, model: str, tenant: str = "bench") -> Target:
        """The model of this tenant, called with real inputs."""
        examples = [sample.inputs for sample in samples(model, VARIETY)]
        return Target(self.http, model, token=self.tokens.get(tenant), tenant=tenant, inputs=given_inputs(examples))


@contextmanager
def gateway(services: Sequence[ServiceSpec], *, slots: int = 1, scheduler: str = "deadline") -> Iterator[Gateway]:
    """What `shoal serve` runs, in a process of its own and for any number of tenants, ready when the block begins.

    `slots` are executions at once: 1 leaves the second core of a small machine to the gateway and the load generator.
    """
    tenants = sorted({service.tenant for service in services})
    tokens = {name: secrets.token_urlsafe(24) for name in tenants} if len(tenants) > 1 else {}
    ours, theirs = multiprocessing.Pipe()
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        process = multiprocessing.get_context("spawn").Process(
            target=_serve, args=(Path(folder), services, slots, scheduler, tokens, theirs), name="gateway"
        )
        process.start()
        theirs.close()
        try:
            found = Gateway(*_told(ours), Path(folder), tokens)
            first_in_line(found.processes())
            yield found
        finally:
            ours.close()  # which is what it waits for
            process.join(15)
            process.kill()
            process.join()


def _told(pipe: Connection) -> tuple[str, str, int]:
    try:
        told = pipe.recv() if pipe.poll(_READY_S) else "it was not ready in time"
    except EOFError:
        told = "its process ended"
    if isinstance(told, str):
        raise SystemExit(f"the gateway cannot serve: {told}")
    return told


def service(tenant: str, model: str, *, slo_s: float | None = None, max_batch: int | None = None) -> ServiceSpec:
    """A network of the catalogue as a service with one replica; batches as large as pay, unless told otherwise."""
    spec = find(model).spec(fetch([model], progress=lambda *_: None)[model])
    if max_batch is not None:
        spec = replace(spec, max_batch=max_batch)
    return ServiceSpec(f"{tenant}-{model}", tenant, (spec,), slo_p99_s=slo_s)


def middle(values: Sequence[float]) -> Estimate:
    """The median, with the order statistics between which it lies at 95 % (the binomial distribution's, so that no
    shape is assumed)."""
    return quantile(values, 0.5)


def rows(
    measure: str, estimate: Estimate, unit: str, target: str = "", ok: bool | None = None, *, scale: float = 1.0
) -> list[Row]:
    """An estimate times `scale`, and below it the ends of its interval, as far as they are known."""
    found = [Row(measure, estimate.value * scale, unit, target, ok)]
    for word, end in ((f"{estimate.confidence:.0%} interval, from", estimate.low), ("to", estimate.high)):
        if math.isfinite(end):
            found.append(Row(f"  {word}", end * scale, unit))
    return found


def note(text: str) -> None:
    """For whoever watches; not part of the result."""
    print(text, file=sys.stderr, flush=True)


def doubt(what: str, doubts: Sequence[Reason]) -> None:
    """Say why figures of `what` may not be the server's."""
    if doubts:
        more = f" (and {len(doubts) - 1} more like it)" if len(doubts) > 1 else ""
        note(f"{what}: {doubts[0].text}{more}")


# --- in the gateway's process ---


def _serve(
    folder: Path, services: Sequence[ServiceSpec], slots: int, scheduler: str, tokens: dict[str, str], pipe: Connection
) -> None:
    import uvloop

    logging.basicConfig(level=logging.ERROR, format="%(message)s")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the benchmark's own end is this one's as well
    try:
        uvloop.run(_serving(folder, services, slots, scheduler, tokens, pipe))
    except ShoalError as error:
        pipe.send(str(error))


async def _serving(
    folder: Path, services: Sequence[ServiceSpec], slots: int, scheduler: str, tokens: dict[str, str], pipe: Connection
) -> None:
    from shoal.serve import Standalone

    ended = asyncio.Event()
    asyncio.get_running_loop().add_reader(pipe.fileno(), ended.set)
    alone = Standalone(folder, services, slots=slots, tokens=tokens, scheduler=scheduler)
    await alone.start()
    try:
        while not alone.process.gateway.ready() and not ended.is_set():
            await asyncio.sleep(0.02)
        http, grpc = alone.process.http, alone.process.grpc
        pipe.send((f"http://{http.host}:{http.port}", f"{grpc.host}:{grpc.port}", os.getpid()))
        await ended.wait()
    finally:
        await alone.stop()
