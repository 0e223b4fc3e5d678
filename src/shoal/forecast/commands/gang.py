"""`shoal forecast gang`: how fast a gang trains, from its workers' speed alone; and what that is fitted to."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Annotated, Any

import typer

from shoal.base.console.command import CommandContext
from shoal.core import Invalid
from shoal.forecast.commands.inputs import Line, positive, read_model, rows_of

PARAMETER_SERVER = ("model", "flops", "parameters", "tensors", "alone_per_s", "workers", "servers", "steps_per_s")
ALL_REDUCE = ("model", "weight_bytes", "tensors", "alone_s", "workers", "seconds")


def fit_parameter_server(path: Path) -> dict[str, Any]:
    from shoal.forecast.cluster import ClusterSpeed, Measured
    from shoal.forecast.features import Features

    measured = []
    for number, row in rows_of(path, *PARAMETER_SERVER):
        with Line(path, number):
            features = Features(*(positive(row[name]) for name in ("flops", "parameters", "tensors")))
            workers, servers = _count(row["workers"]), _count(row["servers"])
            alone, together = positive(row["alone_per_s"]), positive(row["steps_per_s"])
            measured.append(Measured(features, alone, workers, servers, together))
    return ClusterSpeed.fit(measured).as_json()


def fit_all_reduce(path: Path) -> dict[str, Any]:
    from shoal.forecast.allreduce import AllReduce, Gang

    measured: dict[str, list[tuple[Gang, float]]] = defaultdict(list)
    for number, row in rows_of(path, *ALL_REDUCE):
        with Line(path, number):
            alone = (positive(row["alone_s"]),) * _count(row["workers"])
            gang = Gang(positive(row["weight_bytes"]), positive(row["tensors"]), alone)
            measured[row["model"]].append((gang, positive(row["seconds"])))
    return AllReduce.fit(measured).as_json()


def gang(
    context: CommandContext,
    model: Annotated[Path, typer.Option("--model", "-m", help="What `shoal forecast fit parameter-server` or "
                                        "`all-reduce` wrote.")],
    alone: Annotated[list[float], typer.Option("--alone", min=1e-9, help="Steps per second of a worker alone; once for "
                                               "each worker.")],
    tensors: Annotated[float, typer.Option("--tensors", min=1, help="Tensors of the model.")],
    parameters: Annotated[float, typer.Option("--parameters", min=1, help="Parameters of the model.")],
    servers: Annotated[int, typer.Option("--servers", min=1, help="Parameter servers.")] = 1,
    bytes_each: Annotated[int, typer.Option("--bytes", min=1, help="Bytes of a parameter, for all-reduce.")] = 4,
) -> None:  # fmt: skip
    """Steps per second of a gang: of all workers together with parameter servers, of the whole gang with all-reduce."""
    from shoal.forecast.allreduce import AllReduce, Gang
    from shoal.forecast.cluster import ClusterSpeed
    from shoal.forecast.features import Features

    def read(data: dict[str, Any]) -> AllReduce | ClusterSpeed:
        return (AllReduce if data.get("model") == "all-reduce" else ClusterSpeed).from_json(data)

    fitted = read_model(model, read)
    if isinstance(fitted, AllReduce):
        one = Gang(bytes_each * parameters, tensors, tuple(1 / speed for speed in alone))
        found = fitted.predict(one).inverse()
    else:
        # Operations do not enter: the workers' speed alone has them.
        found = fitted.predict(Features(1.0, parameters, tensors), alone, servers)
    context.show(
        found.as_json(),
        lambda: print(
            f"{found.median:.3g} steps/s ({found.low:.3g} to {found.high:.3g} in {found.level:.0%} of all cases), "
            f"{found.source}"
        ),
    )


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise Invalid(f"workers and servers are counted from 1, not {text}")
    return count
