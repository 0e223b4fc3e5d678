"""What every benchmark shares: the machine's description, a private server, and one way to print."""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

NO_TOKEN_LIMITS = {
    "SHOAL_TOKENS__REQUESTS_PER_S": "1000000", "SHOAL_TOKENS__BURST": "1000000", "SHOAL_TOKENS__STREAMS": "100000",
}  # fmt: skip
"""What a server under measurement can do, not what one token may ask of it."""


def machine() -> dict[str, Any]:
    model = "unknown processor"
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    git = ["git", "rev-parse", "--short", "HEAD"]
    try:
        found = subprocess.run(git, capture_output=True, text=True, cwd=Path(__file__).parent, check=False)
        commit = found.stdout.strip() or "unknown"
    except FileNotFoundError:  # a lent machine may have no git
        commit = "unknown"
    return {
        "cpu": model,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "python": platform.python_version(),
        "commit": commit,
        "load": os.getloadavg()[0],
    }


def command() -> str:
    """How this run was started, without the choice of its format."""
    told = [word for word in sys.argv[1:] if word != "--json"]
    return shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *told])


def yardstick() -> float:
    """Milliseconds of CPU that a fixed loop of plain Python takes just now: how fast this core is at the moment. On a
    shared host it may be half as fast as minutes ago, and everything measured with it."""
    before, table = time.process_time(), {}
    for number in range(1_500_000):
        table[number & 1023] = number
    return (time.process_time() - before) * 1e3


@dataclass(frozen=True)
class Row:
    measure: str
    value: float
    unit: str
    target: str = ""
    ok: bool | None = None


def report(title: str, rows: Sequence[Row], *, as_json: bool) -> int:
    """Print the rows; exit code 1 when a target was missed."""
    rows = [replace(row, ok=None if row.ok is None else bool(row.ok)) for row in rows]  # numpy has its own bool
    if as_json:
        rows_json = [row.__dict__ for row in rows]
        print(json.dumps({"benchmark": title, "command": command(), "machine": machine(), "rows": rows_json}))
    else:
        facts = machine()
        print(f"\n{title}")
        print(
            f"  {facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB, Python {facts['python']}, "
            f"commit {facts['commit']}, load {facts['load']:.1f}"
        )
        for row in rows:
            mark = "" if row.ok is None else ("  reached" if row.ok else "  MISSED")
            target = f"  (target {row.target})" if row.target else ""
            print(f"  {row.measure:<58} {row.value:>10.5g} {row.unit}{target}{mark}")
    return 1 if any(row.ok is False for row in rows) else 0


def parser(doc: str | None) -> argparse.ArgumentParser:
    arguments = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    return arguments


@dataclass
class Server:
    """A real server in a home of its own."""

    home: Path
    slots: int | None
    process: subprocess.Popen[bytes] | None = None
    url: str = ""
    pid: int = 0

    def start(self, *, wait_s: float = 30.0) -> float:
        """Start it; returns the seconds from exec to the first ready answer."""
        began = time.perf_counter()
        log = (self.home / "bench.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoal.cli", "up", "--home", str(self.home), "--port", "0",
             *([] if self.slots is None else ["--slots", str(self.slots)])],
            stdout=log, stderr=log, stdin=subprocess.DEVNULL, env={**os.environ, **NO_TOKEN_LIMITS},
        )  # fmt: skip
        return self.wait_ready(began, wait_s=wait_s)

    def wait_ready(self, began: float, *, wait_s: float = 30.0) -> float:
        """Wait until another server than that of before is ready; returns the seconds since `began`."""
        state = self.home / "server.json"
        assert self.process is not None
        while time.perf_counter() - began < wait_s:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended at once:\n{(self.home / 'bench.log').read_text()[-2000:]}")
            try:
                told = json.loads(state.read_text())
                self.url = told["url"]
                if told["pid"] != self.pid and is_of(told, self.process) and ready(self.url):
                    self.pid = told["pid"]
                    return time.perf_counter() - began
            except (OSError, ValueError, KeyError):
                pass
            time.sleep(0.002)
        raise SystemExit("the server was not ready in time")

    @property
    def parent(self) -> int:
        """The process that starts it again when it is killed."""
        assert self.process is not None
        return self.process.pid

    def cpu_s(self) -> float:
        return cpu_of(self.pid)

    def kill(self) -> None:
        """The server, and the process that would start it again."""
        from shoal.base.processes import start_ticks

        assert self.process is not None
        self.process.kill()
        self.process.wait()
        while start_ticks(self.pid) is not None:
            time.sleep(0.001)

    def client(self) -> Any:
        from shoal import Client

        return Client(home=self.home)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=20)


def cpu_of(pid: int) -> float:
    """Seconds of CPU that a process has had, in all its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ready(url: str) -> bool:
    host, _, port = url.removeprefix("http://").partition(":")
    asking = http.client.HTTPConnection(host, int(port), timeout=30)
    try:
        asking.request("GET", "/readyz")
        return asking.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        asking.close()


def is_of(told: dict[str, Any], process: subprocess.Popen[bytes]) -> bool:
    """Whether the server that the home's file tells of is forked by this process."""
    from shoal.base.home import ServerInfo

    parent = ServerInfo(**told).parent()
    return parent is not None and parent.pid == process.pid


@contextmanager
def server(*, slots: int | None) -> Iterator[Server]:
    home = Path(tempfile.mkdtemp(prefix="shoal-bench-"))
    one = Server(home, slots)
    try:
        one.start()
        yield one
    finally:
        one.stop()
        shutil.rmtree(home, ignore_errors=True)


def median(values: Sequence[float]) -> float:
    return statistics.median(values)
