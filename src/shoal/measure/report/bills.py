"""The sections about money: what a mix costs, and a consolidation plan."""

from __future__ import annotations

from shoal.base.report import Section, Table, bars, duration
from shoal.core import Money
from shoal.measure.cost import MixCost
from shoal.measure.planning.planner import Plan, PlannedServer


def mix_costs(found: MixCost) -> Section:
    """Perseus' cost model at the wanted mix."""
    rows = [
        ["dedicated", f"{found.dedicated.value:.3g}", f"{found.whole_dedicated}", _money(found.dedicated_per_hour)],
        ["shared", f"{found.shared:.3f}", f"{found.whole_shared}", _money(found.shared_per_hour)],
    ]
    table = Table("Servers for the wanted rates", ["", "if they could be cut", "whole", "per hour"], rows)
    lengths = {"servers": {"dedicated": found.dedicated.value, "shared": found.shared.value}}
    figure = bars("Servers needed", "If servers could be cut.", "servers", lengths, table)
    text = [
        f"Sharing saves {found.saving:.1%} of servers that could be cut (1 - 1/sum). A server costs "
        f"{_money(found.per_server_hour)} an hour."
    ]
    return Section("Cost of the wanted mix", text, [figure])


def plan(found: Plan) -> Section:
    """Which tenants share what, why, and what it saves."""
    costs = {
        "dedicated servers": found.dedicated_per_hour,
        "squishy bin packing": found.squishy_per_hour,
        "this plan": found.per_hour,
        "lower bound": found.least_per_hour,
    }
    known = {name: cost for name, cost in costs.items() if cost is not None}
    table = Table(
        "Cost per hour of the same demands", ["", "per hour"], [[name, _money(one)] for name, one in known.items()]
    )
    lengths = {"dollars per hour": {name: cost.micro_usd / 1e6 for name, cost in known.items()}}
    figure = bars("Cost per hour", "This plan beside its baselines.", "dollars per hour", lengths, table)
    servers = Table(
        "Servers",
        ["server", "per hour", "slots used", "memory used", "loads in", "what is tightest, and why nothing more fits"],
        [_server(server) for server in found.servers],
    )
    placements = Table(
        "Placements",
        [
            "server",
            "demand",
            "rate",
            "of the demand",
            "batch",
            "promised",
            "objective",
            "late in simulation",
            "allowed",
        ],
        [row for server in found.servers for row in _placements(server)],
    )
    tables = [servers, placements]
    if found.refused:
        rows = [[one.demand.name, f"{one.demand.rate_per_s:.4g}/s", one.text] for one in found.refused]
        tables.append(Table("Not placed", ["demand", "rate", "binding constraint by type of server"], rows))
    proof = (
        "No other packing is cheaper under this model."
        if found.optimal
        else "Found by search; a cheaper one may exist."
    )
    return Section(
        "Plan",
        [
            f"{len(found.servers)} servers at {_money(found.per_hour)} an hour, {found.saving:.1%} less than one "
            f"server for each demand. What may share is decided by the {found.model} model. {proof}"
        ],
        [figure],
        tables,
        warnings=[f"not placed: {one.demand.name} ({one.text})" for one in found.refused],
    )  # fmt: skip


def _server(server: PlannedServer) -> list[str]:
    memory = server.memory_bytes / max(1, server.server.memory_bytes)
    return [
        server.name, _money(server.server.per_hour), f"{server.occupancy:.1%}", f"{memory:.1%}",
        duration(server.load_s) if server.load_s else "-", server.reason.text,
    ]  # fmt: skip


def _placements(server: PlannedServer) -> list[list[str]]:
    late = {check.name: f"{check.late:.2%}" for check in server.checks}
    return [
        [
            server.name, one.demand.name, f"{one.demand.rate_per_s:.4g}/s", f"{one.share:.1%}", f"{one.batch}",
            duration(one.latency_s), duration(one.demand.slo_s), late.get(one.demand.name, "-"),
            f"{1 - one.demand.quantile:.2%}",
        ]
        for one in server.placements
    ]  # fmt: skip


def _money(money: Money) -> str:
    """To the cent where that says enough."""
    return f"${money.micro_usd / 1e6:,.2f}" if money.micro_usd >= 100_000 or not money.micro_usd else str(money)
