"""Tables of `shoal measure frontier`, `interference`, `compare` and `plan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from shoal.base.console import output
from shoal.measure.commands.view import milliseconds, rate

if TYPE_CHECKING:
    from shoal.core import Money
    from shoal.measure.comparison import Comparison
    from shoal.measure.cost import MixCost
    from shoal.measure.interference import Interference
    from shoal.measure.planning.planner import Plan, PlannedServer
    from shoal.measure.search.pareto import Frontier, VectorTrial


def trial(found: VectorTrial) -> str:
    """One line of a search."""
    rates = ", ".join(f"{name} {rate(each)}" for name, each in found.rates_per_s.items())
    by = f" by {found.broken_by}" if found.broken_by else ""
    return f"  {found.verdict:<9}  {rates}{by}  ({found.requests} requests)"


def money(amount: Money | None) -> str:
    return "-" if amount is None else f"${amount.micro_usd / 1e6:,.2f}"


def frontier(found: Frontier, wanted: Mapping[str, float], cost: MixCost | None) -> None:
    rows = []
    for name, goal in found.goals.items():
        alone = found.dedicated[name]
        rows.append([name, f"p{100 * goal.p:g} within {milliseconds(goal.slo_s)}", f"{alone:.4g}/s"])
    output.put(output.table(["tenant", "objective", "capacity alone"], rows))
    print()
    columns = [*(f"{name}/s" for name in found.tenants), "sum", "saving", "trials"]
    points = sorted(found.points, key=lambda point: [-point.mix[name] for name in found.tenants])
    rows = [
        [
            *(f"{point.rates_per_s[name]:.4g}" for name in found.tenants), f"{point.total:.3g}",
            f"{1 - 1 / point.total.value:.1%}", str(point.trials),
        ]
        for point in points
    ]  # fmt: skip
    output.put(output.table(columns, rows))
    print()
    facts: dict[str, object] = {
        "spent": f"{found.requests} requests; {len(found.trials)} trials of mixes, each {found.confidence:.0%} sure",
        "open": f"{found.gap.mean:.2f} of the sum on average, {found.gap.worst:.2f} at worst, by trials and monotony",
        "ended": found.reason.text,
    }
    if wanted:
        mix = ", ".join(f"{name} {rate(each)}" for name, each in wanted.items())
        facts["wanted"] = f"{mix}: sum {found.total(wanted):.3g}, saving {found.saving(wanted):.1%}"
    if cost is not None:
        facts["servers"] = f"{cost.whole_dedicated} dedicated or {cost.whole_shared} shared"
        facts["per hour"] = f"{money(cost.dedicated_per_hour)} dedicated or {money(cost.shared_per_hour)} shared"
    output.facts(facts)


def interference(found: Interference) -> None:
    for p in sorted(next(iter(found.beside_all.values()))):
        rows = []
        for victim in found.tenants:
            slowed = found.slowdown[victim]
            beside = ["-" if other == victim else f"{slowed[other][p]:.3g}" for other in found.tenants]
            alone = milliseconds(found.alone_s[victim][p].value)
            rows.append([victim, alone, *beside, f"{found.beside_all[victim][p]:.3g}"])
        columns = [f"p{100 * p:g}", "alone", *(f"beside {name}" for name in found.tenants), "beside all"]
        output.put(output.table(columns, rows))
        print()
    victim, other = found.worst()
    output.facts(
        {
            "isolation": f"{found.isolation:.3g}; 1 is perfect",
            "most disturbed": f"{victim} by {other}, {found.slowdown[victim][other][0.99].value:.2f} times at p99",
            "rounds": found.rounds,
        }
    )


def comparison(found: Comparison) -> None:
    rows = []
    for name in found.targets:
        for figure, one in found.figures[name].items():
            rated = figure.endswith("_per_s")
            value = rate(one.mean.value) if rated else milliseconds(one.mean.value)
            against = "-" if name == found.baseline else f"{one.ratio:.3g}"
            differs = "-" if name == found.baseline else "yes" if one.differs else "not proven"
            label = figure.removesuffix("_per_s").removesuffix("_s")
            rows.append([name, label, value, against, differs])
    output.put(output.table(["target", "figure", "value", f"ratio to {found.baseline}", "differs"], rows))
    print()
    failed = ", ".join(f"{name}: {count}" for name, count in found.failures.items() if count)
    output.facts({"rounds": found.rounds, "failed": failed})


def plan(found: Plan) -> None:
    alike: dict[tuple[str, str], list[str]] = {}  # servers that differ in nothing but their name are shown as one
    cells = {server.name: _placements(server) for server in found.servers}
    for server in found.servers:
        alike.setdefault((server.reason.text, repr(cells[server.name])), []).append(server.name)
    named = {names[0]: names[0] if len(names) == 1 else f"{names[0]} + {len(names) - 1}" for names in alike.values()}
    rows = [[named[first], *row] for first in named for row in cells[first]]
    output.put(output.table(["server", "demand", "rate", "batch", "promised", "late (simulated)", "slots"], rows))
    print()
    for (reason, _), (first, *_) in alike.items():
        print(f"{named[first]}: {reason}")
    for refusal in found.refused:
        text = output.styled(f"not placed: {refusal.demand.name} at {rate(refusal.demand.rate_per_s)}: ", "bold red")
        text.append(refusal.text, style="default")
        output.console().print(text, soft_wrap=True)
    print()
    output.facts(
        {
            "per hour": f"{money(found.per_hour)} for {len(found.servers)} servers",
            "dedicated": f"{money(found.dedicated_per_hour)}; this plan saves {found.saving:.1%}",
            "squishy packing": money(found.squishy_per_hour),
            "lower bound": money(found.least_per_hour),
            "proven": "no other packing is cheaper" if found.optimal else "found by search; a cheaper one may exist",
            "decided by": f"the {found.model} model"
            + (f"; {len(found.repaired)} sets failed in simulation and were packed anew" if found.repaired else ""),
        }
    )


def _placements(server: PlannedServer) -> list[list[str]]:
    late = {check.name: check for check in server.checks}
    return [
        [
            one.demand.name, rate(one.demand.rate_per_s), str(one.batch),
            f"{milliseconds(one.latency_s)} of {milliseconds(one.demand.slo_s)}",
            f"{check.late.value:.2%} (at most {check.late.high:.2%})" if (check := late.get(one.demand.name)) else "-",
            f"{server.occupancy:.0%}",
        ]
        for one in server.placements
    ]  # fmt: skip
