"""`shoal cache solve` and `shoal cache simulate`: the bare policy, and policies on made-up or recorded requests."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.base.console.command import CommandContext, command
from shoal.base.console.files import read_input
from shoal.core import Invalid

if TYPE_CHECKING:
    from shoal.cache.simulate import Workload

_PANEL = "Decide and simulate"
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_TRAINING = "training"


def register(app: typer.Typer) -> None:
    for name, function in (("solve", solve), ("simulate", simulate)):
        command(app, name, rich_help_panel=_PANEL)(function)


def use_one_thread() -> None:
    """Before numpy is loaded. With more threads than free cores OpenBLAS waits for the ones that do not run."""
    for name in _THREADS:
        os.environ.setdefault(name, "1")


def solve(
    context: CommandContext,
    problem: Annotated[Path, typer.Argument(metavar="PROBLEM", help="A JSON document, or - for stdin.")],
    policy: Annotated[str, typer.Option("--policy", "-p", help="pf, mmf, or one to compare with.")] = "pf",
    tolerance: Annotated[
        float, typer.Option("--tolerance", min=1e-6, max=0.1, help="The gap at which the solver may stop.")
    ] = 5e-4,
) -> None:
    """What a cache should hold: tenants, weights, sets, sizes and benefits in; allocation, certificate and reasons out.

    PROBLEM is {"mode": "fraction" or "lottery", "capacity": C, "tenants": {NAME: WEIGHT}, "sets": {NAME: {"size": S}},
    "benefit": {TENANT: {SET: VALUE}}, "cached": [SET]}."""
    use_one_thread()
    from shoal.cache.baselines import BASELINES
    from shoal.cache.policy import POLICIES, decide
    from shoal.cache.policy.document import answer, read_problem

    chosen = {**POLICIES, **BASELINES}.get(policy)
    if chosen is None:
        raise Invalid(f"there is no policy {policy!r}", where="--policy", hint=", ".join([*POLICIES, *BASELINES]))
    found = answer(decide(read_problem(*read_input(problem)), chosen, tolerance))
    context.show(found, lambda: _print_answer(found))


def _print_answer(found: dict[str, Any]) -> None:
    gap = "infinite" if found["gap"] is None else f"{found['gap']:.4%}"
    print(f"gap to proportional fairness: {gap}")
    for one in found.get("lottery", ()):
        print(f"{one['p']:7.2%}  {', '.join(one['sets']) or 'nothing'}")
    for reason in found["reasons"].values():
        print(reason["text"])


def simulate(
    context: CommandContext,
    workload: Annotated[
        str, typer.Option("--workload", "-w", help="robus, zipf, drift, bursts, scans, training, or a trace (a file).")
    ] = "robus",
    ranks: Annotated[str, typer.Option("--ranks", help="ROBUS's rank file of each tenant, 1 to 4.")] = "1,2,3,4",
    rank_file: Annotated[
        Path | None, typer.Option("--rank-file", help="Instead: one line of 20 ranks for each tenant.")
    ] = None,
    tenants: Annotated[int, typer.Option("--tenants", min=1, max=100, help="Of the other workloads.")] = 4,
    capacity: Annotated[float, typer.Option("--capacity", min=0.0, help="MB of the cache.")] = 1000.0,
    batches: Annotated[int, typer.Option("--batches", min=1, max=100_000, help="Of ten seconds.")] = 200,
    seed: Annotated[int, typer.Option("--seed", min=0)] = 0,
    charge_loading: Annotated[
        bool, typer.Option("--charge-loading/--free-loading", help="Loads cost their bytes, and the future counts.")
    ] = False,
    policy: Annotated[str, typer.Option("--policy", "-p", help="Several, separated by commas.")] = "pf,mmf,lru,optp",
    link: Annotated[float, typer.Option("--link", min=0.1, help="MB/s from the source, for training.")] = 180.0,
) -> None:
    """Policies on ROBUS's workload or another one: what each tenant saves, what is loaded, and how fair that is.

    All figures are simulated. `training` is three tenants that train on sets of 4,000 MB of their own at 100 MB/s."""
    use_one_thread()
    from shoal.cache.policy.demand import MYOPIC, Outlook
    from shoal.cache.simulate import Run, run

    names = [name.strip() for name in policy.split(",") if name.strip()]
    if workload == _TRAINING:
        found = {name: _trained(name, capacity, link, seed) for name in names}
    else:
        made = _workload(workload, ranks, rank_file, tenants, batches, seed)
        settings = Run(capacity, charge_loading, Outlook() if charge_loading else MYOPIC, seed)
        found = {name: run(made, name, settings).as_json() for name in names}
    body = {
        "simulated": True, "workload": workload, "capacity": capacity, "seed": seed, "charge_loading": charge_loading,
        "policies": found,
    }  # fmt: skip
    context.show(body, lambda: _print_policies(body))


def _trained(policy: str, capacity: float, link: float, seed: int) -> dict[str, Any]:
    from shoal.cache.simulate import Job, train

    jobs = [Job(name, 100.0) for name in ("a", "b", "c")]
    found = train(
        {job.data: 4000 for job in jobs}, jobs, policy=policy, capacity=capacity, link=link, horizon_s=600.0, seed=seed
    )
    return {
        "stall": float(found.stall.mean()), "stall_by_tenant": found.stall.tolist(), "mb_trained": found.done.tolist(),
        "mb_loaded": found.loaded,
    }  # fmt: skip


def _workload(name: str, ranks: str, rank_file: Path | None, tenants: int, batches: int, seed: int) -> Workload:
    from shoal.cache.simulate import WORKLOADS, robus
    from shoal.cache.simulate.workloads import recorded

    if name == "robus":
        rows = _named_ranks(ranks) if rank_file is None else _read_ranks(rank_file)
        return robus(rows, batches, seed)
    if name in WORKLOADS:
        return WORKLOADS[name](tenants, batches, seed)
    if not Path(name).exists():
        hint = f"robus, {', '.join(WORKLOADS)}, training, or a file with lines SECONDS,TENANT,SET,MB"
        raise Invalid(f"there is no workload {name!r}", where="--workload", hint=hint)
    return recorded(*read_input(Path(name)))


def _named_ranks(text: str) -> list[Sequence[int]]:
    from shoal.cache.simulate.workloads import RANKS

    try:
        return [RANKS[int(one)] for one in text.split(",")]
    except (ValueError, KeyError):
        raise Invalid("numbers from 1 to 4 separated by commas are meant", where="--ranks") from None


def _read_ranks(path: Path) -> list[Sequence[int]]:
    text, where = read_input(path)
    rows: list[Sequence[int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            rows.append([int(one) for one in line.replace(",", " ").split()])
        except ValueError:
            raise Invalid("20 ranks are meant", where=f"{where}:{number}") from None
    if not rows:
        raise Invalid("there are no ranks in it", where=where)
    return rows


def _print_policies(body: dict[str, Any]) -> None:
    from shoal.base.console import output

    print(f"simulated: {body['workload']}, {body['capacity']:g} MB of cache")
    if body["workload"] == _TRAINING:
        columns = ["policy", "time stalled", "MB loaded"]
        rows = [[name, f"{one['stall']:.1%}", f"{one['mb_loaded']:.0f}"] for name, one in body["policies"].items()]
    else:
        columns = ["policy", "saved", "loaded", "by tenant", "min V", "incentive broken", "gap", "ms"]
        rows = [
            [name, f"{one['saved_fraction']:.1%}", f"{one['loaded_fraction']:.1%}",
             " ".join(f"{part:.0%}" for part in one["by_tenant"]), f"{one['min_v']:.2f}",
             f"{one['sharing_incentive_violations']:.1%}", "-" if one["max_gap"] is None else f"{one['max_gap']:.2%}",
             f"{one['ms_median']:.2f}"]
            for name, one in body["policies"].items()
        ]  # fmt: skip
    output.put(output.table(columns, rows, drop=["ms", "gap"]))
