"""The programs of `shoal.offload.workloads`, each rewritten for the backends that suit it.

Conversions from and to the program's own arrays and frames are part of them, imports and fits are not. They are written
as a user who knows the backend would: blocks that fit into a core's cache on all cores, one lazy query, the classes of
scikit-learn-intelex, the Gram matrix for a few singular vectors, `torch.compile` for a whole function.
`python offload_programs.py NAME BACKEND` is one side of a measurement.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import os
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from shoal.offload import workloads
from shoal.offload.workloads import answer

_BLOCK = 32768

Program = Callable[..., tuple[Any, ...]]


@functools.cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(len(os.sched_getaffinity(0)))


def _in_blocks(program: Program, results: int) -> Program:
    """An elementwise program over blocks, on all cores."""

    def run(*inputs: Any) -> tuple[Any, ...]:
        arrays = [np.asarray(each) for each in inputs]
        size = arrays[0].size
        outs = tuple(np.empty(size) for _ in range(results))

        def work(start: int) -> None:
            block = slice(start, start + _BLOCK)
            for out, found in zip(outs, program(*(each[block] for each in arrays)), strict=True):
                out[block] = found

        if size <= 2 * _BLOCK:
            return program(*arrays)
        list(_threads().map(work, range(0, size, _BLOCK)))
        return outs

    return run


def _crime_in_blocks(total: Any, adult: Any, robberies: Any) -> tuple[Any, ...]:
    arrays = [each.to_numpy() for each in (total, adult, robberies)]

    def work(start: int) -> Any:
        t, a, r = (each[start : start + _BLOCK] for each in arrays)
        index = (a * 2 + np.where(t > 500_000, 0.0, t) - r * 2000.0) / 100_000
        index = np.where(index > 0.02, 0.032, index)
        return np.where(index < 0.01, 0.005, index).sum()

    return (sum(_threads().map(work, range(0, len(arrays[0]), _BLOCK))),)


def _crime_by_polars(total: Any, adult: Any, robberies: Any) -> tuple[Any, ...]:
    import polars as pl

    frame = pl.DataFrame([pl.Series(n, each.to_numpy()) for n, each in (("t", total), ("a", adult), ("r", robberies))])
    big = pl.when(pl.col("t") > 500_000).then(0.0).otherwise(pl.col("t"))
    query = frame.lazy().select(i=(pl.col("a") * 2 + big - pl.col("r") * 2000.0) / 100_000)
    query = query.select(i=pl.when(pl.col("i") > 0.02).then(0.032).otherwise(pl.col("i")))
    return (query.select(pl.when(pl.col("i") < 0.01).then(0.005).otherwise(pl.col("i")).sum()).collect().item(),)


def _dbscan_by_sklearnex(data: Any, _: Any) -> tuple[Any, ...]:
    from sklearnex.cluster import DBSCAN

    scaled = (data - data.mean(0)) / data.std(0)
    return (DBSCAN(eps=math.sqrt(data.shape[1]), min_samples=max(2, len(data) // 640)).fit(scaled).labels_,)


def _pca_by_sklearnex(data: Any, _: Any) -> tuple[Any, ...]:
    from sklearnex.decomposition import PCA

    return (abs(PCA(2, random_state=0).fit_transform(data)),)


def _tsvd_by_gram(data: Any, _: Any) -> tuple[Any, ...]:
    from scipy.linalg import eigh

    last = data.shape[1] - 1
    _, vectors = eigh(data.T @ data, subset_by_index=(last - 1, last))
    return (abs(data @ vectors[:, ::-1]),)


def _n_body_in_blocks(place: Any, mass: Any) -> tuple[Any, ...]:
    count = place.shape[1]
    step = max(1, _BLOCK // count)
    out = np.empty((3, count))

    def work(start: int) -> None:
        block = slice(start, start + step)
        distance = place[:, None, :] - place[:, block, None]
        squared = (distance * distance).sum(0) + 1e-3
        out[:, block] = (distance * (squared**-1.5 * mass[None, :])[None]).sum(2)

    list(_threads().map(work, range(0, count, step)))
    return (out,)


def _cleaning_by_polars(zips: Any) -> tuple[Any, ...]:
    import polars as pl

    value = pl.col("z").str.slice(0, 5)
    kept = value.is_in(["00000", "N/A", "NO CL"]).not_() & (value.str.len_chars() == 5)
    chosen = pl.when(kept).then(value)
    frame = pl.DataFrame({"z": zips.to_numpy()}).lazy()
    unique, missing = frame.select(u=chosen.drop_nulls().n_unique(), m=chosen.null_count()).collect().row(0)
    return unique, missing


def _births_by_polars(path: Any) -> tuple[Any, ...]:
    import polars as pl

    births = pl.read_csv(path)
    chosen = births.lazy().filter(pl.col("name").str.starts_with("Lesl")).group_by("year", "sex")
    table = chosen.agg(pl.col("births").sum()).collect().pivot(on="sex", index="year", values="births").sort("year")
    pair = table.select("F", "M").to_numpy().astype(float)
    top = births.group_by("year", "sex").agg(pl.col("births").sum()).sort("year", "sex")["births"].to_numpy()
    share = births.select((pl.col("births") / pl.col("births").sum().over("year", "sex")).sum()).item()
    return pair / np.nansum(pair, axis=1, keepdims=True), top, float(share)


def _movielens_by_polars(ratings: Any, users: Any, films: Any) -> tuple[Any, ...]:
    import polars as pl

    read = pl.read_csv(ratings).lazy().join(pl.read_csv(users).lazy(), on="user")
    data = read.join(pl.read_csv(films).lazy(), on="film").collect()
    mean = data.pivot(on="sex", index="title", values="rating", aggregate_function="mean")
    by_title = data.group_by("title").agg(n=pl.len(), deviation=pl.col("rating").std())
    common = by_title.filter(pl.col("n") >= pl.col("n").median())
    difference = mean.join(common, on="title").select((pl.col("M") - pl.col("F")).sum()).item()
    return float(difference), float(by_title["deviation"].sum())


@functools.cache
def _twin(model: Any) -> Any:
    from sklearnex.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(algorithm="brute").fit(model._fit_X, model.classes_[model._y])


def _knn_by_sklearnex(model: Any, queries: Any) -> tuple[Any, ...]:
    return (_twin(model).predict(queries),)


def _compiled(formula: Callable[..., Any]) -> Program:
    @functools.cache
    def ready() -> Any:
        import torch

        return torch.compile(functools.partial(formula, torch), dynamic=True)

    def run(*inputs: Any) -> tuple[Any, ...]:
        import torch

        return tuple(each.numpy() for each in ready()(*map(torch.from_numpy, map(np.asarray, inputs))))

    return run


def _prices(torch: Any, price: Any, strike: Any, years: Any, rate: Any, volatility: Any) -> tuple[Any, ...]:
    root = volatility * torch.sqrt(years)
    d1 = (torch.log(price / strike) + (rate + volatility * volatility * 0.5) * years) / root
    c1, c2 = (0.5 + 0.5 * torch.erf(each / math.sqrt(2)) for each in (d1, d1 - root))
    discounted = strike * torch.exp(-rate * years)
    return price * c1 - discounted * c2, discounted * (1 - c2) - price * (1 - c1)


def _distances(torch: Any, latitude: Any, longitude: Any) -> tuple[Any, ...]:
    a = torch.sin((latitude - 0.70984286) / 2) ** 2
    a = a + torch.cos(latitude) * math.cos(0.70984286) * torch.sin((longitude - 1.23892197) / 2) ** 2
    return (torch.arcsin(torch.sqrt(a)) * 2 * 3959.0,)


_ALL: Mapping[str, Mapping[str, Program]] = {
    "black-scholes": {"chunks": _in_blocks(workloads.black_scholes, 2), "torch": _compiled(_prices)},
    "haversine": {"chunks": _in_blocks(workloads.haversine, 1), "torch": _compiled(_distances)},
    "crime-index": {"chunks": _crime_in_blocks, "polars": _crime_by_polars},
    "dbscan": {"sklearnex": _dbscan_by_sklearnex},
    "pca": {"sklearnex": _pca_by_sklearnex},
    "tsvd": {"gram": _tsvd_by_gram},
    "n-body": {"chunks": _n_body_in_blocks},
    "shallow-water": {},
    "data-cleaning": {"polars": _cleaning_by_polars},
    "birth-analysis": {"polars": _births_by_polars},
    "movielens": {"polars": _movielens_by_polars},
    "knn": {"sklearnex": _knn_by_sklearnex},
}

_NEEDS = {"torch": "torch", "polars": "polars", "sklearnex": "sklearnex"}


def programs(workload: str) -> Mapping[str, Program]:
    """The programs by hand of a workload, by backend: those whose library is installed, and the plain one."""
    some = {
        name: each
        for name, each in _ALL[workload].items()
        if name not in _NEEDS or importlib.util.find_spec(_NEEDS[name]) is not None
    }
    return {"plain": workloads.WORKLOADS[workload].run, **some}


if __name__ == "__main__":
    answer(workloads.WORKLOADS[sys.argv[1]], programs(sys.argv[1])[sys.argv[2]])
