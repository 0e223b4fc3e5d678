"""The programs of the papers, as their users would write them: with random inputs and the true formulas."""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Workload:
    """`make` builds the inputs of a size, `run` is what is measured. `sizes` is (small, usual); the unit of a size is
    the workload's own: elements, rows, bodies."""

    suite: str
    make: Callable[[int], tuple[Any, ...]]
    run: Callable[..., tuple[Any, ...]]
    sizes: tuple[int, int]
    elements: Callable[[int], int] = int
    """The size that has about this many elements."""
    largest: int = 1 << 25
    """Elements above which the plain program takes minutes, or memory that a small machine does not have."""


def _prices(n: int) -> tuple[Any, ...]:
    import numpy as np
    import scipy.special  # noqa: F401  (the program's import, not its work)

    rng = np.random.default_rng(0)
    limits = ((10, 50), (10, 50), (1, 2), (0.01, 0.05), (0.1, 0.4))
    return tuple(rng.uniform(low, high, n) for low, high in limits)


def black_scholes(price: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> tuple[Any, ...]:
    import numpy as np
    from scipy.special import erf

    half = 1 / math.sqrt(2)
    root = volatility * np.sqrt(years)
    d1 = (np.log(price / strike) + (rate + volatility * volatility * 0.5) * years) / root
    d2 = d1 - root
    c1, c2 = 0.5 + 0.5 * erf(d1 * half), 0.5 + 0.5 * erf(d2 * half)
    discounted = strike * np.exp(-rate * years)
    return np.asarray(price * c1 - discounted * c2), np.asarray(discounted * (1 - c2) - price * (1 - c1))


def _places(n: int) -> tuple[Any, ...]:
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.uniform(-0.7, 0.7, n), rng.uniform(-3, 3, n)


def haversine(latitude: Any, longitude: Any) -> tuple[Any, ...]:
    import numpy as np

    a = np.sin((latitude - 0.70984286) / 2) ** 2
    a = a + np.cos(latitude) * math.cos(0.70984286) * np.sin((longitude - 1.23892197) / 2) ** 2
    return (np.asarray(np.arcsin(np.sqrt(a)) * 2 * 3959.0),)


def _cities(n: int) -> tuple[Any, ...]:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    limits = ((100_000, 1_000_000), (50_000, 500_000), (0, 2000))
    return tuple(pd.Series(rng.integers(low, high, n).astype(float)) for low, high in limits)


def crime_index(total: Any, adult: Any, robberies: Any) -> tuple[Any, ...]:
    big = total.mask(total > 500_000, 0.0)
    index = (adult * 2 + big - robberies * 2000.0) / 100_000
    index = index.mask(index > 0.02, 0.032)
    index = index.mask(index < 0.01, 0.005)
    return (index.sum(),)


def _blobs(features: int, centers: int) -> Callable[[int], tuple[Any, ...]]:
    def make(n: int) -> tuple[Any, ...]:
        from sklearn.datasets import make_blobs

        data, labels = make_blobs(n_samples=n, n_features=features, centers=centers, center_box=(-2, 2), random_state=7)
        return data, labels

    return make


def dbscan(data: Any, _: Any) -> tuple[Any, ...]:
    from sklearn.cluster import DBSCAN

    scaled = (data - data.mean(0)) / data.std(0)
    return (DBSCAN(eps=math.sqrt(data.shape[1]), min_samples=max(2, len(data) // 640)).fit(scaled).labels_,)


def pca(data: Any, _: Any) -> tuple[Any, ...]:
    from sklearn.decomposition import PCA

    return (abs(PCA(2, random_state=0).fit_transform(data)),)


def tsvd(data: Any, _: Any) -> tuple[Any, ...]:
    from sklearn.decomposition import TruncatedSVD

    return (abs(TruncatedSVD(2, algorithm="arpack", random_state=0).fit_transform(data)),)


def _bodies(n: int) -> tuple[Any, ...]:
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.normal(size=(3, n)), rng.uniform(1, 2, n)


def n_body(place: Any, mass: Any) -> tuple[Any, ...]:
    distance = place[:, None, :] - place[:, :, None]
    squared = (distance * distance).sum(0) + 1e-3
    inverse = squared**-1.5
    return ((distance * (inverse * mass[None, :])[None]).sum(2),)


def _basin(n: int) -> tuple[Any, ...]:
    import numpy as np

    rng = np.random.default_rng(0)
    return rng.normal(size=(n, n)) * 0.01 + 1, rng.normal(size=(n, n)) * 0.01, rng.normal(size=(n, n)) * 0.01


def shallow_water(height: Any, u: Any, v: Any) -> tuple[Any, ...]:
    import numpy as np

    def along_x(a: Any) -> Any:
        return (np.roll(a, -1, 1) - np.roll(a, 1, 1)) * 0.5

    def along_y(a: Any) -> Any:
        return (np.roll(a, -1, 0) - np.roll(a, 1, 0)) * 0.5

    for _ in range(3):
        du, dv = -9.8 * along_x(height) - 0.1 * u, -9.8 * along_y(height) - 0.1 * v
        dh = -along_x(u * height) - along_y(v * height)
        u, v, height = u + du * 1e-3, v + dv * 1e-3, height + dh * 1e-3
    return np.asarray(height), np.asarray(u), np.asarray(v)


def _requests(n: int) -> tuple[Any, ...]:
    import numpy as np
    import pandas as pd

    rng = np.random.default_rng(0)
    some = (
        [f"{i:05}" for i in range(500)] + [f"{i:05}-{i:04}" for i in range(300)] + ["00000", "N/A", "NO CLUE", "1234"]
    )
    return (pd.Series(np.array(some)[rng.integers(0, len(some), n)]),)


def data_cleaning(zips: Any) -> tuple[Any, ...]:
    x = zips.str.slice(0, 5)
    for wrong in ("00000", "N/A", "NO CL"):
        x = x.mask(x == wrong)
    x = x.where(x.str.len() == 5)
    return x.nunique(), int(x.isna().sum())


def _table(name: str, n: int, build: Callable[[Any, int], Any]) -> Path:
    import numpy as np

    folder = Path(tempfile.mkdtemp(prefix="shoal-offload-"))
    build(np.random.default_rng(0), n).to_csv(folder / f"{name}.csv", index=False)
    return folder / f"{name}.csv"


def _births(n: int) -> tuple[Any, ...]:
    def build(rng: Any, rows: int) -> Any:
        import numpy as np
        import pandas as pd

        names = np.array([f"n{i:05}" for i in range(5000)] + [f"Lesl{i:02}" for i in range(20)])
        return pd.DataFrame({
            "year": rng.integers(1880, 2011, rows), "sex": np.where(rng.random(rows) < 0.5, "M", "F"),
            "name": names[rng.integers(0, len(names), rows)], "births": rng.integers(1, 5000, rows),
        })  # fmt: skip

    return (_table("births", n, build),)


def birth_analysis(path: Path) -> tuple[Any, ...]:
    import pandas as pd

    births = pd.read_csv(path)
    chosen = births[births.name.str.startswith("Lesl")]
    table = chosen.pivot_table("births", index="year", columns="sex", aggfunc="sum")
    table = table.div(table.sum(axis=1), axis=0)
    top = births.groupby(["year", "sex"])["births"].sum()
    share = births.births / births.groupby(["year", "sex"])["births"].transform("sum")
    return table.to_numpy(), top.to_numpy(), float(share.sum())


def _ratings(n: int) -> tuple[Any, ...]:
    import numpy as np
    import pandas as pd

    def ratings(rng: Any, rows: int) -> Any:
        columns = {"user": rng.integers(0, 6040, rows), "film": rng.integers(0, 3900, rows)}
        return pd.DataFrame({**columns, "rating": rng.integers(1, 6, rows)})

    def users(rng: Any, rows: int) -> Any:
        return pd.DataFrame({"user": np.arange(rows), "sex": np.where(rng.random(rows) < 0.5, "M", "F")})

    def films(_: Any, rows: int) -> Any:
        return pd.DataFrame({"film": np.arange(rows), "title": [f"t{i}" for i in range(rows)]})

    return _table("ratings", n, ratings), _table("users", 6040, users), _table("films", 3900, films)


def movielens(ratings: Path, users: Path, films: Path) -> tuple[Any, ...]:
    import pandas as pd

    data = pd.merge(pd.merge(pd.read_csv(ratings), pd.read_csv(users)), pd.read_csv(films))
    mean = data.pivot_table("rating", index="title", columns="sex", aggfunc="mean")
    counts = data.groupby("title").size()
    mean = mean.loc[counts.index[counts >= counts.median()]]
    return float((mean["M"] - mean["F"]).sum()), float(data.groupby("title")["rating"].std().sum())


def _neighbours(n: int) -> tuple[Any, ...]:
    from sklearn.datasets import make_blobs
    from sklearn.neighbors import KNeighborsClassifier

    data, labels = make_blobs(n_samples=n, n_features=16, centers=8, random_state=1)
    queries, _ = make_blobs(n_samples=n // 5, n_features=16, centers=8, random_state=2)
    return KNeighborsClassifier().fit(data, labels), queries


def knn(model: Any, queries: Any) -> tuple[Any, ...]:
    return (model.predict(queries),)


WORKLOADS: Mapping[str, Workload] = {
    "black-scholes": Workload("oa", _prices, black_scholes, (1 << 10, 10_000_000)),
    "haversine": Workload("oa", _places, haversine, (1 << 10, 10_000_000)),
    "crime-index": Workload("oa", _cities, crime_index, (1 << 10, 10_000_000)),
    "dbscan": Workload("oa", _blobs(256, 32), dbscan, (1 << 9, 4096), lambda n: n // 256, 1 << 20),
    "pca": Workload("oa", _blobs(512, 1), pca, (1 << 10, 16_384), lambda n: n // 512, 1 << 24),
    "tsvd": Workload("oa", _blobs(512, 1), tsvd, (1 << 11, 32_768), lambda n: n // 512, 1 << 24),
    "n-body": Workload("extra", _bodies, n_body, (64, 1000), math.isqrt, 1 << 22),
    "shallow-water": Workload("extra", _basin, shallow_water, (64, 2048), math.isqrt),
    "data-cleaning": Workload("extra", _requests, data_cleaning, (1 << 10, 1_000_000), largest=1 << 21),
    "birth-analysis": Workload("extra", _births, birth_analysis, (1 << 10, 1_000_000), largest=1 << 21),
    "movielens": Workload("extra", _ratings, movielens, (1 << 10, 1_000_000), largest=1 << 21),
    "knn": Workload("extra", _neighbours, knn, (1 << 10, 50_000), lambda n: n // 16, 1 << 20),
}


def digest(results: tuple[Any, ...]) -> list[float]:
    """A few sums that show whether two runs agree."""
    import numpy as np

    found = []
    for each in results:
        array = np.asarray(each, dtype=float)
        found += [float(np.nansum(array)), float(np.nansum(array * np.cos(np.arange(array.size).reshape(array.shape))))]
    return found


_WHILE_S = 0.05


def answer(workload: Workload, program: Callable[..., tuple[Any, ...]]) -> None:
    """For a line with a size, make inputs; for any other, run the program, and answer with the seconds, those of the
    processors, and a digest of the results. For "many" it is run again for a while, and the least seconds are told."""
    inputs: tuple[Any, ...] = ()
    for line in sys.stdin:
        if line.strip().isdigit():
            inputs = workload.make(int(line))
            told: dict[str, Any] = {"ready": True}
        else:
            began, worked = time.perf_counter(), time.process_time()
            results = program(*inputs)
            seconds, cpu = time.perf_counter() - began, time.process_time() - worked
            told = {"seconds": seconds, "cpu": cpu, "digest": digest(results)}
            while line.strip() == "many" and time.perf_counter() - began < _WHILE_S:
                again = time.perf_counter()
                program(*inputs)
                told["seconds"] = min(told["seconds"], time.perf_counter() - again)
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    found = WORKLOADS[sys.argv[1]]
    answer(found, found.run)
