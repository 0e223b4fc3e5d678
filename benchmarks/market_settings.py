"""Where `markov` is worse than a baseline: one setting changed at a time, on real traces of spot availability.

    python benchmarks/market_settings.py TRACES [--starts 3] [--only PART] [--json]

TRACES is a folder of skypilot-org/spot-traces (NSDI'24). The base: one job of 24 hours on one V100, launches of ten
minutes, nothing lost with an instance, on demand at three times spot, deadlines of 1.3 and 1.5 times the work. `markov`
learned from the zones of `market_spot.py`, and may choose a baseline by replays on them; figures are of other zones.
Simulated: no instance was rented.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from common import Row, parser, report
from market_spot import TUNED

from shoal.market.compare import Compared, Start, compared, run, starts_of
from shoal.market.feeds import read
from shoal.market.history import History
from shoal.market.policy.fallback import choose
from shoal.market.ticks import Job, Ticks, cut

NAMES = ("markov", "uniform-progress", "greedy", "cheapest")
HOUR = 3600.0


@dataclass(frozen=True)
class Setting:
    name: str
    deadlines: tuple[float, ...] = (1.3, 1.5)
    work_h: float = 24.0
    launch_s: float = 600.0
    lost_s: float = 0.0
    on_demand: float = 3.0
    tick_s: float = 600.0
    refused: tuple[float, float, int] = (0.0, 0.0, 0)
    """The part of launches that fail, on spot and on demand, and the failures that a deadline allows for."""

    def market(self, history: History, deadline: float, seed: int = 0) -> Ticks:
        work_s = self.work_h * HOUR
        job = Job(work_s, work_s * deadline, self.launch_s, self.lost_s)
        found = cut(history, job, tick_s=self.tick_s, on_demand_usd=self.on_demand, spot_usd=1.0)
        spot, on_demand, retries = self.refused
        return found.refusing(spot, on_demand, retries, seed) if spot else found


SETTINGS = (
    *(Setting(f"deadline {one} x work", (one,)) for one in (1.01, 1.03, 1.05, 1.1, 1.2, 1.3, 1.5, 2.0)),
    *(Setting(f"launch of {one:g} s", launch_s=one) for one in (0.0, 300.0, 1200.0, 3600.0, 7200.0)),
    *(Setting(f"{one:g} min lost", lost_s=one * 60) for one in (10, 30, 60, 180)),
    Setting("launch of 30 min, 60 min lost", launch_s=1800.0, lost_s=HOUR),
    *(Setting(f"on demand {one} x spot", on_demand=one) for one in (1.05, 1.3, 1.5, 2.0, 5.0, 10.0)),
    *(Setting(f"{one:g} h of work", work_h=one) for one in (2, 6, 72)),
    *(Setting(f"a tick of {one:g} s", tick_s=one) for one in (195, 1800, 3600)),
    Setting("30 % of launches fail, 2 in a row", refused=(0.3, 0.3, 2)),
    Setting("70 % of spot launches fail", refused=(0.7, 0.0, 0)),
    Setting("70 % of spot launches fail, launch of 0 s", refused=(0.7, 0.0, 0), launch_s=0.0),
)


def tried(setting: Setting, tuned: list[History], held: list[History], starts: int) -> tuple[list[Compared], set[str]]:
    """The policies over all starts, and what `markov` chose in its place."""
    runs: list[Start] = []
    chosen: set[str] = set()
    for deadline in setting.deadlines:
        past = [setting.market(one, deadline) for one in tuned]
        choice = choose(past[0], past)
        chosen.add(choice.name)
        for number, one in enumerate(held):
            market = setting.market(one, deadline, number)
            if len(market.up) >= market.deadline:
                runs += run(market, NAMES, starts_of(market, starts, number), past, choice)
    return compared(runs, NAMES), chosen


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("traces", type=Path)
    arguments.add_argument("--starts", type=int, default=3, help="by zone and deadline")
    arguments.add_argument("--only", default="", help="settings whose name has this in it")
    given = arguments.parse_args()
    files = sorted(given.traces.glob("*_1-node_aws-*_v100_1.json"))
    mine = {
        path for path in files for zone in TUNED if path.name.startswith(f"availability_1-node_aws-02-15-2023_{zone}")
    }
    tuned, held = [read(path) for path in files if path in mine], [read(path) for path in files if path not in mine]
    rows: list[Row] = []
    for setting in SETTINGS:
        if given.only not in setting.name:
            continue
        found, chosen = tried(setting, tuned, held, given.starts)
        ours, *others = found
        best = min(others, key=lambda one: one.ratio)
        instead = "" if chosen == {"markov"} else f" ({' and '.join(sorted(chosen))} in its place)"
        rows.append(
            Row(f"{setting.name}: markov [{ours.low:.3f}, {ours.high:.3f}]{instead}", ours.ratio, "x optimum", "")
        )
        rows.append(Row(f"{setting.name}: {best.policy}", best.ratio, "x optimum", ""))
        # Starts are drawn, so a difference below half a per cent says nothing.
        rows.append(
            Row(f"{setting.name}: over the best other", ours.ratio / best.ratio, "x", "<= 1.005",
                ours.ratio <= best.ratio * 1.005)
        )  # fmt: skip
        missed = float(ours.missed)
        rows.append(Row(f"{setting.name}: deadlines missed of {ours.starts}", missed, "", "0", missed == 0))
        print(f"{setting.name}: {ours.ratio:.3f}, {best.policy} {best.ratio:.3f}{instead}", file=sys.stderr, flush=True)
    return report("One setting at a time on spot traces (simulated)", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
