"""Core pacing: an input pipeline beside an unmodified neighbour that floods memory, under every setting.

The pipeline (gather, crop, normalise, NCHW copy, small product; about 1 ms a step) has one CPU, a loop of streaming
stores the other. Windows of half a second come in pairs: first the pipeline beside a neighbour that only spins (the
baseline), then beside the stores under one setting. Rows are medians over pairs: the pipeline's speed against its
baseline, percentiles of its steps (CPU time) against the baseline's, and what the neighbour still moves.

Whether two virtual CPUs share a memory domain can change at any moment; a ping-pong tells before and after each window,
and windows during which it changed are dropped. Contention is there only while they share one: the script waits for
such moments until its time is over, and says so when none came. With `--keep FILE`, pairs are added to those that
earlier runs left in the file, so that several short runs make a table.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path

import numpy as np
from common import Row, machine, parser, report

from shoal.core import Unavailable
from shoal.host.actuators.pace import Pace
from shoal.host.bench.rig import Limit, Rig, Window
from shoal.host.fs import LINUX
from shoal.host.hierarchies import serving
from shoal.host.native import Kernel
from shoal.host.pacer import Pacer, calibrate, window

MEAN, TAIL, LEFT = 0.95, 1.10, 2.1e9
APART_PAIRS = 3
"""Enough in different domains, where nothing happens: time is for the moments in the same one."""
QUOTAS = ((0.10, 100_000), (0.10, 10_000))
PACED = (
    (0.05, 500), (0.07, 500), (0.08, 500), (0.10, 500), (0.15, 500), (0.25, 500), (0.50, 500),
    (0.08, 200), (0.08, 1000),
)  # fmt: skip
"""Share of the core, period in microseconds."""


@dataclass(frozen=True)
class Pair:
    """One setting against its baseline: the pipeline's speed and percentiles of its steps, as ratios."""

    same: bool
    speed: float
    p50: float
    p95: float
    p99: float
    gb_per_s: float

    @classmethod
    def of(cls, base: Window, hit: Window) -> Pair:
        ratios = (hit.percentile_s(q) / base.percentile_s(q) for q in (50, 95, 99))
        return cls(bool(hit.same), base.mean_s() / hit.mean_s(), *ratios, hit.bytes_per_s / 1e9)


@dataclass(frozen=True)
class Setting:
    name: str
    limit: Limit
    pairs: list[Pair] = field(default_factory=list)

    def median(self, same: bool) -> Pair | None:
        kept = [astuple(pair) for pair in self.pairs if pair.same is same]
        return Pair(same, *map(float, np.median(kept, axis=0)[1:])) if kept else None

    def count(self, same: bool) -> int:
        return sum(pair.same is same for pair in self.pairs)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--duration", type=float, default=100.0, metavar="S", help="stop after so long")
    arguments.add_argument("--pairs", type=int, default=10, help="enough for each setting")
    arguments.add_argument(
        "--keep", type=Path, metavar="FILE", help="JSON lines: earlier pairs count, new ones are added"
    )
    arguments.add_argument("--only", default="", help="only settings whose name has this")
    options = arguments.parse_args()
    pace = Pace().capability()
    if not pace.available:
        print(f"cannot pace cores here: {pace.detail}")
        return 0
    try:
        with Rig() as rig:
            lost_ns = calibrate(rig.neighbour_cpu)
            settings = [one for one in offered(rig, lost_ns) if options.only in one.name]
            recall(settings, options.keep)
            dropped = measure(rig, settings, seconds=options.duration, pairs=options.pairs, keep=options.keep)
    except Unavailable as problem:
        print(f"cannot measure here: {problem}")
        return 0
    if not options.json:
        show(settings, lost_ns, dropped)
    return report("core pacing beside a neighbour of streaming stores", bars(settings), as_json=options.json)


def offered(rig: Rig, lost_ns: int) -> Iterator[Setting]:
    yield Setting("none", nullcontext)
    hierarchy = serving(LINUX, "cpu")
    if hierarchy is not None:
        for share, period_us in QUOTAS:
            quota = cpu_quota(Path(hierarchy.top), hierarchy.version, share, period_us)
            yield Setting(f"quota {share * 100:.0f} % of {period_us // 1000} ms", quota)
    for share, period_us in PACED:
        frame = window(share, period_ns=period_us * 1000, lost_ns=lost_ns)
        yield Setting(f"paced {share * 100:.0f} % of {period_us} us", paced(rig.neighbour_cpu, frame))


