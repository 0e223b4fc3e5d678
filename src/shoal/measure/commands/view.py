"""Tables and texts of `shoal measure`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from shoal.base.console import output
from shoal.measure.types import QUANTILES

if TYPE_CHECKING:
    from shoal.measure.coldstart import ColdStarts
    from shoal.measure.live import LiveCapacity
    from shoal.measure.search.judge import Trial
    from shoal.measure.statistics import Estimate
    from shoal.measure.types import LoadResult


def milliseconds(seconds: float) -> str:
    """Three digits, `-` for what is not known."""
    if not math.isfinite(seconds):
        return "-"
    return f"{seconds * 1e3:.3g} ms" if seconds < 0.9995 else f"{seconds:.3g} s"


def interval(estimate: Estimate) -> str:
    return f"{milliseconds(estimate.low)} to {milliseconds(estimate.high)}"


def rate(per_s: float) -> str:
    return f"{per_s:.4g}/s"


def results(found: Sequence[LoadResult], slo_s: float | None) -> None:
    """A block for each load."""
    for number, result in enumerate(found):
        if number:
            print()
        _result(result, slo_s)


def _result(result: LoadResult, slo_s: float | None) -> None:
    server = result.server
    facts: dict[str, object] = {
        "model": result.label,
        "measured": f"{result.count()} requests in {result.duration_s:.3g} s, after {result.warmup_s:.3g} s of warm-up",
        "offered" if result.open_loop else "sent": rate(result.offered_per_s()),
        "answered": rate(result.completed_per_s()),
        "failed": ", ".join(f"{count} {kind}" for kind, count in result.errors().items()),
    }
    if slo_s is not None:
        share, good = result.attainment(slo_s), result.goodput(slo_s)
        facts[f"within {milliseconds(slo_s)}"] = f"{share:.2%}"
        facts["goodput"] = f"{rate(good.value)} ({rate(good.low)} to {rate(good.high)})"
    if server is not None:
        facts["server says"] = (
            f"{milliseconds(server.queue_s)} in queue, {milliseconds(server.compute_s)} in compute, "
            f"{server.batch:.3g} requests a batch"
        )
    late = f"{milliseconds(result.lag_quantile_s(0.99))} late at its 99th percentile, " if result.open_loop else ""
    facts["generator"] = f"{late}{result.cpu_share:.0%} of a core"
    output.facts(facts)
    print()
    rows = []
    for p in QUANTILES:
        estimate = result.quantile(p)
        rows.append([f"p{100 * p:g}", milliseconds(estimate.value), interval(estimate)])
    output.put(output.table(["latency", "value", "95 % interval"], rows))


def trial(found: Trial) -> str:
    """One line of a search."""
    share = found.share
    return (
        f"  {rate(found.rate_per_s):>10}  {found.verdict:<9}  {found.misses} of {found.requests} late "
        f"({share.low:.2%} to {share.high:.2%})"
    )


def capacity(found: LiveCapacity) -> None:
    goal, answer = found.capacity.goal, found.capacity.rate_per_s
    kept = f"kept at {rate(answer.low)}" if answer.low else "kept at no rate"
    broken = f"broken at {rate(answer.high)}" if math.isfinite(answer.high) else "broken at no rate"
    output.facts(
        {
            "objective": f"p{100 * goal.p:g} within {milliseconds(goal.slo_s)}",
            "capacity": rate(answer.value),
            "proven": f"{kept}, {broken} ({answer.confidence:.0%} sure)" if found.capacity.trials else None,
            "alone": f"{milliseconds(found.alone.quantile(0.5).value)} at the median, with one client",
            "saturated": f"{rate(found.saturated.completed_per_s())} in a closed loop" if found.saturated else None,
            "spent": f"{found.capacity.requests} requests in {len(found.capacity.trials)} trials",
            "ended": found.capacity.reason.text,
        }
    )


def cold_starts(found: ColdStarts) -> None:
    from shoal.measure.statistics import quantile

    columns = {
        "until ready": found.ready_s,
        "first answer": found.first_s,
        "both": found.total_s(),
        "warm answer": found.warm_s,
    }
    rows = [
        [name, *(milliseconds(quantile(each, p).value) for p in (0.5, 0.9)), milliseconds(float(each.max()))]
        for name, each in columns.items()
    ]
    output.put(output.table(["time", "p50", "p90", "worst"], rows))
