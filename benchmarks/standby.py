"""How soon a standby serves when the server is killed with `kill -9`, on PostgreSQL, and whether anything is lost.

Clients submit without a pause meanwhile. A take-over lasts from the kill to the first answer of the standby; what was
acknowledged by anybody must be there afterwards, once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import NO_TOKEN_LIMITS, Row, is_of, median, parser, report


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=5)
    arguments.add_argument("--clients", type=int, default=4)
    options = arguments.parse_args()
    with database() as url, tempfile.TemporaryDirectory(prefix="shoal-bench-") as folder:
        home = Path(folder)
        active = start(home, url)
        wait_for(home, active)
        client = new_client(home)
        client.create_tenant("bench", sandbox="none")
        long = client.submit({"name": "long", "tenant": "bench", "command": ["sleep", "900"], "resources": {"cpus": 0}})
        submitters = [Submitter(home, number) for number in range(options.clients)]
        took: list[float] = []
        for _ in range(options.runs):
            following = start(home, url, "--standby")
            assert following.stdout is not None
            assert b"standing by" in following.stdout.readline()
            began = time.perf_counter()
            active.kill()
            wait_for(home, following)
            took.append(time.perf_counter() - began)
            active.wait()
            active = following
        acknowledged = {key: job for one in submitters for key, job in one.stop().items()}
        stored = [(job.id, job.name) for job in all_jobs(client)]
        lost = len(set(acknowledged.values()) - {job_id for job_id, _ in stored})
        doubled = len(stored) - len({name for _, name in stored})
        kept = client.job(long.id)
        active.terminate()
        active.wait()
    rows = [
        Row("server killed: the standby answers", median(took), "s", "<= 3", median(took) <= 3),
        Row("  slowest", max(took), "s", "<= 3", max(took) <= 3),
        Row("submissions acknowledged meanwhile", len(acknowledged), ""),
        Row("  lost", lost, "", "0", lost == 0),
        Row("  doubled", doubled, "", "0", doubled == 0),
        Row("attempts of a job that ran all the time", kept.attempt, "", "1", kept.attempt == 1),
    ]  # fmt: skip
    return report("a standby takes over", rows, as_json=options.json)


class Submitter:
    """Submits one job after another in a thread of its own; each waits for the long one, so that none runs."""

    def __init__(self, home: Path, number: int) -> None:
        self._client = new_client(home)
        self._number = number
        self._over = False
        self._acknowledged: dict[str, str] = {}
        self._thread = threading.Thread(target=self._submit)
        self._thread.start()

    def _submit(self) -> None:
        for count in itertools.count():
            if self._over:
                return
            name = f"fill-{self._number}-{count}"
            job = {"name": name, "tenant": "bench", "command": ["true"], "after": ["long"]}
            self._acknowledged[name] = self._client.submit(job, idempotency_key=name).id
            time.sleep(0.02)

    def stop(self) -> dict[str, str]:
        self._over = True
        self._thread.join()
        return self._acknowledged


def new_client(home: Path) -> Any:
    from shoal import Client

    return Client(home=home, patience_s=60.0)


def all_jobs(client: Any) -> Iterator[Any]:
    before = None
    while True:
        page = client.jobs(limit=1000, before=before)
        yield from page.jobs
        before = page.next
        if before is None:
            return


def start(home: Path, url: str, *words: str) -> subprocess.Popen[bytes]:
    log = (home / "bench.log").open("ab")
    return subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", "up", "--home", str(home), "--port", "0", "--db", url, "--slots", "2",
         *words],
        stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **NO_TOKEN_LIMITS},
    )  # fmt: skip


def wait_for(home: Path, process: subprocess.Popen[bytes]) -> None:
    """Until this process answers that it is ready."""
    import httpx

    with httpx.Client(timeout=2) as asking:
        while process.poll() is None:
            with contextlib.suppress(OSError, ValueError, httpx.HTTPError):
                told = json.loads((home / "server.json").read_text())
                if is_of(told, process) and asking.get(f"{told['url']}/readyz").status_code == 200:
                    return
            time.sleep(0.005)
    raise SystemExit(f"a server ended:\n{(home / 'bench.log').read_text()[-2000:]}")


@contextmanager
def database() -> Iterator[str]:
    """A PostgreSQL of our own, which flushes every commit; the installed one of the highest version."""
    programs = max(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parts[4]), default=None)
    if programs is None:
        raise SystemExit("PostgreSQL is not installed (apt install postgresql)")
    folder = Path(tempfile.mkdtemp(prefix="shoal-pg-"))
    user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        owner = pwd.getpwnam("postgres")
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = folder / "data"
    made = [*user, programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8"]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, cwd=folder)
    command = [*user, programs / "postgres", "-D", data, "-p", str(port), "-k", folder, "-h", "127.0.0.1"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder)
    try:
        ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready, check=False).returncode:
            time.sleep(0.05)
        yield f"postgresql://postgres@127.0.0.1:{port}/postgres"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
