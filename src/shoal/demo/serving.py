"""The serving half of the plot: two real services of a guaranteed tenant, measured alone and beside the training."""

from __future__ import annotations

from typing import Any

from shoal.base.home import Home
from shoal.core import Unavailable
from shoal.demo.load import SERVICES, SLO_MS, TENANT, Load
from shoal.demo.play import Demo
from shoal.demo.stage import PRICE_PER_HOUR
from shoal.serve import read_status

ALONE, SHARED, FLOODED, SHOAL = "alone", "shared", "flooded", "shared, with Shoal"
"""The columns: while nothing else runs, beside the training, beside a flood of memory, and so under the guard."""
_ALONE_S, _BESIDE_S = 5.0, 12.0
_FAST_ALONE_S, _FAST_BESIDE_S = 3.0, 8.0
_TRIES_ALONE = 3


def deploy_the_services(demo: Demo) -> None:
    """Deploy two models with a latency objective; each is trained when its replica loads it."""
    demo.screen.heading("2. A fourth tenant deploys two real models as services, with a latency objective")
    demo.admin.create_tenant(TENANT, weight=2.0, sandbox="none")
    token = demo.admin.create_token(TENANT, label="demo").token
    demo.enter_tenant(TENANT, token)
    client = demo.tenants[TENANT]
    for one in SERVICES:
        manifest = {
            "kind": "service",
            "name": one.name,
            "priority_class": "guaranteed",
            "slo": {"p99": f"{SLO_MS:g}ms"},
            "models": [
                {"name": one.name, "source": f"{one.model.__module__}:{one.model.__name__}", "runtime": "callable"}
            ],
            "resources": {"cpus": 0.5, "memory": "512MiB"},
        }
        client.services.deploy(manifest, idempotency_key=f"demo-{one.name}")
    ready = [client.services.wait_ready(one.name, timeout_s=60.0) for one in SERVICES]
    endpoints = ready[0].endpoints
    if endpoints is None:
        raise Unavailable("the gateway does not say where it listens")
    demo.load = Load(endpoints.http, token, after=demo.after)
    for one in SERVICES:
        demo.screen.say(f"  {one.name:<12} {one.about}, p99 <= {SLO_MS:g} ms")
    demo.report.extra["serving"] = {"slo_p99_ms": SLO_MS, "columns": [], "services": {}}


def serve_alone(demo: Demo) -> None:
    """The services' latency while nothing else runs: what sharing is compared with. Measured again where something
    else did run: one stop of a busy machine, longer than the objective, is more than it allows for."""
    seconds = _FAST_ALONE_S if demo.report.extra.get("fast") else _ALONE_S
    load = load_of(demo)
    for tries in range(1, _TRIES_ALONE + 1):
        demo.report.extra["measured_alone"] = tries
        demo.screen.say(f"  {seconds:g} s of load at random moments, alone ...")
        load.start(ALONE, seconds)
        load.finish()
        if _kept(load.measured[ALONE]):
            return


def serve_beside_the_training(demo: Demo) -> None:
    """From now on the services are under load while everything else happens."""
    seconds = _FAST_BESIDE_S if demo.report.extra.get("fast") else _BESIDE_S
    rates = " and ".join(f"{one.rate_per_s:g}/s to {one.name}" for one in SERVICES)
    demo.screen.say(f"  for the next {seconds:g} s, through all that follows, requests are sent: {rates}")
    load_of(demo).start(SHARED, seconds)


def count_the_answers(demo: Demo) -> None:
    """What became of the requests, those during the server's absence included."""
    demo.screen.heading("8. The services, alone and beside the training, with the server killed meanwhile")
    load = load_of(demo)
    load.finish()
    found = load.measured
    lost = sum(facts["unanswered"] for column in found.values() for facts in column.values())
    asked = sum(facts["requests"] for column in found.values() for facts in column.values())
    kept = _kept(found[ALONE])
    status = [demo.tenants[TENANT].services.get(one.name) for one in SERVICES]
    serving: dict[str, Any] = demo.report.extra["serving"]
    serving |= {"columns": list(found), "services": found, "cost": _cost(demo)}
    demo.screen.quote(_table(found))
    for cost in serving["cost"]:
        demo.screen.say(
            f"  {cost['tenant']} used {cost['device_s']:.2f} compute-seconds; with the idle time it reserved it owes "
            f"{cost['cost']} of a machine of ${PRICE_PER_HOUR} an hour"
        )
    demo.report.check("no request unanswered", asked > 0 and not lost, f"{asked} requests, {lost} without an answer")
    demo.report.check(
        "services kept their objective alone", kept,
        ", ".join(f"{name} {facts['within_slo']:.1%} within {SLO_MS:g} ms" for name, facts in found[ALONE].items())
        + (f" (measured {tries} times)" if (tries := demo.report.extra["measured_alone"]) > 1 else ""),
    )  # fmt: skip
    demo.report.check(
        "services outlive the server",
        demo.report.server_killed and all(one.state == "READY" for one in status),
        "the gateway answered while the server was dead, and both services are READY",
    )


def _kept(services: dict[str, dict[str, Any]]) -> bool:
    return all(facts["within_slo"] >= 0.99 for facts in services.values())


def undeploy_the_services(demo: Demo) -> None:
    """Their replicas end before the server is stopped."""
    client = demo.tenants.get(TENANT)
    if client is None:
        return
    for one in client.services.list().services:
        client.services.undeploy(one.name)
        client.services.wait_stopped(one.id, timeout_s=30.0)


def load_of(demo: Demo) -> Load:
    if demo.load is None:
        raise Unavailable("the services were not deployed")
    return demo.load


def _table(measured: dict[str, dict[str, dict[str, Any]]]) -> list[str]:
    """One line for each service and column."""
    lines = [
        f"{'service':<12} {'':<8} {'requests':>8} {'p50 ms':>8} {'p99 ms':>8} {'goodput/s':>10} {'in objective':>13}"
    ]
    for one in SERVICES:
        for column, services in measured.items():
            facts = services[one.name]
            lines.append(
                f"{one.name:<12} {column:<8} {facts['requests']:>8} {facts['p50_ms']:>8.2f} {facts['p99_ms']:>8.2f} "
                f"{facts['goodput_per_s']:>10.1f} {facts['within_slo']:>13.1%}"
            )
    return lines


def _cost(demo: Demo) -> list[dict[str, Any]]:
    """Compute-seconds and what they cost, by tenant, from the usage that the gateway counts."""
    status = read_status(Home(demo.stage.home).serve_folder)
    totals = status.usage if status is not None else ()
    return [{"tenant": one.tenant, "device_s": one.device_s, "cost": str(one.cost)} for one in totals]
