"""Instances are rented for jobs while the server is killed at random; then the provider's own truth is counted.

`kill -9` falls on a real server. The provider outlives it: the simulated one is a file of its own, with answers that
take a while so that a kill falls before, within and after a call; with `--provider aws` it is a moto server. Only
the provider is asked: which instances of one token ran at one time, or more for a job than it has ranks (doubled),
which still run when all jobs are over and the server had time to end them (forgotten), and what they cost (the cap).
The instances are simulated, or moto's.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from common import Row, Server, parser, report

from shoal.market.live.aws import AwsProvider
from shoal.market.live.provider import Instance
from shoal.market.live.records import charge
from shoal.market.live.settings import MarketFile, read_file
from shoal.market.live.simulated import SimulatedProvider

TENANTS = {"ada": 20.0, "bob": 0.6}
"""Dollars of each tenant for a hundred instances: the second one's cap is below what its jobs would cost."""
WAITING = 24
"""Jobs of the first tenant that are not over at a time."""
SPEED = 60.0


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--provider", choices=("simulated", "aws"), default="simulated")
    arguments.add_argument("--instances", type=int, default=200, help="to rent at least")
    arguments.add_argument("--kill-every", type=float, default=1.0, metavar="S", help="mean seconds between kills")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--limit", type=float, default=900, metavar="S", help="give up after so many seconds")
    options = arguments.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-market-")))
        endpoint = _moto(stack, folder) if options.provider == "aws" else ""
        caps = {tenant: usd * options.instances / 100 for tenant, usd in TENANTS.items()}
        file = _market(folder, options.provider, endpoint, caps)
        run = Run(folder, read_file(file), file, random.Random(options.seed))
        stack.callback(run.end)
        found = run.run(options.instances, options.kill_every, options.limit)
    rows = [
        Row("instances rented", found["rented"], "", f">= {options.instances}", found["rented"] >= options.instances),
        Row("servers killed", found["killed"], ""),
        Row("jobs done", found["done"], ""),
        Row("launches refused for a cap", found["refused"], ""),
        Row("instances forgotten", found["forgotten"], "", "0", found["forgotten"] == 0),
        Row("tokens or jobs with more instances than asked for", found["doubled"], "", "0", found["doubled"] == 0),
        Row("instances without a record", found["unknown"], "", "0", found["unknown"] == 0),
        *(
            Row(f"billed to {tenant}, of its cap", part := found["billed"][tenant] / usd, "", "<= 1", part <= 1)
            for tenant, usd in caps.items()
        ),
        Row("looks at which a ledger was below the bill", found["below"], "", "0", found["below"] == 0),
        Row("seconds", found["seconds"], "s"),
    ]  # fmt: skip
    return report(f"market live: {options.provider} provider, random kill -9", rows, as_json=options.json)


