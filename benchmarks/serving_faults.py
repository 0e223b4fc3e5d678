"""What callers see when processes of the server are killed (`kill -9`) under load, and how soon there is a new one.

Two parts, each with an even open loop at random moments (Poisson) on the orientation CNN, a kill in its midst:

- a replica, under a gateway as `shoal serve` runs it: several services with one replica each, killed in turn, so that
  each had settled before it died;
- a replica, and then the gateway, of a service that a control plane (`shoal up`, in a home of its own) keeps running:
  `shoal deploy`.

Every request is counted by how it ended: answered; with an error of the protocol (an HTTP status); or, where the
gateway itself died, with a connection that was cut or refused, which its caller sees at once. None may end in no way,
which is to say not within 10 seconds, and while the gateway lives none may lose its connection. A restart takes from
the kill to the first answer that the new process gave or passed on.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from common import Row, Server, median, parser, report, server
from models import fetch, samples
from serving_common import VARIETY, Gateway, gateway, options_of, service

from shoal.base.arrivals import poisson
from shoal.measure.load.generator import OpenLoad, Settings, drive, run
from shoal.measure.load.inputs import given_inputs
from shoal.measure.load.oip import prepare
from shoal.measure.progress import Progress
from shoal.measure.types import Failure, LoadResult, Target
from shoal.serve import read_status

MODEL, TENANT = "orientation", "bench"
SERVICES = 10
KILL_AT_S, SURELY_S = 0.5, 0.05
"""What is answered within `SURELY_S` of a kill was answered before it: no process starts in that time."""
ANSWER_S, TARGET_S = 10.0, 2.0
CUT = (Failure.CONNECT, Failure.LOST)


@dataclass(frozen=True)
class Kill:
    """One load with a kill in it. `ends` counts the requests by status (or `Failure`); `back_s` is the time until the
    first answer after the kill, infinite if there was none."""

    ends: Counter[int]
    back_s: float


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--kills", type=int, default=20, help="of replicas under `shoal serve`")
    arguments.add_argument("--homes", type=int, default=4, help="control planes; each loses a replica and its gateway")
    arguments.add_argument("--rate", type=float, default=500.0, help="requests per second")
    arguments.add_argument("--duration", type=float, default=2.5, metavar="S", help="of the load after each kill")
    options = options_of(arguments)
    table = list(part("replica, `shoal serve`", list(replicas(options)), cut=False))
    pairs = list(deployed(options))
    table += part("replica, deployed", [first for first, _ in pairs], cut=False)
    table += part("gateway, deployed", [second for _, second in pairs], cut=True)
    return report("processes of the server killed (kill -9) under load", table, as_json=options.json)


def replicas(options: argparse.Namespace) -> Iterator[Kill]:
    """Of services in one gateway, each one's replica once; then of a fresh gateway."""
    left = options.kills
    while left:
        tenants = [f"tenant-{number}" for number in range(min(left, SERVICES))]
        left -= len(tenants)
        with gateway([service(tenant, MODEL) for tenant in tenants]) as one:
            for number, tenant in enumerate(tenants):
                victim = replica_of(one, tenant)
                yield under_load(one.target(MODEL, tenant), victim.kill, options, seed=left + number)


def replica_of(one: Gateway, tenant: str) -> psutil.Process:
    (found,) = [process for process in one.processes() if f"{tenant}.{tenant}-{MODEL}-0-1" in process.cmdline()]
    return found


def deployed(options: argparse.Namespace) -> Iterator[tuple[Kill, Kill]]:
    """A replica killed, and then the gateway, in fresh homes: whoever dies again soon is started with a pause."""
    source = str(fetch([MODEL], progress=lambda *_: None)[MODEL])
    for number in range(options.homes):
        with server(slots=2) as plane:
            target = deploy(plane, source)
            first = under_load(target, lambda: kill_replica(plane.home), options, seed=1000 + number)
            second = under_load(target, lambda: kill_gateway(plane.home), options, seed=2000 + number, longer=2)
            yield first, second
            with plane.client() as client:
                gone = client.services.undeploy(MODEL, tenant=TENANT)
                # A server that ends leaves services that still run.
                client.services.wait_stopped(gone.id, timeout_s=30.0)


def deploy(plane: Server, source: str) -> Target:
    with plane.client() as client:
        client.create_tenant(TENANT, sandbox="none")
        token = client.create_token(TENANT, label="bench").token
        manifest = {
            "kind": "service", "name": MODEL, "tenant": TENANT, "priority_class": "guaranteed",
            "models": [{"name": MODEL, "source": source}], "resources": {"cpus": 0.5, "memory": "512MiB"},
        }  # fmt: skip
        client.services.deploy(manifest)
        ready = client.services.wait_ready(MODEL, tenant=TENANT, timeout_s=60.0)
    inputs = given_inputs([sample.inputs for sample in samples(MODEL, VARIETY)])
    return Target(ready.endpoints.http, MODEL, token=token, tenant=TENANT, inputs=inputs)


def kill_replica(home: Path) -> None:
    """The one whose gateway's socket is in this home."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "shoal.serve.replica" in words and any(word.startswith(str(home)) for word in words):
            process.kill()
            return
    raise SystemExit(f"no replica of {home} runs")


def kill_gateway(home: Path) -> None:
    status = read_status(home / "serve")
    assert status is not None
    os.kill(status.pid, signal.SIGKILL)


def under_load(
    target: Target, kill: Callable[[], None], options: argparse.Namespace, *, seed: int, longer: float = 1
) -> Kill:
    """The load goes on until every request has ended."""
    arrivals = poisson(options.rate, KILL_AT_S + longer * options.duration, seed=seed)
    killed: list[float] = []

    def kill_once(progress: Progress) -> None:
        if not killed and progress.elapsed_s >= KILL_AT_S:
            killed.append(progress.elapsed_s)
            kill()

    settings = Settings(timeout_s=ANSWER_S, give_up_s=60.0)
    prepared = run(prepare(target))
    (result,) = run(drive([OpenLoad(target, arrivals)], settings, prepared=[prepared], on_progress=kill_once))
    (at_s,) = killed
    return Kill(Counter(result.status.tolist()), back_s(result, at_s))


def back_s(result: LoadResult, killed_s: float) -> float:
    good = (result.status == 200) & (result.done_s > killed_s + SURELY_S)
    return float(np.min(result.done_s[good], initial=np.inf)) - killed_s


def part(victim: str, kills: Sequence[Kill], *, cut: bool) -> Iterator[Row]:
    """Its rows; `cut` says whether connections may be lost, as the gateway holds them."""
    ends = sum((one.ends for one in kills), Counter[int]())
    errors = {code: count for code, count in sorted(ends.items()) if code > 200}
    broken = sum(ends[kind] for kind in CUT)
    lost = ends.total() - ends[200] - sum(errors.values()) - (broken if cut else 0)
    yield Row(f"{victim}: kills", len(kills), "")
    yield Row("  requests", ends.total(), "")
    yield Row("  answered", ends[200], "")
    for code, count in errors.items():
        yield Row(f"  ended with HTTP {code}", count, "")
    if cut:
        yield Row("  ended with a connection cut or refused", broken, "")
    yield Row("  lost without a word", lost, "", "0", not lost)
    if kills:
        middle = median([one.back_s for one in kills])
        yield Row("  from the kill to the next answer", middle, "s", f"<= {TARGET_S:g}", middle <= TARGET_S)
        yield Row("    slowest", max(one.back_s for one in kills), "s")


if __name__ == "__main__":
    sys.exit(main())
