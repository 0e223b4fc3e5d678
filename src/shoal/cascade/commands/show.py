"""Reports for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.base.console.output import facts, put, table

MOST_NAMED = 4
LITTLE = 1.5


def show_report(told: Mapping[str, Any]) -> None:
    """What `explain` has: groups, plan, certificate, remarks."""
    rows = []
    for group in told["groups"]:
        cost, importance = group.get("cost"), group.get("importance")
        before = cost["before"] if cost else None
        rows.append((
            group["name"],
            f"{group['width']:,}",
            _us(before),
            _us(cost["before_single"] if cost else None),
            _us(cost["batch"] if cost else None),
            _us(cost["single"] if cost else None),
            _points(importance, "conditional"),
            _points(importance, "shapley"),
            "+".join(group["steps"]),
            _few(group["columns"]),
        ))  # fmt: skip
    heads = (
        "group",
        "width",
        "before us",
        "single",
        "compiled us",
        "single",
        "missed",
        "shapley",
        "steps",
        "of columns",
    )
    put(table(heads, rows))
    print()
    facts(_summary(told))
    for remark in told.get("remarks", ()):
        print(f"note: {remark}")


def _summary(told: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    against = told.get("against_original")
    if against:
        faster = against["faster"]
        found["compiled"] = (
            f"{faster['batch']:.1f}x in batches, {faster['single']:.1f}x a row at a time, same predictions"
        )
        if against["answers"] == "original":
            found["compiled"] += "; the original is faster, so it answers in the process that has it"
    model = told.get("model_cost")
    if model:
        found["model"] = (
            f"{told['model']}: {model['batch']['us']:.2f} us a row in batches, {model['single']['us']:.2f} alone"
        )
    evaluator = told.get("evaluator")
    if evaluator:
        measured = ", ".join(f"{name} {us:.2f} us a row" for name, us in evaluator["us"].items())
        found["model by"] = evaluator["chosen"] + (f" ({measured})" if measured else "")
    for cache in told.get("caches", ()):
        measured = f"{cache['rows_that_ask']:.0%} of the rows ask, {cache['request_us']:.0f} us a request"
        found[f"cache of {', '.join(cache['groups'])}"] = f"{'on' if cache['on'] else 'off'} ({measured})"
    plan = told.get("plan")
    if plan and "stages" in plan:
        found["stages"] = " -> ".join("+".join(stage) for stage in plan["stages"])
        found["cost a row"] = f"{plan['full_us']:.2f} us for all groups"
        if plan["expected_us"]:
            gain = plan["full_us"] / plan["expected_us"]
            found["cost a row"] += f", {plan['expected_us']:.2f} us expected of the stages: {gain:.1f}x"
            found["cost a row"] += ", so little can be gained" if gain < LITTLE else ""
    certificate = told.get("certificate")
    if certificate:
        found["certificate"] = certificate["statement"]
        found["approximated"] = f"{told['approximated']:.1%} of the rows that certified"
    if told.get("top_k"):
        found["top-k"] = told["top_k"]["statement"]
        found["filter"] = f"keeps {told['top_k']['ratio']:g} times {told['top_k']['k']:,} rows"
    if told.get("reason"):
        found["why not more"] = str(told["reason"])
    return found


def show_bench(told: Mapping[str, Any]) -> None:
    rows = [
        (
            way["way"],
            f"{way['batch_us']:.2f} ± {way['batch_spread_us']:.2f}", f"{way['batch_ratio']:.1f}x",
            f"{way['single_us']:.1f} ± {way['single_spread_us']:.1f}", f"{way['single_ratio']:.1f}x",
        )
        for way in told["ways"]
    ]  # fmt: skip
    put(table(("way", "batch us/row", "faster", "single us", "faster"), rows))
    differ, total = told["differ_from_full"], told["rows"]
    print(f"{differ:,} of {total:,} predictions differ from the full path; rows by stage: {told['answered_by_stage']}")


def _few(columns: Sequence[str | int]) -> str:
    names = [str(one) for one in columns[:MOST_NAMED]]
    return ", ".join(names) + (f" and {len(columns) - MOST_NAMED} more" if len(columns) > MOST_NAMED else "")


def _us(cost: Mapping[str, float] | None) -> str:
    return "-" if cost is None else f"{cost['us']:.2f} ± {cost['spread_us']:.2g}"


def _points(importance: Mapping[str, float] | None, name: str) -> str:
    return "-" if importance is None else f"{importance[name] * 100:+.1f} pt"