def _moto(stack: ExitStack, folder: Path) -> str:
    """A moto server of our own, and what boto3 needs to talk to it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_EC2_METADATA_DISABLED": "true"}
    with (folder / "moto.log").open("wb") as log:
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "moto_server"), "-p", str(port)], stdout=log, stderr=log
        )
    stack.callback(process.wait)
    stack.callback(process.send_signal, signal.SIGKILL)
    for _ in range(300):
        with socket.socket() as asking:
            if asking.connect_ex(("127.0.0.1", port)) == 0:
                return f"http://127.0.0.1:{port}"
        time.sleep(0.1)
    raise SystemExit((folder / "moto.log").read_text()[-2000:])


def _market(folder: Path, provider: str, endpoint: str, caps: dict[str, float]) -> Path:
    """Two offers: spot, which is cheaper, and on demand."""
    import yaml

    simulated = provider == "simulated"
    offer = {"region": "us-east-1", "instance": "m5.large", "accelerator": "v100", "cpus": 8, "memory": "60G"}
    path = folder / "market.yaml"
    path.write_text(yaml.safe_dump({
        "provider": provider, "every": "30s" if simulated else "500ms", "tick": "60s", "lease": "10m", "notice": "1m",
        "retry": "1m", "policy": "cheapest", "caps": caps, "fleet": "bench",
        "offers": [{**offer, "zone": "us-east-1a", "spot": True, "usd_per_hour": 1.0}, {**offer, "usd_per_hour": 3.0}],
        "simulated": {"speed": SPEED, "launch": "20s", "path": str(folder / "truth.db"), "answer_s": 0.05},
        **({} if simulated else {"aws": {"region": "us-east-1", "image": "ami-12c6146b", "endpoint": endpoint}}),
    }))  # fmt: skip
    return path


class Run:
    def __init__(self, folder: Path, file: MarketFile, path: Path, draw: random.Random) -> None:
        home = folder / "home"
        home.mkdir()
        os.environ |= {"SHOAL_ENGINE": "simulated", "SHOAL_MARKET__FILE": str(path)}
        self.server = Server(home, None)
        self.draw, self.file = draw, file
        self.truth = _truth(file)
        self.over = threading.Event()
        self.killed = 0
        self.doubled: set[str] = set()
        self.ranks: dict[str, int] = {}
        self.below = 0

    def run(self, instances: int, kill_every_s: float, limit_s: float) -> dict[str, Any]:
        began = time.perf_counter()
        self.server.start()
        client = self.server.client()
        for tenant in TENANTS:
            client.create_tenant(tenant, sandbox="none")
        threads = [
            threading.Thread(target=self._torment, args=(kill_every_s,)),
            threading.Thread(target=self._watch),
        ]
        for thread in threads:
            thread.start()
        ids: list[str] = []
        try:
            while len(self._all()) < instances and time.perf_counter() < began + limit_s:
                found = self._until(lambda: client.jobs(tenant="ada", limit=1000)).jobs
                waiting = sum(job.ended_at is None for job in found)
                if waiting < WAITING:
                    ids += [self._submit(client, len(ids) + at) for at in range(4)]
                time.sleep(0.3)
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        for job_id in ids:
            self._until(lambda job_id=job_id: client.cancel(job_id))  # type: ignore[misc]
        done = sum(job.state == "SUCCEEDED" for job in _jobs(client))
        give_up_at = time.perf_counter() + 90
        while self._running() and time.perf_counter() < give_up_at:
            time.sleep(0.2)
        time.sleep(1.5)  # a late orphan would be there by now
        ledger = self._until(lambda: client.market.ledger())
        known = {one.rental for one in ledger.rentals}
        truth = self._all()
        events = Counter(event.kind for event in client.events())
        return {
            "rented": len(truth), "killed": self.killed, "done": done, "forgotten": len(self._running()),
            "doubled": len(self.doubled),
            "unknown": len({one.token for one, _ in truth} - known) if len(known) < 1000 else 0,
            "billed": self._billed(), "below": self.below, "refused": events["market.refused"],
            "seconds": time.perf_counter() - began,
        }  # fmt: skip

    def end(self) -> None:
        self.over.set()
        if self.server.process is not None:
            self.server.kill()

    def _submit(self, client: Any, number: int) -> str:
        ranks = self.draw.choice((1, 1, 2))
        manifest = {
            "name": f"rent-{number}", "tenant": "bob" if number % 5 == 0 else "ada",
            "command": ["sleep", str(self.draw.choice((0.2, 0.5, 2.0)))],
            "resources": {"accelerators": {"type": "v100", "count": 1}, "cpus": 1},
            "ranks": ranks,
            "restart": {"limits": {"user": 100, "platform": 100, "infrastructure": 100}, "backoff": "100ms"},
            "extensions": {"market": {"work": "1h", "deadline": "12h"}},
        }  # fmt: skip
        found: str = self._until(lambda: client.submit(manifest, idempotency_key=f"rent-{number}").id)
        self.ranks[found] = ranks
        return found

    def _until(self, call: Callable[[], Any]) -> Any:
        """Again while the server is away."""
        for _ in range(300):
            try:
                return call()
            except Exception as error:
                if type(error).__name__ in ("Conflict", "NotFound"):
                    return None
                last = error
                time.sleep(0.2)
        raise SystemExit(f"the server does not answer: {last}")

    def _torment(self, every_s: float) -> None:
        while not self.over.wait(self.draw.expovariate(1 / every_s)):
            self.server.kill()
            self.killed += 1
            time.sleep(self.draw.choice((0.0, 0.5)))
            self.server.start(wait_s=60)

    def _watch(self) -> None:
        """What runs at one time, and whether the ledger holds all that the provider bills."""
        client = self.server.client()
        while not self.over.wait(0.2):
            running = [one.token for one in self._running()]
            self.doubled |= {token for token, count in Counter(running).items() if count > 1}
            of_job = Counter(token.rsplit("-", 2)[0] for token in running)
            self.doubled |= {job for job, count in of_job.items() if count > self.ranks.get(job, 2)}
            billed = self._billed()
            try:
                accounts = client.market.status().accounts
            except Exception:
                continue
            told = {one.tenant: one.spent_usd + one.held_usd for one in accounts}
            self.below += any(usd > told[tenant] + 1e-4 for tenant, usd in billed.items())

    # --- the provider's truth ---

    def _all(self) -> Sequence[tuple[Instance, str]]:
        return self.truth.everything()

    def _running(self) -> list[Instance]:
        return [one for one, _ in self._all() if one.ended_at is None]

    def _billed(self) -> dict[str, float]:
        return {tenant: self.truth.billed(tenant) for tenant in TENANTS}


class SimulatedTruth:
    def __init__(self, file: MarketFile) -> None:
        from shoal.core import SystemClock
        from shoal.market.live.providers import make_provider

        provider = make_provider(file, Path("/nonexistent"), SystemClock(), file.fleet)
        assert isinstance(provider, SimulatedProvider)
        self._provider = provider

    def everything(self) -> Sequence[tuple[Instance, str]]:
        return self._provider.everything()

    def billed(self, tenant: str) -> float:
        return self._provider.bills().get(tenant, 0.0)


class MotoTruth:
    """What moto says, asked with boto3; billed by the second at the agreed prices, a minute at least."""

    def __init__(self, file: MarketFile) -> None:
        import boto3

        assert file.aws is not None
        self._client = boto3.client("ec2", region_name=file.aws.region, endpoint_url=file.aws.endpoint)
        self._micro = {one.offer.name: int(one.usd_per_hour * 1e6) for one in file.listings()}
        from shoal.core import SystemClock

        self._provider = AwsProvider(file.aws, file.listings(), file.fleet, SystemClock())
        self._offers: dict[str, tuple[str, str]] = {}

    def everything(self) -> Sequence[tuple[Instance, str]]:
        found = []
        filters = [{"Name": "tag:shoal-fleet", "Values": ["bench"]}]
        for page in self._client.get_paginator("describe_instances").paginate(Filters=filters):
            for group in page["Reservations"]:
                for told in group["Instances"]:
                    tags = {tag["Key"]: tag["Value"] for tag in told["Tags"]}
                    self._offers[told["InstanceId"]] = (tags["shoal-offer"], tags["shoal-tenant"])
                    found.append((self._provider._instance(told), tags["shoal-tenant"]))
        return found

    def billed(self, tenant: str) -> float:
        now, micro = time.time(), 0
        for one, of in self.everything():
            if of == tenant:
                price = self._micro[self._offers[one.id][0]]
                micro += charge(price, (now if one.ended_at is None else one.ended_at) - one.launched_at)
        return micro / 1e6


def _truth(file: MarketFile) -> SimulatedTruth | MotoTruth:
    return SimulatedTruth(file) if file.provider == "simulated" else MotoTruth(file)


def _jobs(client: Any) -> list[Any]:
    found, before = [], None
    while True:
        page = client.jobs(limit=1000, before=before)
        found += page.jobs
        before = page.next
        if before is None:
            return found


if __name__ == "__main__":
    sys.exit(main())
