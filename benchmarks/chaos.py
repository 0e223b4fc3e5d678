"""Thousands of jobs while every process of ours is killed at random and the disk fills up, then a count of the dead.

`kill -9` falls on the server, on supervisors and on ranks; when run as root the server's home lies on a small disk of
its own (tmpfs) that is filled now and then. The evidence is independent of the server: each rank holds a file lock for
as long as any process of it lives, so the kernel itself says whether a job ever ran twice at a time; each appends to a
file outside the home. The event log is then read against the table of legal steps, and /proc for what was left behind.

With `--engine slurm` the jobs run on a private Slurm of this machine (3 nodes x 4 slots in name only, real daemons).
Then `kill -9` falls on slurmctld, slurmd and slurmstepd too, and no disk is filled. With `--engine ray` they run on a
private Ray (a head without devices, and 2 nodes x 4 GPUs in name only): it falls on raylets, on the actors beside ranks
and on whole nodes too, which are then started again.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from clusters import ray, slurm
from common import Row, Server, parser, report

from shoal.base.processes import send
from shoal.contract.lifecycle import TRANSITIONS, JobState

RANK = """
exec 9>>"$LOCKS/$SHOAL_JOB_ID.$RANK"
flock -n 9 || echo "OVERLAP $SHOAL_JOB_ID $SHOAL_ATTEMPT $RANK" >>"$TRACE"
echo "start $SHOAL_JOB_ID $SHOAL_ATTEMPT $RANK" >>"$TRACE"
sleep "$LENGTH"
echo "end $SHOAL_JOB_ID $SHOAL_ATTEMPT $RANK" >>"$TRACE"
"""


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--engine", choices=("local", "slurm", "ray"), default="local")
    arguments.add_argument("--jobs", type=int, default=2000)
    arguments.add_argument("--slots", type=int, default=8, help="of the local engine")
    arguments.add_argument("--kill-every", type=float, default=0.7, metavar="S", help="mean seconds between faults")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--limit", type=float, default=1500, metavar="S", help="give up after so many seconds")
    options = arguments.parse_args()
    absent = {"local": "", "slurm": ", ".join(slurm.missing()), "ray": ray.missing()}[options.engine]
    if absent:
        print(f"no {options.engine} here, for want of: {absent}. Nothing was measured", file=sys.stderr)
        return 0
    draw = random.Random(options.seed)
    with ExitStack() as stack:
        outside = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="shoal-chaos-")))
        home, is_small = stack.enter_context(small_disk())
        if options.engine == "slurm":
            cluster = stack.enter_context(slurm.PrivateSlurm())
            os.environ |= {**cluster.environment, "SHOAL_ENGINE": "slurm"}
            chaos: Chaos = SlurmChaos(Server(home, None), outside, draw, cluster)
        elif options.engine == "ray":
            nodes = stack.enter_context(ray.PrivateRay((0, 4, 4)))
            nodes.enter()
            os.environ |= {"SHOAL_ENGINE": "ray", "SHOAL_RAY__ADDRESS": nodes.address, "SHOAL_RAY__LEASE_S": "5"}
            chaos = RayChaos(Server(home, None), outside, draw, nodes)
        else:
            chaos = Chaos(Server(home, options.slots), outside, draw, is_small)
        found = chaos.run(options.jobs, options.kill_every, options.limit)
    rows = [
        Row("jobs acknowledged", found["jobs"], ""),
        *(
            Row(f"faults: {what} {'filled' if what == 'disk' else 'killed'}", found["killed"][what], "")
            for what in dict.fromkeys(chaos.faults)
        ),
        Row("attempts in all", found["attempts"], ""),
        Row("acknowledged jobs lost", found["lost"], "", "0", found["lost"] == 0),
        Row("jobs that ran twice at a time", found["overlaps"], "", "0", found["overlaps"] == 0),
        Row("lines of an attempt after a later one began", found["late"], "", "0", found["late"] == 0),
        Row("jobs called done without an end of every rank", found["hollow"], "", "0", found["hollow"] == 0),
        Row("processes left behind", found["leaked"], "", "0", found["leaked"] == 0),
        Row("illegal transitions", found["illegal"], "", "0", found["illegal"] == 0),
        Row("seconds", found["seconds"], "s"),
    ]
    title = "chaos: random kill -9 and a full disk"
    if options.engine != "local":
        title = f"chaos on {options.engine.title()}: random kill -9"
    return report(title, rows, as_json=options.json)


@contextmanager
def small_disk() -> Iterator[tuple[Path, bool]]:
    """A home on a disk of 256 MB when root may mount one, else an ordinary directory."""
    home = Path(tempfile.mkdtemp(prefix="shoal-chaos-home-"))
    mounted = (
        os.geteuid() == 0
        and not subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=256m,mode=700", "shoal-chaos", str(home)],
            capture_output=True,
            check=False,
        ).returncode
    )
    try:
        yield home, mounted
    finally:
        if mounted:
            subprocess.run(["umount", "-l", str(home)], check=False)
        shutil.rmtree(home, ignore_errors=True)


class Chaos:
    faults = ("rank", "rank", "supervisor", "supervisor", "server", "disk")
    """What is killed, as often as it stands here."""
    lengths_s: tuple[float, ...] = (0, 0.05, 0.3, 1.0)

    def __init__(self, server: Server, outside: Path, draw: random.Random, is_small: bool) -> None:
        self.server = server
        self.draw = draw
        self.is_small = is_small
        self.trace = outside / "trace"
        self.locks = outside / "locks"
        self.locks.mkdir()
        self.trace.touch()
        self.killed: Counter[str] = Counter()
        self.over = threading.Event()

    def run(self, jobs: int, kill_every_s: float, limit_s: float) -> dict[str, object]:
        began = time.perf_counter()
        self.server.start()
        client = self.server.client()
        client.create_tenant("ada", weight=2.0, sandbox="none")
        client.create_tenant("bob", sandbox="none")
        killer = threading.Thread(target=self._torment, args=(kill_every_s,))
        killer.start()
        try:
            ids = [self._submit(client, number) for number in range(jobs)]
            self._wait(client, ids, began + limit_s)
        finally:
            self.over.set()
            killer.join()
        self._wait(client, ids, began + limit_s)
        time.sleep(2)
        found = self._verdict(client, ids)
        self.server.stop()
        give_up_at = time.monotonic() + 10.0
        while self._processes() and time.monotonic() < give_up_at:
            time.sleep(0.2)
        return found | {
            "leaked": len(self._processes()), "killed": self.killed, "seconds": time.perf_counter() - began,
        }  # fmt: skip

    def _submit(self, client: object, number: int) -> str:
        draw = random.Random(f"{self.draw.random()}-{number}")
        manifest = {
            "name": f"chaos-{number}",
            "tenant": draw.choice(("ada", "bob")),
            "command": ["/bin/bash", "-c", RANK],
            "env": {
                "TRACE": str(self.trace),
                "LOCKS": str(self.locks),
                "LENGTH": f"{draw.choice(self.lengths_s)}",
            },
            "ranks": draw.choice((1, 1, 1, 1, 2)),
            "resources": {"accelerators": 1, "cpus": 0},
            "priority_class": draw.choice(("best-effort", "best-effort", "guaranteed")),
            "restart": {"limits": {"user": 100, "platform": 100, "infrastructure": 100}, "backoff": "100ms"},
            "grace": "1s",
        }
        while True:
            try:
                return client.submit(manifest, idempotency_key=f"chaos-{number}").id
            except Exception as error:
                if self.over.is_set():
                    raise
                print(f"submission {number} again: {error}", file=sys.stderr)
                time.sleep(0.2)

    def _wait(self, client: object, ids: list[str], until: float) -> None:
        open_jobs = set(ids)
        while open_jobs and time.perf_counter() < until:
            try:
                done = {job.id for state in ("SUCCEEDED", "FAILED", "CANCELLED") for job in _all(client, state)}
            except Exception:
                time.sleep(0.2)
                continue
            open_jobs -= done
            if open_jobs:
                time.sleep(1.0)

    def _torment(self, every_s: float) -> None:
        while not self.over.wait(self.draw.expovariate(1 / every_s)):
            self._harm(self.draw.choice(self.faults))

    def _harm(self, what: str) -> None:
        if what == "server":
            self._kill_server()
        elif what == "disk" and self.is_small:
            self._fill_disk()
        else:
            self._kill_one(what)

    def _kill_server(self) -> None:
        self.server.kill()
        self.killed["server"] += 1
        time.sleep(self.draw.choice((0.0, 0.3)))
        self.server.start(wait_s=60)

    def _fill_disk(self) -> None:
        ballast = self.server.home / "ballast"
        try:
            with ballast.open("wb") as file:
                while True:
                    file.write(b"\0" * (1 << 20))
        except OSError:
            pass
        self.killed["disk"] += 1
        time.sleep(0.5)
        ballast.unlink()

    def _kill_one(self, what: str) -> None:
        found = [pid for pid, kind in self._processes() if kind == what]
        if not found:
            return
        try:
            os.kill(self.draw.choice(found), signal.SIGKILL)
            self.killed[what] += 1
        except ProcessLookupError:
            pass

    def _processes(self) -> list[tuple[int, str]]:
        """(pid, what it is) of every process that belongs to this home, the server apart."""
        found = []
        home = str(self.server.home).encode()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) in (os.getpid(), self.server.pid):
                continue
            try:
                words = (entry / "cmdline").read_bytes()
                marks = (entry / "environ").read_bytes()
            except OSError:
                continue
            ours = b"supervisor.py" in words or b"programs/rank.pyc" in words
            if ours and (home in words or home in marks):
                found.append((int(entry.name), "supervisor"))
            elif b"SHOAL_HOME=" + home in marks and b"SHOAL_GANG=" in marks:
                found.append((int(entry.name), "rank"))
        return found

    def _verdict(self, client: object, ids: list[str]) -> dict[str, object]:
        states = {job.id: job.state for state in JobState for job in _all(client, state.value)}
        lines = self.trace.read_text().splitlines()
        ended = Counter(line.split()[1] for line in lines if line.startswith("end "))
        illegal, attempts = self._check_events(client)
        for job_id in ids:
            if states.get(job_id) != "SUCCEEDED":
                print(f"not done: {job_id} {states.get(job_id)}", file=sys.stderr)
        return {
            "jobs": len(set(ids)),
            "lost": sum(states.get(job_id) != "SUCCEEDED" for job_id in ids),
            "overlaps": sum(line.startswith("OVERLAP") for line in lines),
            "late": late(lines),
            "hollow": sum(not ended[job_id] for job_id in ids),
            "illegal": illegal,
            "attempts": attempts,
        }

    def _check_events(self, client: object) -> tuple[int, int]:
        illegal, attempts = 0, 0
        states: dict[str, str] = {}
        for event in client.events():
            if event.kind == "job.submitted":
                states[event.job_id] = "QUEUED"
            elif event.kind == "job.state":
                attempts += event.new_state == "PLACED"
                legal = (
                    states.get(event.job_id) == event.old_state
                    and JobState(event.new_state) in TRANSITIONS[JobState(event.old_state)]
                )
                illegal += not legal
                states[event.job_id] = event.new_state
        return illegal, attempts


class SlurmChaos(Chaos):
    faults = ("rank", "rank", "rank", "supervisor", "supervisor", "slurmstepd", "slurmd", "slurmctld", "server")

    def __init__(self, server: Server, outside: Path, draw: random.Random, cluster: slurm.PrivateSlurm) -> None:
        super().__init__(server, outside, draw, is_small=False)
        self.cluster = cluster

    def _harm(self, what: str) -> None:
        node = self.draw.choice(self.cluster.names)
        if what == "slurmstepd":
            self.killed[what] += len(self.cluster.kill_steps(node))
        elif what in ("slurmd", "slurmctld"):
            daemon = node if what == "slurmd" else what
            self.cluster.kill_daemon(daemon)
            self.killed[what] += 1
            time.sleep(self.draw.choice((0.0, 1.0, 3.0)))
            self.cluster.start_daemon(daemon)
        else:
            super()._harm(what)


class RayChaos(Chaos):
    faults = ("rank", "rank", "rank", "supervisor", "supervisor", "actor", "actor", "raylet", "node", "server")
    lengths_s = (0.3, 1.0, 3.0)  # to start an actor takes as long: shorter ranks would not be met

    def __init__(self, server: Server, outside: Path, draw: random.Random, cluster: ray.PrivateRay) -> None:
        super().__init__(server, outside, draw, is_small=False)
        self.cluster = cluster

    def _harm(self, what: str) -> None:
        node = self.draw.choice(self.cluster.names[1:])  # without its head there is no Ray
        if what == "actor":
            found = self.cluster.running("ray::RankActor")
            if found:
                self.killed[what] += send(self.draw.choice(found), signal.SIGKILL)
        elif what in ("raylet", "node"):
            if what == "raylet":
                send(self.cluster.raylet(node), signal.SIGKILL)
                time.sleep(1)  # what is left of the node ends by itself, or is ended
            self.cluster.kill_node(node)
            self.killed[what] += 1
            time.sleep(self.draw.choice((0.0, 3.0, 6.0)))
            self.cluster.start_node(node)
        else:
            super()._harm(what)


def late(lines: list[str]) -> int:
    """Lines that an attempt wrote after a later one of its job had begun."""
    newest: dict[str, int] = {}
    found = 0
    for line in lines:
        _, job_id, attempt, _ = line.split()
        newest[job_id] = max(newest.get(job_id, 0), int(attempt))
        found += int(attempt) < newest[job_id]
    return found


def _all(client: object, state: str) -> list[object]:
    found, before = [], None
    while True:
        page = client.jobs(state=[state], limit=1000, before=before)
        found += page.jobs
        before = page.next
        if before is None:
            return found


if __name__ == "__main__":
    sys.exit(main())
