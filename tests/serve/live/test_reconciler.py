"""Services end to end in virtual time: what a tenant sees of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from math import inf
from pathlib import Path

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.records import JobFilter
from shoal.core import Conflict, Forbidden, Invalid, NotFound, PriorityClass, Quota, Unavailable, token_digest
from shoal.engine import Gang
from shoal.engine.simulated import Script, run
from shoal.serve.lifecycle import ServiceState
from shoal.serve.live.manager import summary_of
from shoal.serve.live.records import ServiceFilter
from shoal.serve.live.repository import ServiceRepository
from shoal.serve.live.responses import service_view
from tests.control.simulation import World, check_history, manifest, services_of
from tests.serve.live.simulation import SimulatedGateway, make_world, service

READY, DEPLOYING, FAILED = ServiceState.READY, ServiceState.DEPLOYING, ServiceState.FAILED


def play(folder: Path, scene: Callable[[World], object], behaviour: Callable[[Gang], Script] | None = None) -> None:
    async def main() -> None:
        world = make_world(folder)
        if behaviour is not None:
            original = world.cluster._behaviour
            world.cluster._behaviour = lambda gang: (original(gang), behaviour(gang))[1]
        plane = await world.start()
        await plane.put_tenant("ada", actor="admin")
        await scene(world)  # type: ignore[misc]
        assert world.store is not None
        check_history(world.store, world.cluster)
        await world.kill()

    run(main(), start=1_700_000_000)


async def deploy(world: World, name: str = "ocr", **fields: object) -> str:
    assert world.plane is not None
    record, _ = await services_of(world.plane).deploy(service(name, **fields), tenant="ada", actor="tenant:ada")
    return record.id


async def until(world: World, service_id: str, state: ServiceState) -> None:
    plane = world.plane
    assert plane is not None
    await world.until(lambda: services_of(plane).service(service_id).state is state)


def story(world: World, service_id: str) -> list[str]:
    assert world.store is not None
    events = world.store.events(owner_id=service_id)
    return [event.new_state or event.kind for event in events if event.kind.startswith("service.")]


def names(world: World, service_id: str) -> list[str]:
    assert world.plane is not None
    return [one.name for one in services_of(world.plane).replicas(service_id) if not one.leaving]


def test_a_service_comes_up_is_scaled_and_goes(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane, store = world.plane, world.store
        assert plane is not None
        assert store is not None
        ocr = await deploy(world, replicas=2)
        assert services_of(plane).service(ocr).state is DEPLOYING
        await until(world, ocr, READY)
        assert names(world, ocr) == ["ocr-0-1", "ocr-1-1"]
        assert store.jobs(JobFilter()) == []
        assert all(job.priority_class is PriorityClass.GUARANTEED for job in store.jobs(JobFilter(owned=True)))
        await services_of(plane).scale(ocr, 1, actor="ada")
        await world.until(lambda: names(world, ocr) == ["ocr-0-1"])
        await services_of(plane).scale(ocr, 3, actor="ada")
        assert services_of(plane).service(ocr).state is DEPLOYING
        await until(world, ocr, READY)
        assert names(world, ocr) == ["ocr-0-1", "ocr-2-1", "ocr-3-1"]
        await services_of(plane).undeploy(ocr, actor="ada")
        await until(world, ocr, ServiceState.STOPPED)
        assert world.cluster.alive() == ()
        assert services_of(plane).live() == []
        assert story(world, ocr) == [
            "DEPLOYING", "service.waiting", "READY", "service.scaled", "service.scaled", "DEPLOYING",
            "service.waiting", "READY", "STOPPING", "service.waiting", "STOPPED",
        ]  # fmt: skip
        again = await deploy(world)
        assert again != ocr

    play(tmp_path, scene)


def test_a_replica_that_ends_is_started_again_at_once_then_with_growing_waits(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane, store = world.plane, world.store
        assert plane is not None
        assert store is not None
        ocr = await deploy(world)
        await until(world, ocr, FAILED)
        found = await services_of(plane).explain(ocr)
        assert "ocr-0-1 ended" in found.summary
        assert "it ended by itself" in found.summary
        await world.until(lambda: plane.job(f"{ocr}-0").attempt == 6)
        attempts = store.attempts(f"{ocr}-0")
        waits = [round(b.created_at - (a.ended_at or 0)) for a, b in pairwise(attempts)]
        assert waits == [0, 1, 2, 4, 8]

    play(tmp_path, scene, lambda gang: Script(run_s=1.0, code=0))


def test_a_replica_that_ran_long_is_forgiven(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        ocr = await deploy(world)
        await until(world, ocr, READY)
        await world.until(lambda: plane.job(f"{ocr}-0").attempt == 4)
        assert plane.job(f"{ocr}-0").retries == {"user": 1}

    play(tmp_path, scene, lambda gang: Script(run_s=100.0, code=1))


def test_an_update_replaces_one_by_one_without_a_gap(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane, gateway = world.plane, world.gateway
        assert plane is not None
        assert isinstance(gateway, SimulatedGateway)
        ocr = await deploy(world, replicas=2)
        await until(world, ocr, READY)
        assert await deploy(world, env={"VARIANT": "b"}) == ocr
        assert services_of(plane).service(ocr).generation == 2
        fewest = 2

        def done() -> bool:
            nonlocal fewest
            status = gateway.observe().status
            assert status is not None
            fewest = min(fewest, len(status.services[0].ready))
            return services_of(plane).service(ocr).state is READY

        await world.until(done)
        assert fewest == 2
        assert names(world, ocr) == ["ocr-2-2", "ocr-3-2"]
        assert gateway.desired is not None
        await world.until(lambda: gateway.desired is not None and len(gateway.desired.services) == 1)

    play(tmp_path, scene)


def test_routes_and_limits_change_without_touching_a_replica(tmp_path: Path) -> None:
    models = [{"name": "m", "source": "/a.onnx"}, {"name": "m", "source": "/b.onnx", "version": "2"}]

    async def scene(world: World) -> None:
        plane, gateway = world.plane, world.gateway
        assert plane is not None
        assert isinstance(gateway, SimulatedGateway)
        ocr = await deploy(world, models=models, routes={"m": {"shares": {"1": 1.0}}})
        await until(world, ocr, READY)
        await deploy(world, models=models, routes={"m": {"shares": {"1": 0.9, "2": 0.1}}}, rate_limit=2.0)
        record = services_of(plane).service(ocr)
        assert (record.state, record.generation, record.deployment) == (READY, 1, 2)
        await world.until(lambda: gateway.desired is not None and gateway.desired.services[0].spec.rate_limit == 2.0)
        assert gateway.desired is not None
        assert dict(gateway.desired.services[0].spec.routes)["m"].shares == (("1", 0.9), ("2", 0.1))
        assert names(world, ocr) == ["ocr-0-1"]

    play(tmp_path, scene)


def test_a_bad_update_leaves_the_old_replicas_serving_and_its_mend_replaces_them(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        ocr = await deploy(world)
        await until(world, ocr, READY)
        await deploy(world, models=[{"name": "ocr-model", "source": "/models/broken.onnx"}])
        await until(world, ocr, ServiceState.DEGRADED)
        assert names(world, ocr) == ["ocr-0-1", "ocr-1-2"]
        assert "generation 1 goes on serving" in (await services_of(plane).explain(ocr)).summary
        await deploy(world, models=[{"name": "ocr-model", "source": "/models/good.onnx"}])
        await until(world, ocr, READY)
        assert names(world, ocr) == ["ocr-2-3"]

    play(tmp_path, scene)


def test_what_a_service_waits_for_is_told(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        await plane.put_tenant("ada", quota=Quota(accelerators=2), actor="admin")
        ocr = await deploy(world, replicas=3, resources={"accelerators": 1})
        await world.until(lambda: "2 of 3 replicas ready" in summary_of(services_of(plane).snapshot(ocr)))
        await world.until(lambda: "quota of ada leaves 0 of 2" in summary_of(services_of(plane).snapshot(ocr)))
        found = await services_of(plane).explain(ocr)
        assert [cause.subject for cause in found.causes] == ["replica ocr-2-1"]
        assert found.causes[0].change == "raise the quota: shoal quota ada --accelerators 3; or end jobs of ada"
        await plane.put_tenant("ada", quota=Quota(), actor="admin")
        await until(world, ocr, READY)

    play(tmp_path, scene)


def test_a_guaranteed_service_takes_the_place_of_best_effort_work(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        filler, _ = await plane.submit(manifest("filler", resources={"accelerators": 4}), tenant="ada", actor="ada")
        await world.until(lambda: plane.job(filler.id).state is JobState.RUNNING)
        ocr = await deploy(world, resources={"accelerators": 2})
        await until(world, ocr, READY)
        assert plane.job(filler.id).state is JobState.QUEUED

    play(tmp_path, scene, lambda gang: Script(run_s=inf))


def test_a_dead_gateway_degrades_and_comes_back(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane, gateway = world.plane, world.gateway
        assert plane is not None
        assert isinstance(gateway, SimulatedGateway)
        ocr = await deploy(world, replicas=2)
        await until(world, ocr, READY)
        gateway.die(5.0)
        await until(world, ocr, ServiceState.DEGRADED)
        assert "the gateway does not run" in (await services_of(plane).explain(ocr)).summary
        await until(world, ocr, READY)
        assert names(world, ocr) == ["ocr-0-1", "ocr-1-1"]

    play(tmp_path, scene)


def test_services_outlive_the_server(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        ocr = await deploy(world, replicas=2)
        await until(world, ocr, READY)
        before = world.cluster.alive()
        plane = await world.restart()
        assert services_of(plane).service(ocr).state is READY
        await until(world, ocr, READY)
        assert world.cluster.alive() == before
        await services_of(plane).undeploy(ocr, actor="ada")
        plane = await world.restart()
        await until(world, ocr, ServiceState.STOPPED)

    play(tmp_path, scene)


def test_a_replica_ended_by_hand_is_replaced_and_cannot_be_suspended(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        ocr = await deploy(world)
        await until(world, ocr, READY)
        with pytest.raises(Conflict, match="and cannot be suspended by itself"):
            await plane.suspend(f"{ocr}-0", actor="ada")
        await plane.cancel(f"{ocr}-0", actor="ada")
        await world.until(lambda: names(world, ocr) == ["ocr-1-1"])
        await until(world, ocr, READY)

    play(tmp_path, scene)


def test_a_key_is_one_deployment_and_a_name_one_service(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane = world.plane
        assert plane is not None
        services = services_of(plane)

        async def deployed(key: str | None, **fields: object) -> tuple[str, int, bool]:
            record, created = await services.deploy(service(**fields), tenant="ada", actor="ada", idempotency_key=key)
            return record.id, record.deployment, created

        first, number, created = await deployed("a")
        assert (number, created) == (1, True)
        assert await deployed("a") == (first, 1, False)
        assert await deployed("b", env={"X": "1"}) == (first, 2, False)
        assert await deployed("a") == (first, 2, False)
        assert await deployed(None, env={"X": "1"}) == (first, 2, False)
        with pytest.raises(Conflict, match="the idempotency key 'a' was used for another service"):
            await deployed("a", env={"X": "2"})
        await plane.put_tenant("bob", actor="admin")
        other, created = await services.deploy(service(), tenant="bob", actor="bob", idempotency_key="a")
        assert created
        assert other.id != first
        with pytest.raises(Conflict, match="service ocr of tenant ada has a model ocr-model already"):
            await services.deploy(
                service("asr", models=[{"name": "ocr-model", "source": "/m.onnx"}]), tenant="ada", actor="ada"
            )
        await services.undeploy(first, actor="ada")
        with pytest.raises(Conflict, match="service ocr is STOPPING"):
            await deployed("c", env={"X": "3"})
        with pytest.raises(Conflict, match="service ocr is STOPPING"):
            await services.scale(first, 3, actor="ada")
        await until(world, first, ServiceState.STOPPED)
        with pytest.raises(Conflict, match="the service is over: STOPPED"):
            await services.scale(first, 3, actor="ada")
        assert (await services.undeploy(first, actor="ada")).state is ServiceState.STOPPED

    play(tmp_path, scene)


def test_what_may_not_be_deployed_is_refused_and_nothing_is_stored(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane, store = world.plane, world.store
        assert plane is not None
        assert store is not None
        await plane.put_tenant("low", max_priority_class=PriorityClass.BEST_EFFORT, actor="admin")
        before = store.last_seq()
        refused: list[tuple[type[Exception], str, str, dict[str, object]]] = [
            (NotFound, "no tenant 'eve'", "eve", {}),
            (Forbidden, "tenant low may not have guaranteed services", "low", {}),
            (Invalid, "the files were not uploaded", "ada", {"models": [{"name": "m", "source": "m.onnx"}]}),
            (Invalid, "tenant ada has no bundle", "ada", {"bundle": "sha256:" + "0" * 64}),
        ]
        for kind, message, tenant, fields in refused:
            with pytest.raises(kind, match=message):
                await services_of(plane).deploy(service(**fields), tenant=tenant, actor="x")
        assert store.last_seq() == before
        assert ServiceRepository(store).services(ServiceFilter()) == []
        with pytest.raises(NotFound, match="no service s-nope"):
            services_of(plane).service("s-nope")

    play(tmp_path, scene)


def test_a_server_without_a_gateway_says_so(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        world.gateway = None
        plane = await world.restart()
        with pytest.raises(Unavailable, match="this server has no gateway"):
            await services_of(plane).deploy(service(), tenant="ada", actor="ada")

    play(tmp_path, scene)


def test_the_gateway_is_told_of_tenants_and_tokens_as_they_change(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        from shoal.contract.records import NewEvent, TokenRecord

        plane, store, gateway = world.plane, world.store, world.gateway
        assert plane is not None
        assert store is not None
        assert isinstance(gateway, SimulatedGateway)
        await until(world, await deploy(world), READY)
        token = TokenRecord("t-1", "ada", token_digest("secret"), "", 0.0)
        await store.put_token(token, NewEvent(0.0, "token.created", "admin", tenant="ada"))
        await store.put_token(
            TokenRecord("t-2", None, token_digest("root"), "", 0.0), NewEvent(0.0, "token.created", "admin")
        )
        await plane.put_tenant("ada", weight=3.0, actor="admin")
        await world.until(lambda: bool(gateway.desired and gateway.desired.admin_token_hashes))
        assert gateway.desired is not None
        assert gateway.desired.admin_token_hashes == (token_digest("root"),)
        assert [(one.name, one.weight, one.token_hashes) for one in gateway.desired.tenants] == [
            ("ada", 3.0, (token_digest("secret"),))
        ]
        await store.revoke_token("t-1", NewEvent(0.0, "token.revoked", "admin", tenant="ada"))
        await world.until(lambda: gateway.desired is not None and gateway.desired.tenants[0].token_hashes == ())

    play(tmp_path, scene)


def test_a_state_that_a_runtime_gives_its_model_is_an_event_when_it_changes_and_a_cause(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        plane, store, gateway = world.plane, world.store, world.gateway
        assert plane is not None
        assert store is not None
        assert isinstance(gateway, SimulatedGateway)
        ocr = await deploy(world)
        await until(world, ocr, READY)

        def told() -> list[str]:
            return [event.cause for event in store.events(owner_id=ocr) if event.kind == "service.model"]

        for word in ("READY", "DRIFTED", "DRIFTED", "READY"):
            gateway.word = word
            await asyncio.sleep(5)
            causes = (await services_of(plane).explain(ocr)).causes
            assert [one.reason.text for one in causes] == (["it is DRIFTED: new rows"] if word == "DRIFTED" else [])
            view = service_view(services_of(plane).snapshot(ocr))["models"][0]
            assert (view["runtime_state"], view["figures"]) == (word, {"hits": 3.0})
        assert told() == [
            "model ocr-model version 1 is DRIFTED: new rows", "model ocr-model version 1 is READY",
        ]  # fmt: skip
        assert services_of(plane).service(ocr).state is READY

    play(tmp_path, scene)


def test_nothing_is_written_while_nothing_happens(tmp_path: Path) -> None:
    async def scene(world: World) -> None:
        import asyncio

        store, gateway = world.store, world.gateway
        assert store is not None
        assert isinstance(gateway, SimulatedGateway)
        await until(world, await deploy(world), READY)
        seq, told = store.last_seq(), gateway.changes
        await asyncio.sleep(600)
        assert (store.last_seq(), gateway.changes) == (seq, told)

    play(tmp_path, scene)
