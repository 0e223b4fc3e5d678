"""What a job array of 10,000 tasks costs against as many single jobs: to submit, to list, to cancel, to take up again.

The tasks wait behind a job that holds all slots, so nothing else runs meanwhile. The longest answer of another client
is measured during the submission.
"""

from __future__ import annotations

import sys
import threading
import time

from common import Row, parser, report, server

TASKS = 10_000
SINGLES = 1_000


def main() -> int:
    options = parser(__doc__).parse_args()
    with server(slots=2) as one:
        client = one.client()
        client.create_tenant("bench", sandbox="none")
        client.submit({"name": "blocker", "tenant": "bench", "command": ["sleep", "900"], "resources": HOLDS_ALL})
        task = {"tenant": "bench", "command": ["true"], "resources": {"accelerators": 1, "cpus": 0}}
        before, began = one.cpu_s(), time.perf_counter()
        for number in range(SINGLES):
            client.submit({**task, "name": f"single-{number}"})
        single_ms = (one.cpu_s() - before) / SINGLES * 1e3
        singles_s = (time.perf_counter() - began) / SINGLES * TASKS
        slowest = Slowest(one)
        before, began = one.cpu_s(), time.perf_counter()
        array = client.submit({**task, "name": "sweep", "array": f"0-{TASKS - 1}"})
        array_s, array_ms = time.perf_counter() - began, (one.cpu_s() - before) / TASKS * 1e3
        blocked_s = slowest.stop()
        began = time.perf_counter()
        listed = client.jobs(fold=True, limit=10)
        list_s = time.perf_counter() - began
        began = time.perf_counter()
        limited = client.submit({**task, "name": "limited", "array": f"0-{TASKS - 1}%10"})
        limited_s = time.perf_counter() - began
        client.change_array(limited.array_id, "cancel")
        one.kill()
        restart_s = one.start()
        began = time.perf_counter()
        changed = client.change_array(array.array_id, "cancel").changed
        cancel_s = time.perf_counter() - began
    rows = [
        Row(f"array of {TASKS} submitted, durable", array_s, "s"),
        Row(f"  {TASKS} single jobs by one client (from {SINGLES})", singles_s, "s"),
        Row(
            "  server's CPU for a task",
            array_ms,
            "ms",
            f"<= {single_ms / 2:.2f}: half a job's",
            array_ms <= single_ms / 2,
        ),
        Row("  server's CPU for a single job", single_ms, "ms"),
        Row("  longest answer to another client meanwhile", blocked_s, "s"),
        Row("array with %10 submitted", limited_s, "s"),
        Row("listed as one line", list_s, "s", "1 array", len(listed.arrays) == 1),
        Row("server killed with all waiting: ready again", restart_s, "s"),
        Row(f"{TASKS} tasks cancelled in one request", cancel_s, "s", f"{TASKS} tasks", len(changed) == TASKS),
    ]
    return report("job arrays", rows, as_json=options.json)


HOLDS_ALL = {"accelerators": 2, "cpus": 0}


class Slowest:
    """Asks for the status again and again in a thread of its own, and keeps the longest answer."""

    def __init__(self, one: object) -> None:
        self._client = one.client()  # type: ignore[attr-defined]
        self._over = False
        self._longest = 0.0
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._over:
            began = time.perf_counter()
            self._client.nodes()
            self._longest = max(self._longest, time.perf_counter() - began)
            time.sleep(0.005)

    def stop(self) -> float:
        self._over = True
        self._thread.join()
        return self._longest


if __name__ == "__main__":
    sys.exit(main())
