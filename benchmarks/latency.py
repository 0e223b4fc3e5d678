"""From submission to the first line of user code on an idle machine, and the server's idle memory.

The clock starts before the HTTP request and stops when the user's process has noted the time. The baseline in the same
run is the bare process, started by this script.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from common import Row, median, parser, report, server

from shoal.base.statistics import quantile

LATENCY_TARGET_MS, MEMORY_TARGET_MB = 100.0, 120.0
NOTE = "import sys,time; open(sys.argv[1],'w').write(repr(time.time()))"


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=30)
    options = arguments.parse_args()
    with server(slots=1) as one:
        client = one.client()
        client.create_tenant("bench", sandbox="none")
        bare = [time_bare(one.home / f"bare-{n}") for n in range(options.runs)]
        ours = [time_job(client, one.home / f"job-{n}") for n in range(options.runs)]
        time.sleep(2)
        memory_mb = resident_mb(one.pid)
    p50 = median(ours) * 1000
    rows = [
        Row("submit to first line of user code, p50", p50, "ms", f"<= {LATENCY_TARGET_MS:g}", p50 <= LATENCY_TARGET_MS),
        Row("  p95", quantile(ours, 0.95) * 1000, "ms"),
        Row("bare process to its first line, p50 (baseline)", median(bare) * 1000, "ms"),
        Row("ratio to that baseline", median(ours) / median(bare), "x"),
        Row("idle memory of the server", memory_mb, "MB", f"<= {MEMORY_TARGET_MB:g}", memory_mb <= MEMORY_TARGET_MB),
    ]
    return report("submission to user code, idle machine", rows, as_json=options.json)


def time_bare(note: Path) -> float:
    began = time.time()
    subprocess.run([sys.executable, "-c", NOTE, str(note)], check=True)
    return float(note.read_text()) - began


def time_job(client: object, note: Path) -> float:
    began = time.time()
    job = client.submit({"name": "first-line", "tenant": "bench", "command": [sys.executable, "-c", NOTE, str(note)]})
    client.wait(job.id, timeout_s=60)
    return float(note.read_text()) - began


def resident_mb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1000
    raise SystemExit("no memory figure in /proc")


if __name__ == "__main__":
    sys.exit(main())