def paced(cpu: int, frame: tuple[int, int]) -> Limit:
    @contextmanager
    def limit(_: int) -> Iterator[None]:
        pacer = Pacer()
        try:
            pacer.set({cpu: frame})
            pacer.renew()
            yield
        finally:
            pacer.close()

    return limit


def cpu_quota(top: Path, version: int, share: float, period_us: int) -> Limit:
    group = top / f"shoal-bench-{os.getpid()}"

    @contextmanager
    def limit(pid: int) -> Iterator[None]:
        group.mkdir(exist_ok=True)
        quota = round(share * period_us)
        if version == 1:
            (group / "cpu.cfs_period_us").write_text(str(period_us))
            (group / "cpu.cfs_quota_us").write_text(str(quota))
        else:
            (group / "cpu.max").write_text(f"{quota} {period_us}")
        (group / "cgroup.procs").write_text(str(pid))
        try:
            yield
        finally:
            (top / "cgroup.procs").write_text(str(pid))
            group.rmdir()

    return limit


def measure(rig: Rig, settings: list[Setting], *, seconds: float, pairs: int, keep: Path | None) -> int:
    """The setting with the fewest pairs of the present topology is next. Returns how many pairs were dropped."""
    until = time.monotonic() + seconds
    dropped = 0
    while time.monotonic() < until:
        now = rig.same_domain()
        fewest = min(settings, key=lambda one: one.count(bool(now)))
        if now is None or fewest.count(now) >= (pairs if now else APART_PAIRS):
            if now:
                break
            time.sleep(0.1)  # they are apart, and that is known well enough: wait until they meet
            continue
        base = rig.window(Kernel.SPIN)
        hit = rig.window(Kernel.NT_STORE, fewest.limit)
        if not (base.valid and hit.valid and base.same is hit.same):
            dropped += 1
            continue
        fewest.pairs.append(Pair.of(base, hit))
        if keep is not None:
            with keep.open("a") as file:
                file.write(json.dumps({"setting": fewest.name, **asdict(fewest.pairs[-1])}) + "\n")
    return dropped


def recall(settings: list[Setting], keep: Path | None) -> None:
    found = {one.name: one for one in settings}
    for line in keep.read_text().splitlines() if keep is not None and keep.exists() else ():
        kept = json.loads(line)
        setting = found.get(kept.pop("setting"))
        if setting is not None:
            setting.pairs.append(Pair(**kept))


def show(settings: list[Setting], lost_ns: int, dropped: int) -> None:
    print(f"\n  {machine()['cpu']}; a switch loses {lost_ns / 1000:.1f} us of each window; {dropped} pairs dropped")
    for same, title in ((True, "same memory domain"), (False, "different memory domains")):
        if not any(one.count(same) for one in settings):
            print(f"\n  {title}: never met with")
            continue
        print(f"\n  {title:<24}  speed    p50x    p95x    p99x   neighbour GB/s   pairs")
        for one in settings:
            row = one.median(same)
            if row is not None:
                ratios = f"{row.speed:6.3f}  {row.p50:6.2f}  {row.p95:6.2f}  {row.p99:6.2f}"
                print(f"  {one.name:<24} {ratios}  {row.gb_per_s:12.2f} {one.count(same):10d}")


def bars(settings: list[Setting]) -> list[Row]:
    """The claim is one setting that reaches all three bars at once: the best for the pipeline that leaves enough."""
    rows = []
    medians = {one.name: one.median(True) for one in settings}
    enough = {
        name: row
        for name, row in medians.items()
        if row is not None and name.startswith("paced") and row.gb_per_s * 1e9 >= LEFT
    }
    if enough:
        name, best = max(enough.items(), key=lambda item: item[1].speed)
        rows += [
            Row(f"pipeline's speed, {name}", best.speed, "x", f">= {MEAN}", best.speed >= MEAN),
            Row(f"its slowest steps (p99), {name}", best.p99, "x", f"<= {TAIL}", best.p99 <= TAIL),
            Row(f"left to the neighbour, {name}", best.gb_per_s, "GB/s", f">= {LEFT / 1e9:g}", True),
        ]
    for name in ("none", "quota 10 % of 100 ms"):
        row = medians.get(name)
        if row is not None:
            rows.append(Row(f"pipeline's speed, {name}", row.speed, "x"))
            rows.append(Row(f"its slowest steps (p99), {name}", row.p99, "x"))
    return rows


if __name__ == "__main__":
    sys.exit(main())
