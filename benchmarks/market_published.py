"""The published tables of dynamic pricing (DISPA'20), and the same prices charged honestly.

    python benchmarks/market_published.py DIME [--json]

DIME is a folder with `aws_spot_prices.csv`, `azure_*.csv` and `oracle_throughputs.json` of
stanford-futuredata/training_on_a_dime. The published ratios share instances with invisible neighbours and move for
nothing. Below them: whole instances where one accelerator is used, and 110 GB read at each launch away from home.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from common import Row, parser, report

from shoal.market.baselines.dime import table
from shoal.market.feeds import read_all
from shoal.market.history import History, Track
from shoal.market.optimum import optimum
from shoal.market.policy.names import policy_named
from shoal.market.simulate import simulate
from shoal.market.ticks import Job, cut

MODELS = ("A3C", "CycleGAN", "LM (batch size 80)", "Recommendation (batch size 8192)", "ResNet-50 (batch size 128)",
          "Transformer (batch size 256)")  # fmt: skip
PUBLISHED = {
    (4, "gpu_type"): (1.32, 1.00, 1.00, 1.01, 1.00, 1.00), (4, "packed"): (1.71, 1.08, 1.08, 1.31, 1.08, 1.11),
    (4, "multi_cloud"): (3.10, 1.54, 1.70, 2.38, 1.49, 2.36), (4, "dynamic"): (3.53, 1.64, 1.81, 2.76, 1.53, 3.21),
    (8, "dynamic"): (3.72, 1.72, 1.91, 2.88, 1.58, 3.47),
}  # fmt: skip


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("dime", type=Path)
    given = arguments.parse_args()
    history = read_all([given.dime / "aws_spot_prices.csv", *sorted(given.dime.glob("azure_us_*.csv"))])
    near = History({offer: track for offer, track in history.tracks.items()
                    if offer.provider == "azure" or offer.region == "us-east-1"})  # fmt: skip
    told = json.loads((given.dime / "oracle_throughputs.json").read_text())
    speeds = {kind: {model: row["null"] for model, row in by.items()} for kind, by in told.items()}
    rows = []
    for days in (4, 8):
        costs = table(near, speeds, MODELS, days)
        for (length, strategy), printed in PUBLISHED.items():
            if length == days:
                for model, ratio in zip(MODELS, printed, strict=True):
                    found = costs["baseline"][model] / costs[strategy][model]
                    rows.append(
                        Row(f"{days} days, {strategy}, {model}", found, "x", f"{ratio:.2f}", round(found, 2) == ratio)
                    )
        if days == 4:
            base = costs["baseline"]["A3C"]
    rows += charged(near, speeds, base)
    return report("Dynamic pricing: published, and charged for moves (simulated)", rows, as_json=given.json)


def charged(history: History, speeds: dict[str, dict[str, float]], base: float) -> list[Row]:
    """A3C, four days of a V100, 24 days to end it; 10 GB of state and 100 GB of data at us-east-1."""
    relative = {kind: by["A3C"] / speeds["v100"]["A3C"] for kind, by in speeds.items()}
    job = Job(4 * 86_400, 20 * 86_400, state_gb=10, data_gb=100, home="us-east-1")
    rows = []
    for shared in (True, False):
        tracks = {}
        for offer, track in history.tracks.items():
            prices = track.prices
            if shared and prices is not None:
                prices = type(prices)(prices.at_s, prices.usd / offer.accelerators)
            tracks[offer] = Track(prices, track.availability)
        market = cut(History(tracks), job, tick_s=6 * 3600, on_demand_usd={"v100": 3.06}, speeds=relative)
        starts = range(0, len(market.up) - market.deadline + 1, 2)
        found, least = [], []
        for at in starts:
            window = market.window(at)
            found.append(simulate(window, policy_named("markov")).usd)
            least.append(optimum(window, tolerance=0.02).upper)
        words = "shared instances" if shared else "whole instances"
        rows += [
            Row(f"A3C, moves and egress charged, {words}: markov", base / float(np.mean(found)), "x",
                ">= 3.53" if shared else "", base / float(np.mean(found)) >= 3.53 if shared else None),
            Row(f"A3C, moves and egress charged, {words}: optimum", base / float(np.mean(least)), "x"),
        ]  # fmt: skip
    return rows


if __name__ == "__main__":
    sys.exit(main())
