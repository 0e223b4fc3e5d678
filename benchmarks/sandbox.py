"""What a sandbox adds to the start of a job: from the launch on the local engine to the rank's end, per level, against
`none` in the same run. The command does nothing. Levels take turns, so that what else the machine does meets all alike.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from common import Row, median, parser, report

from shoal.core import Sandbox
from shoal.engine import Gang, RankSpec
from shoal.engine.local import LocalEngine

BARS_MS = {Sandbox.USER: 5.0, Sandbox.BUBBLEWRAP: 15.0}


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--runs", type=int, default=40)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="shoal-sandbox-") as folder:
        times = asyncio.run(measure(Path(folder), options.runs))
    none = median(times[Sandbox.NONE]) * 1000
    rows = [Row("launch to end without a sandbox, p50 (baseline)", none, "ms")]
    for level, taken in times.items():
        if level is not Sandbox.NONE:
            added, bar = median(taken) * 1000 - none, BARS_MS[level]
            rows.append(Row(f"added by {level.value}, p50", added, "ms", f"<= {bar:g}", added <= bar))
            rows.append(Row("  ratio to the baseline", (none + added) / none, "x"))
    return report("start of a job in a sandbox", rows, as_json=options.json)


async def measure(home: Path, runs: int) -> dict[Sandbox, list[float]]:
    """Seconds of each run, of the levels that this machine has."""
    engine = LocalEngine(home, slots=1)
    await engine.open()
    try:
        there = {one.name for one in engine.capabilities() if one.available}
        levels = [level for level in Sandbox if level is Sandbox.NONE or level.capability in there]
        times: dict[Sandbox, list[float]] = {level: [] for level in levels}
        for number in range(runs):
            for level in levels:
                times[level].append(await one_run(engine, home, level, f"{level.value}.{number}.run"))
        return times
    finally:
        await engine.close()


async def one_run(engine: LocalEngine, home: Path, level: Sandbox, name: str) -> float:
    rank = RankSpec(0, os.uname().nodename)
    gang = Gang(name, ("/bin/true",), (rank,), home / "runs" / name / "1", tenant="bench", sandbox=level)
    began = time.perf_counter()
    await engine.launch(gang)
    async for status in engine.changes():
        if status.name == name and status.ended:
            break
    took = time.perf_counter() - began
    assert status.ranks[0].exit is not None
    assert status.ranks[0].exit.code == 0, status
    await engine.forget(name)
    return took


if __name__ == "__main__":
    raise SystemExit(main())
