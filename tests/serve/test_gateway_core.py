"""Every request gets exactly one end, whatever replicas, configurations and callers do meanwhile: over replicas that
the test plays, in virtual time, where whatever waits for ever is an error."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from shoal.core import Invalid, Money, Reason, ShoalError
from shoal.inference.errors import BadModel, BadRequest, ModelFailed
from shoal.inference.types import DataType, ModelSpec, TensorSpec
from shoal.serve.contract import TenantEntry
from shoal.serve.errors import DeadlineMissed, NotReady, RateLimited, UnknownModel
from shoal.serve.gateway import report
from shoal.serve.gateway.replicas.replica_set import BACK_WITHIN_S, DEATHS
from shoal.serve.types import Route
from tests.serve.gateway_kit import Played, deployment, report_of, service, stage
from tests.serve.models import floats

pytestmark = pytest.mark.virtual_time


def model(name: str = "m", version: str = "1", **more: Any) -> ModelSpec:
    return ModelSpec(name, f"/{name}", version=version, **more)


def one(*models: ModelSpec, generation: int = 1, **more: Any) -> Any:
    """A deployment of the service `s`."""
    return deployment(service("s", models or [model()], **more), generation)


async def outcome(task: asyncio.Task[Any]) -> str:
    """`ok`, or the error's code."""
    try:
        await task
    except ShoalError as error:
        return error.code
    return "ok"


async def outcomes(tasks: Sequence[asyncio.Task[Any]]) -> dict[str, int]:
    return Counter([await outcome(task) for task in tasks])


# --- the ordinary ---


async def test_a_request_is_answered_by_whoever_has_the_model() -> None:
    async with stage(one(model("m"), model("n"))) as on:
        on.replica()
        response = await on.ask("n", id="7")
        assert (response.model, response.version, response.id) == ("n", "1", "7")
        with pytest.raises(BadRequest, match="no input 'z'"):
            await on.gateway.infer(floats("z", [[1]], "m", tenant="ada"))
        with pytest.raises(UnknownModel, match="there is no version '9'"):
            await on.ask("m", version="9")
        with pytest.raises(UnknownModel):
            await on.ask("none")
        (m, n) = on.gateway.statistics("ada", None, None)
        assert (m.success.count, n.success.count, n.executions) == (0, 1, 1)


async def test_requests_that_wait_are_executed_together() -> None:
    async with stage(one(model(max_batch=8))) as on:
        replica = on.replica(held=True)
        tasks = [on.ask() for _ in range(9)]
        await on.settle()
        assert [len(requests) for requests, _, _ in replica.asked] == [1]
        replica.answer()
        await on.settle()
        assert [len(requests) for requests, _, _ in replica.asked] == [8]
        replica.answer()
        assert await outcomes(tasks) == {"ok": 9}
        (found,) = on.gateway.statistics("ada", "m", "1")
        assert [(size, spent.count) for size, spent in found.batches.items()] == [(1, 1), (8, 1)]
        assert (found.inferences, found.success.count, found.compute_infer.count) == (9, 9, 9)


async def test_requests_of_other_shapes_are_not_put_together() -> None:
    shape = TensorSpec("x", DataType.FP32, (-1, -1))
    async with stage(one(model(max_batch=8, inputs=(shape,)))) as on:
        replica = on.replica(held=True)
        first = on.ask()
        await on.settle()
        others = [
            asyncio.ensure_future(on.gateway.infer(floats("x", [[0.0] * wide], "m", tenant="ada")))
            for wide in (1, 2, 1)
        ]
        await on.settle()
        replica.held = False
        replica.answer()
        assert await outcomes([first, *others]) == {"ok": 4}
        (found,) = on.gateway.statistics("ada", "m", "1")
        assert [(size, spent.count) for size, spent in found.batches.items()] == [(1, 2), (2, 1)]


async def test_requests_that_waited_before_batches_were_allowed_are_put_together_by_shape() -> None:
    shape = TensorSpec("x", DataType.FP32, (-1, -1))
    old, new = one(model(inputs=(shape,))), one(model(max_batch=8, inputs=(shape,)), generation=2)
    async with stage(old, new) as on:
        first, second = on.replica(held=True), on.replica("b", generation=2, held=True)
        await on.settle()
        tasks = [
            asyncio.ensure_future(on.gateway.infer(floats("x", [[0.0] * wide], "m", tenant="ada")))
            for wide in (1, 1, 1, 2, 1)
        ]
        await on.settle()
        on.follow(new)
        first.answer()
        second.held = False
        second.answer()
        assert await outcomes(tasks) == {"ok": 5}
        (found,) = on.gateway.statistics("ada", "m", "1")
        assert [(size, spent.count) for size, spent in found.batches.items()] == [(1, 3), (2, 1)]


async def test_the_replica_with_least_to_do_is_asked() -> None:
    async with stage(one(model("m"), model("n"))) as on:
        replicas = [on.replica(name, held=True) for name in "ab"]
        await on.settle()
        tasks = [on.ask("m"), on.ask("m")]
        await on.settle()
        assert [len(replica.asked) for replica in replicas] == [1, 1]
        for replica in replicas:
            replica.answer()
        assert await outcomes(tasks) == {"ok": 2}


async def test_an_error_of_the_model_is_its_requests_own() -> None:
    async with stage(one(model(max_batch=4))) as on:
        replica = on.replica(held=True)
        tasks = [on.ask()]
        await on.settle()
        tasks += [on.ask() for _ in range(3)]
        replica.answer(ModelFailed("no"))
        await on.settle()
        replica.answer(ModelFailed("no"), BadRequest("nor this"))
        assert [await outcome(task) for task in tasks] == ["model-failed", "model-failed", "invalid", "ok"]
        (found,) = on.gateway.statistics("ada", "m", "1")
        assert (found.fail.count, found.success.count, found.inferences, found.executions) == (3, 1, 1, 1)


# --- callers that go ---


async def test_a_caller_that_goes_takes_its_request_along() -> None:
    async with stage(one()) as on:
        replica = on.replica(held=True)
        running, waiting, kept = [on.ask() for _ in range(3)]
        await on.settle()
        running.cancel()
        waiting.cancel()
        await on.settle()
        assert on.gateway.waiting("ada/m/1") == 1
        replica.held = False
        replica.answer()
        assert await outcome(kept) == "ok"
        assert replica.log.count(("execute", "m")) == 2


# --- replicas that go ---


async def test_what_a_dead_replica_was_at_fails_and_what_waited_is_served_by_its_successor() -> None:
    async with stage(one()) as on:
        replica = on.replica(held=True)
        tasks = [on.ask() for _ in range(4)]
        await on.settle()
        replica.die()
        assert await outcome(tasks[0]) == "replica-lost"
        assert on.state() == ("LOADING", "no replica of its service has joined")
        tasks.append(on.ask())  # it is not turned away: somebody is about to come back
        await asyncio.sleep(BACK_WITHIN_S / 2)
        on.replica()
        assert await outcomes(tasks[1:]) == {"ok": 4}


async def test_if_none_comes_back_nobody_waits_for_long() -> None:
    for scheduler in ("deadline", "fair", "all-share"):
        async with stage(one(), scheduler=scheduler) as on:
            replica = on.replica(held=True)
            tasks = [on.ask() for _ in range(4)]
            await on.settle()
            replica.die()
            began = asyncio.get_running_loop().time()
            assert await outcomes(tasks) == {"replica-lost": 1, "not-ready": 3}
            assert asyncio.get_running_loop().time() - began <= BACK_WITHIN_S + 0.1
            with pytest.raises(NotReady, match="no replica of its service has joined"):
                await on.ask()
            assert on.state()[0] == "UNAVAILABLE"


async def test_with_another_replica_left_nothing_waits() -> None:
    async with stage(one()) as on:
        first, second = on.replica("a", held=True), on.replica("b")
        await on.settle()
        tasks = [on.ask() for _ in range(6)]
        await on.settle()
        first.die()
        assert await outcomes(tasks) == {"replica-lost": 1, "ok": 5}
        assert second.log.count(("execute", "m")) == 5
        assert await outcome(on.ask()) == "ok"


async def test_a_replica_that_was_told_to_end_is_asked_nothing_more() -> None:
    async with stage(one()) as on:
        leaving = on.replica("a", held=True)
        task = on.ask()
        await on.settle()
        leaving.leaving = True
        on.gateway.replica_set.leaving(leaving)
        with pytest.raises(NotReady):
            await on.ask()
        leaving.answer()
        assert await outcome(task) == "ok"
        on.replica("b")
        assert await outcome(on.ask()) == "ok"
        assert leaving.log.count(("execute", "m")) == 1


async def test_a_model_that_kills_its_replicas_is_left_out_at_last() -> None:
    async with stage(one(model("good"), model("evil"))) as on:
        for _ in range(DEATHS):
            replica = on.replica(slow={"evil"})
            await on.settle()
            assert await outcome(on.ask("good")) == "ok"
            replica.die()
            assert "replica a died while it loaded this: the process closed" in on.state("evil")[1]
        replica = on.replica()
        await on.settle()
        assert ("load", "evil") not in replica.log
        assert (on.state("good")[0], on.state("evil")[0]) == ("READY", "UNAVAILABLE")
        (status,) = report.services(on.gateway)
        assert [(one.ready, one.failed) for one in status.replicas] == [(False, True)]
        assert status.reason is None
        await on.gateway.load("ada", "evil")  # whoever knows better may try again
        assert on.state("evil")[0] == "READY"


async def test_a_new_generation_of_a_model_that_killed_replicas_is_tried_anew() -> None:
    async with stage(one(generation=1)) as on:
        for _ in range(DEATHS):
            replica = on.replica(slow={"m"})
            await on.settle()
            replica.die()
        on.replica()
        assert "died while it loaded this" in on.state()[1]
        on.follow(one(generation=2))
        on.replica("b", generation=2)
        assert await outcome(on.ask()) == "ok"


# --- models that are being loaded ---


async def test_a_request_waits_for_the_first_load_of_its_model() -> None:
    async with stage(one(model("m"), model("n"))) as on:
        replica = on.replica(slow={"m"})
        tasks = [on.ask("m"), on.ask("n", timeout_s=5.0)]
        await on.settle()
        assert on.state("m") == ("LOADING", "its replicas are still loading")
        replica.finish("m")
        assert await outcomes(tasks) == {"ok": 2}


async def test_but_no_longer_than_its_answer_is_of_use() -> None:
    async with stage(one(slo_p99_s=2.0)) as on:
        on.replica(slow={"m"})
        loop = asyncio.get_running_loop()
        for timeout_s, waits_s in ((None, 2.0), (0.5, 0.5), (0.0, 0.0)):
            began = loop.time()
            with pytest.raises(NotReady, match="still loading"):
                await on.ask(timeout_s=timeout_s)
            assert loop.time() - began == pytest.approx(waits_s, abs=0.1)
        (found,) = on.gateway.statistics("ada", None, None)
        assert found.fail.count == 3


async def test_a_request_for_a_model_that_cannot_be_loaded_hears_why() -> None:
    async with stage(one(model("bad"), model("good"))) as on:
        replica = on.replica(slow={"bad"}, broken={"bad"})
        waits = on.ask("bad")
        await on.settle()
        replica.finish("bad")
        with pytest.raises(NotReady, match="version 1 is ready nowhere: bad is damaged"):
            await waits
        with pytest.raises(NotReady, match="bad is damaged"):
            await on.ask("bad")
        assert await outcome(on.ask("good")) == "ok"
        assert on.state("bad") == ("UNAVAILABLE", "bad is damaged")
        assert replica.log.count(("load", "bad")) == 1
        assert not on.gateway.ready()
        assert on.gateway.model_ready("ada", "good", None)
        (status,) = report.services(on.gateway)
        assert [(one.ready, one.failed, one.reason) for one in status.replicas] == [(False, True, "bad is damaged")]


async def test_what_is_asked_for_is_loaded_before_the_others() -> None:
    async with stage(one(*(model(f"m{at}") for at in range(9)))) as on:
        replica = on.replica(slow={"m0"})
        await on.settle()
        task = on.ask("m7")
        await on.settle()
        replica.finish("m0")
        assert await outcome(task) == "ok"
        assert replica.log.index(("load", "m7")) <= 2
        await on.settle()
        assert Counter(replica.log) == {**{("load", f"m{at}"): 1 for at in range(9)}, ("execute", "m7"): 1}


async def test_a_replica_that_rejoins_needs_not_load_again_what_it_has() -> None:
    async with stage(one(model("m"), model("n"))) as on:
        before = {("m", "1"): report_of(model("m"))}
        replica = on.replica(models=before)
        await on.settle()
        assert replica.log == [("load", "n")]
        assert on.gateway.meter._interval._overhead_s == {"ada": pytest.approx(0.01)}  # only what was loaded now
        assert await outcome(on.ask("m")) == "ok"


async def test_a_stranger_is_let_go() -> None:
    async with stage(one()) as on:
        assert not on.gateway.admits("a digest")
        stranger = on.replica(of="unknown")
        assert stranger.leaving
        assert on.gateway.replica_set.members == {}


# --- on request: load and unload ---


async def test_an_unloaded_model_is_refused_at_once_and_also_to_those_who_wait() -> None:
    async with stage(one()) as on:
        replica = on.replica(held=True)
        tasks = [on.ask() for _ in range(3)]
        await on.settle()
        await on.gateway.unload("ada", "m")
        with pytest.raises(NotReady, match="it was unloaded"):
            await tasks[1]
        replica.answer()
        assert await outcomes([tasks[0], tasks[2], on.ask()]) == {"ok": 1, "not-ready": 2}
        assert on.state() == ("UNAVAILABLE", "it was unloaded")
        assert on.gateway.ready()  # it is as whoever unloaded it wants it
        replica.held = False
        await on.gateway.load("ada", "m")
        assert await outcome(on.ask()) == "ok"


async def test_unloading_what_is_being_loaded_leaves_it_unloaded() -> None:
    async with stage(one(model("m"), model("n"))) as on:
        replica = on.replica(slow={"m"})
        waits = on.ask("m")
        await on.settle()
        unload = asyncio.ensure_future(on.gateway.unload("ada", "m"))
        later = asyncio.ensure_future(on.gateway.unload("ada", "n"))
        await on.settle()
        assert await outcome(waits) == "not-ready"
        replica.finish("m")
        await asyncio.gather(unload, later)
        assert replica.models == {}
        assert on.state("m") == on.state("n") == ("UNAVAILABLE", "it was unloaded")
        newcomer = on.replica("b")
        await on.settle()
        assert newcomer.log == []


async def test_loading_again_that_fails_leaves_the_old_one_in_place() -> None:
    async with stage(one()) as on:
        replica = on.replica()
        await on.settle()
        replica.broken = {"m"}
        with pytest.raises(BadModel, match="m is damaged"):
            await on.gateway.load("ada", "m")
        assert await outcome(on.ask()) == "ok"
        (status,) = report.services(on.gateway)
        assert status.replicas[0].ready


async def test_loading_goes_on_in_the_replicas_that_are_left() -> None:
    async with stage(one()) as on:
        first, second = on.replica("a"), on.replica("b")
        await on.settle()
        first.slow = {"m"}
        load = asyncio.ensure_future(on.gateway.load("ada", "m"))
        await on.settle()
        first.die()
        await load
        assert second.log.count(("load", "m")) == 2
        second.die()
        with pytest.raises(NotReady, match="version 1 is ready nowhere"):
            await on.gateway.load("ada", "m")


async def test_a_model_is_loaded_to_the_end_though_nobody_waits_for_it() -> None:
    async with stage(one(model(version="1"), model(version="2"))) as on:
        replica = on.replica()
        await on.settle()
        await on.gateway.unload("ada", "m")
        replica.slow = {"m"}
        load = asyncio.ensure_future(on.gateway.load("ada", "m"))
        await on.settle()
        load.cancel()
        replica.finish("m")
        await on.settle()
        assert {*replica.models} == {("m", "1"), ("m", "2")}


# --- less memory than models ---


def tight(budget: int, *names: str) -> Any:
    return one(*(model(name) for name in names), memory_bytes=budget)


SIZES = dict.fromkeys("abcdef", 10)


async def test_what_does_not_fit_is_loaded_when_it_is_asked_for() -> None:
    async with stage(tight(20, "a", "b", "c")) as on:
        on.gateway.replica_set.reports.update({f"ada/{name}/1": report_of(model(name), 10) for name in "abc"})
        replica = on.replica(sizes=SIZES)
        await on.settle()
        assert {name for name, _ in replica.models} == {"a", "b"}
        assert on.state("c") == ("UNAVAILABLE", "it is loaded when it is asked for")
        assert on.gateway.ready()
        assert on.gateway.model_ready("ada", "c", None)
        assert await outcomes([on.ask("a"), on.ask("a")]) == {"ok": 2}
        assert await outcome(on.ask("c")) == "ok"
        assert {name for name, _ in replica.models} == {"a", "c"}
        assert on.gateway.replica_set.members["a"].cache.inflation > 0
        (status,) = report.services(on.gateway)
        assert (status.replicas[0].ready, status.reason) == (True, None)


async def test_what_turns_out_larger_than_thought_makes_room_afterwards() -> None:
    async with stage(tight(25, "a", "b", "c")) as on:
        replica = on.replica(sizes={"a": 10, "b": 10, "c": 20})
        await on.settle()
        assert {name for name, _ in replica.models} == {"c"}


async def test_models_that_do_not_fit_together_take_turns_and_nobody_is_forgotten() -> None:
    async with stage(tight(10, *SIZES)) as on:
        replica = on.replica(sizes=SIZES)
        await on.settle()
        tasks = [on.ask(name) for _ in range(20) for name in SIZES]
        assert await outcomes(tasks) == {"ok": 120}
        assert replica.log.count(("execute", "a")) == 20
        loads = sum(what == "load" for what, _ in replica.log)
        assert loads < 40  # not one for each request
        assert len(replica.models) == 1


async def test_what_is_evicted_while_requests_wait_for_it_comes_back() -> None:
    async with stage(tight(10, "a", "b")) as on:
        replica = on.replica(sizes=SIZES)
        await on.settle()
        replica.held = True
        tasks = [on.ask(name) for name in "aaaaa"]
        await on.settle()
        tasks.append(on.ask("b"))
        await asyncio.sleep(1)
        assert ("unload", "a") in replica.log
        assert on.gateway.waiting("ada/a/1") == 4
        replica.held = False
        while replica.asked:
            replica.answer()
        assert await outcomes(tasks) == {"ok": 6}


async def test_a_damaged_model_that_is_asked_for_is_tried_once() -> None:
    async with stage(tight(10, "a", "b")) as on:
        replica = on.replica(sizes=SIZES, broken={"b"})
        await on.settle()
        for _ in range(3):
            with pytest.raises(NotReady, match="b is damaged"):
                await on.ask("b")
        assert replica.log.count(("load", "b")) == 1
        assert await outcome(on.ask("a")) == "ok"


async def test_a_canary_that_is_not_in_memory_gets_its_share_all_the_same() -> None:
    route = (("m", Route((("1", 0.75), ("2", 0.25)))),)
    async with stage(one(model(version="1"), model(version="2"), memory_bytes=10, routes=route)) as on:
        on.replica(sizes={"m": 10})
        await on.settle()
        versions = [(await on.ask()).version for _ in range(8)]
        assert Counter(versions) == {"1": 6, "2": 2}


# --- the configuration changes ---


async def test_an_undeployed_model_is_refused_to_those_who_wait_and_answered_to_who_is_served() -> None:
    async with stage(one(model("m"), model("n"))) as on:
        replica = on.replica(held=True)
        tasks = [on.ask() for _ in range(3)]
        await on.settle()
        on.follow()
        for waits in tasks[1:]:
            with pytest.raises(UnknownModel, match="it was undeployed"):
                await waits
        replica.answer()
        assert await outcome(tasks[0]) == "ok"
        assert replica.leaving
        with pytest.raises(UnknownModel, match="there is no model 'm'"):
            await on.ask()
        assert (on.gateway.stats, on.gateway.replica_set.reports, on.gateway._profiles.by_key) == ({}, {}, {})


async def test_who_waits_for_the_first_load_of_what_is_undeployed_hears_of_it() -> None:
    async with stage(one()) as on:
        replica = on.replica(slow={"m"})
        waits = on.ask()
        await on.settle()
        on.follow()
        with pytest.raises(UnknownModel):
            await waits
        replica.finish("m")


async def test_an_old_generation_serves_until_the_new_one_does_and_is_asked_nothing_afterwards() -> None:
    async with stage(one(generation=1)) as on:
        old = on.replica("old", generation=1)
        await on.settle()
        on.follow(one(generation=1), one(generation=2))
        new = on.replica("new", generation=2, slow={"m"})
        assert await outcomes([on.ask() for _ in range(4)]) == {"ok": 4}
        assert old.log.count(("execute", "m")) == 4
        new.finish("m")
        await on.settle()
        on.follow(one(generation=2))
        assert old.leaving
        assert await outcomes([on.ask() for _ in range(4)]) == {"ok": 4}
        assert old.log.count(("execute", "m")) == 4
        old.die()  # its deployment is not known any more, and it must be forgotten nevertheless
        assert await outcomes([on.ask() for _ in range(4)]) == {"ok": 4}
        (found,) = on.gateway.statistics("ada", None, None)
        assert found.success.count == 12


async def test_a_generation_that_takes_other_tensors_takes_over_alone() -> None:
    ints = (TensorSpec("x", DataType.INT32, (-1,)),)
    async with stage(one(generation=1)) as on:
        old = on.replica("old", generation=1)
        await on.settle()
        assert await outcome(on.ask()) == "ok"
        on.follow(one(generation=1), one(model(inputs=ints), generation=2))
        assert await outcome(on.ask()) == "ok"
        on.replica("new", generation=2)
        await on.settle()
        with pytest.raises(BadRequest, match="the model takes INT32"):
            await on.ask()
        assert old.log.count(("execute", "m")) == 2


async def test_batches_are_no_larger_than_all_who_may_get_them_can_take() -> None:
    async with stage(one(generation=1)) as on:
        old = on.replica("old", generation=1, held=True)
        await on.settle()
        on.follow(one(generation=1), one(model(max_batch=8), generation=2))
        new = on.replica("new", generation=2, held=True)
        await on.settle()
        tasks = [on.ask() for _ in range(10)]
        await on.settle()
        assert [len(requests) for requests, _, _ in new.asked] == [1]
        on.follow(one(model(max_batch=8), generation=2))
        old.answer()
        new.answer()
        await on.settle()
        assert [len(requests) for requests, _, _ in new.asked] == [8]
        new.answer()
        assert await outcomes(tasks) == {"ok": 10}


async def test_a_new_weight_or_class_does_not_lose_what_waits() -> None:
    async with stage(one()) as on:
        replica = on.replica(held=True)
        tasks = [on.ask() for _ in range(5)]
        await on.settle()
        on.follow(one(slo_p99_s=9.0), tenants=(TenantEntry("ada", 7.0),))
        on.follow(one(replicas=3), tenants=(TenantEntry("ada", 0.5),))
        replica.held = False
        replica.answer()
        assert await outcomes(tasks) == {"ok": 5}


async def test_a_configuration_that_makes_no_sense_changes_nothing() -> None:
    async with stage(one()) as on:
        on.replica()
        with pytest.raises(Invalid, match="a weight must be positive"):
            on.follow(tenants=(TenantEntry("ada", -1.0),))
        assert await outcome(on.ask()) == "ok"


async def test_counts_of_a_service_go_on_when_a_version_goes() -> None:
    async with stage(one(model(version="1"))) as on:
        on.replica()
        assert await outcomes([on.ask() for _ in range(3)]) == {"ok": 3}
        on.follow(one(model(version="2"), generation=2))
        on.replica("b", generation=2)
        assert await outcome(on.ask()) == "ok"
        (status,) = report.services(on.gateway)
        assert status.requests == 4


async def test_a_model_that_moves_to_another_service_begins_anew() -> None:
    async with stage(one(), deployment(service("t", [model()]))) as on:
        replica = on.replica(held=True)
        tasks = [on.ask() for _ in range(2)]
        await on.settle()
        (_, second) = report.services(on.gateway)
        assert (second.id, second.reason.code, second.models) == ("t", "name-taken", ())
        on.follow(deployment(service("t", [model()])))
        with pytest.raises(UnknownModel, match="it was undeployed"):
            await tasks[1]
        replica.answer()
        assert await outcome(tasks[0]) == "ok"
        on.replica("b", of="t")
        assert await outcome(on.ask()) == "ok"
        (status,) = report.services(on.gateway)
        assert status.requests == 1


async def test_when_the_gateway_ends_whoever_waits_is_told() -> None:
    async with stage(one(model("m"), model("n"))) as on:
        replica = on.replica(held=True, slow={"n"})
        tasks = [on.ask() for _ in range(3)] + [on.ask("n")]
        await on.settle()
        await on.gateway.close()
        replica.answer()
        assert await outcomes(tasks) == {"ok": 1, "not-ready": 3}


# --- deadlines and rate limits ---


async def test_what_cannot_be_in_time_is_refused_early() -> None:
    async with stage(one(slo_p99_s=0.1)) as on:
        replica = on.replica(held=True)
        await on.settle()
        running = on.ask()
        await on.settle()
        late = on.ask(timeout_s=0.02)
        with pytest.raises(DeadlineMissed) as refused:
            await late
        assert refused.value.retry_after_s >= 0
        replica.answer()
        assert await outcome(running) == "ok"
        with pytest.raises(DeadlineMissed):
            await on.ask(timeout_s=-1.0)
        (status,) = report.services(on.gateway)
        assert (status.requests, status.rejected, status.failed) == (3, 2, 0)
        assert status.causes == {"late": 1, "deadline": 1}


async def test_compute_seconds_are_limited_and_given_back_if_they_were_not_spent() -> None:
    async with stage(one(rate_limit=0.01, burst_s=0.05)) as on:
        replica = on.replica(held=True)
        await on.settle()
        bucket = on.gateway._buckets["s"]
        now = asyncio.get_running_loop().time
        assert bucket.level_s(now()) == pytest.approx(0.05)
        tasks = [on.ask() for _ in range(60)]
        await on.settle()
        refused = [task for task in tasks if task.done()]
        assert 0 < len(refused) < 60
        with pytest.raises(RateLimited, match=r"used up its 0\.01 compute-seconds") as limited:
            await refused[0]
        taken = [task for task in tasks if not task.done()]
        assert await outcomes(refused) == {"rate-limited": 60 - len(taken)}
        assert bucket.level_s(now()) < limited.value.retry_after_s * 0.01 + 0.01
        for task in taken[1:]:
            task.cancel()  # none of them was executed
        await on.settle()
        replica.device_s = 0.03
        replica.answer()
        assert await outcome(taken[0]) == "ok"
        assert bucket.level_s(now()) == pytest.approx(0.05 - 0.03, abs=1e-3)
        on.follow(one(rate_limit=0.01, burst_s=0.05, replicas=2))
        assert on.gateway._buckets["s"] is bucket  # a change elsewhere fills nobody's bucket
        on.follow(one())
        replica.held = False
        assert await outcomes([on.ask() for _ in range(60)]) == {"ok": 60}


async def test_a_batch_that_failed_costs_no_more_than_expected() -> None:
    async with stage(one(rate_limit=0.001, burst_s=0.05)) as on:
        replica = on.replica(held=True)
        await on.settle()
        task = on.ask()
        await asyncio.sleep(10.0)
        replica.die()
        assert await outcome(task) == "replica-lost"
        now = asyncio.get_running_loop().time()
        assert 0.03 < on.gateway._buckets["s"].level_s(now) <= 0.05


# --- shadows ---


def shadowed(share: float = 1.0, **more: Any) -> Any:
    models = [model(version="1"), model(version="2", max_batch=4)]
    return one(*models, routes=(("m", Route((("1", 1.0),), shadow="2", shadow_share=share)),), **more)


async def test_a_shadow_sees_copies_and_is_counted_apart() -> None:
    async with stage(shadowed(0.5)) as on:
        on.replica()
        await on.settle()
        assert {(await on.ask()).version for _ in range(10)} == {"1"}
        await on.settle()
        (first, second) = on.gateway.statistics("ada", "m", None)
        assert (first.success.count, second.success.count) == (10, 5)
        (status,) = report.services(on.gateway)
        assert status.requests == 10


async def test_a_shadow_never_costs_its_original_anything() -> None:
    async with stage(shadowed(rate_limit=0.01, burst_s=0.5)) as on:
        replica = on.replica(held=True)
        await on.settle()
        tasks = [on.ask() for _ in range(20)]
        await on.settle()
        assert {version for _, version, _ in replica.asked} == {"1", "2"}
        while replica.asked:
            failing = replica.asked[0][1] == "2"
            replica.answer(*([ModelFailed("shadow")] * len(replica.asked[0][0]) if failing else []))
            await on.settle()
        assert await outcomes(tasks) == {"ok": 20}
        now = asyncio.get_running_loop().time()
        assert on.gateway._buckets["s"].level_s(now) == pytest.approx(0.5 - 20 * replica.device_s, abs=1e-3)
        assert on.gateway.dispatcher.queues["ada/m/2"].copies == 0


async def test_a_slow_shadow_holds_few_copies() -> None:
    async with stage(shadowed()) as on:
        replica = on.replica()
        await on.settle()
        executes = replica.execute

        def execute(model: str, version: str, requests: Any) -> Any:
            replica.held = version == "2"
            return executes(model, version, requests)

        replica.execute = execute  # type: ignore[method-assign]
        for _ in range(300):
            await on.ask()
        queue = on.gateway.dispatcher.queues["ada/m/2"]
        assert 0 < queue.copies <= 64
        replica.die()
        await asyncio.sleep(BACK_WITHIN_S + 1)
        assert queue.copies == 0


async def test_without_its_shadow_a_model_serves_as_ever() -> None:
    async with stage(shadowed()) as on:
        on.replica(broken=set())
        await on.gateway.replica_set.unload("s", "ada/m/2")
        assert await outcomes([on.ask() for _ in range(3)]) == {"ok": 3}


# --- defects of others ---


async def test_a_replica_handle_that_raises_strands_nobody() -> None:
    async with stage(one()) as on:
        replica = on.replica()
        await on.settle()

        def broken(*_: Any) -> Any:
            raise ValueError("a defect")

        works, replica.execute = replica.execute, broken  # type: ignore[method-assign,assignment]
        assert await outcomes([on.ask() for _ in range(5)]) == {"replica-lost": 5}
        replica.execute = works  # type: ignore[method-assign]
        assert await outcome(on.ask()) == "ok"


async def test_a_batch_that_is_given_up_strands_nobody() -> None:
    async with stage(one()) as on:
        replica = on.replica(held=True)
        tasks = [on.ask() for _ in range(2)]
        await on.settle()
        replica.asked.pop()[2].cancel()
        assert await outcome(tasks[0]) == "replica-lost"
        replica.answer()
        assert await outcome(tasks[1]) == "ok"


# --- everything at once ---


@pytest.mark.few(count=4)
@pytest.mark.parametrize("seed", range(12))
async def test_every_request_ends_whatever_happens(seed: int) -> None:
    rng = random.Random(seed)
    names = "abcd"
    budget = rng.choice([0, 0, 25])
    shadow = (("a", Route((("1", 0.7), ("2", 0.3)), shadow="3", shadow_share=0.4)),)
    models = [model(name, max_batch=rng.choice([1, 4])) for name in names]
    models += [model("a", "2", max_batch=4), model("a", "3")]

    def deployed(*generations: int) -> list[Any]:
        return [one(*models, generation=at, memory_bytes=budget, routes=shadow) for at in generations]

    async with stage(*deployed(1), scheduler=rng.choice(["deadline", "fair", "all-share"])) as on:
        alive: dict[str, Played] = {}
        generation, asked, cancelled = 1, [], 0
        for step in range(250):
            match rng.choice(
                ["ask"] * 8 + ["answer"] * 5 + ["join", "die", "follow", "cancel", "unload", "load", "hold", "pass"]
            ):
                case "ask":
                    patience = rng.choice([None, None, 0.05, 3.0])
                    asked.append(on.ask(rng.choice(names), timeout_s=patience))
                case "answer":
                    for replica in [one for one in alive.values() if one.asked]:
                        replica.answer(*rng.choice([(), (), (ModelFailed("no"),)]))
                case "join" if len(alive) < 3:
                    name = f"r{step}"
                    broken = set(rng.sample(names, rng.choice([0, 0, 1])))
                    alive[name] = on.replica(
                        name, generation=generation, held=rng.random() < 0.5, sizes=SIZES, broken=broken
                    )  # fmt: skip
                case "die" if alive:
                    alive.pop(rng.choice([*alive])).die()
                case "follow":
                    step_up = rng.random() < 0.3
                    generation += step_up
                    on.follow(*deployed(generation), *(deployed(generation - 1) if rng.random() < 0.5 else []))
                    alive = {name: one for name, one in alive.items() if not one.leaving or one.asked}
                case "cancel" if asked:
                    task = rng.choice(asked)
                    cancelled += task.cancel()
                case "unload":
                    await on.gateway.unload("ada", rng.choice(names))
                case "load":
                    with_error = await asyncio.gather(on.gateway.load("ada", rng.choice(names)), return_exceptions=True)
                    assert all(error is None or isinstance(error, ShoalError) for error in with_error)
                case "hold" if alive:
                    replica = rng.choice([*alive.values()])
                    replica.held = not replica.held
                case "pass":
                    await asyncio.sleep(rng.choice([0.001, 0.1, 6.0]))
            if rng.random() < 0.5:
                await on.settle()
        for replica in alive.values():
            replica.held = False
        for _ in range(200):
            for replica in alive.values():
                while replica.asked:
                    replica.answer()
            await asyncio.sleep(1.0)
        assert all(task.done() for task in asked)
        ends = Counter(
            "cancelled" if task.cancelled() else type(task.exception()).__name__ for task in asked
        )  # fmt: skip
        assert ends["NoneType"] > 0
        assert {*ends} <= {
            "NoneType", "cancelled", "ReplicaLost", "NotReady", "DeadlineMissed", "ModelFailed", "UnknownModel",
        }  # fmt: skip
        assert all(not queue.waiting for queue in on.gateway.dispatcher.queues.values())
        assert on.gateway._scheduler.waiting() == 0
        assert on.gateway._scheduler.free == 2
        assert all(queue.copies == 0 for queue in on.gateway.dispatcher.queues.values())
        assert Money(0) == sum((total.cost for total in on.gateway.meter.totals()), Money(0))


# --- hanging ---


async def test_a_model_that_hangs_is_answered_for_at_the_callers_deadline() -> None:
    async with stage(one(model(), slo_p99_s=0.3)) as on:
        replica = on.replica(held=True)
        await on.settle()
        loop = asyncio.get_running_loop()
        began = loop.time()
        own, objective = on.ask(timeout_s=0.5), on.ask()
        with pytest.raises(DeadlineMissed, match="the model was still at it"):
            await own
        assert 0.5 <= loop.time() - began <= 0.56
        with pytest.raises(DeadlineMissed):
            await objective
        assert loop.time() - began <= 0.67
        assert replica.asked  # and it is at it for nobody
        (found,) = on.gateway.statistics("ada", "m", "1")
        assert (found.fail.count, found.rejected.count) == (1, 1)  # one was being worked on
        replica.held = False
        replica.answer()
        assert await outcome(on.ask()) == "ok"


async def test_an_answer_after_the_callers_own_timeout_is_none() -> None:
    """The sweep for late calls comes by too seldom for a timeout of a microsecond."""
    async with stage(one(model())) as on:
        replica = on.replica(held=True)
        await on.settle()
        task = on.ask(timeout_s=1e-6)
        await on.settle()
        assert replica.asked
        await asyncio.sleep(0.001)
        replica.answer()
        with pytest.raises(DeadlineMissed):
            await task
        (found,) = on.gateway.statistics("ada", "m", "1")
        assert (found.success.count, found.fail.count + found.rejected.count) == (0, 1)
        replica.held = False
        assert await outcome(on.ask()) == "ok"


async def test_what_takes_longer_than_the_objective_is_answered_for_as_long_again() -> None:
    async with stage(one(model(), slo_p99_s=0.3)) as on:
        replica = on.replica(held=True)
        await on.settle()
        task = on.ask()
        await asyncio.sleep(0.5)
        replica.answer()
        assert await outcome(task) == "ok"


async def test_the_fleet_tells_replicas_what_their_service_allows() -> None:
    async with stage(one(model(), slo_p99_s=0.3, load_timeout_s=20.0)) as on:
        replica = on.replica()
        assert replica.expected == (0.3, 20.0)
        on.follow(one(model(), slo_p99_s=0.4, load_timeout_s=30.0))
        assert replica.expected == (0.4, 30.0)


async def test_it_is_said_that_the_last_replica_was_killed_because_it_hung() -> None:
    async with stage(one(model())) as on:
        replica = on.replica()
        await on.settle()
        replica.lost = Reason("stuck", "it did not answer within 6 s (one execution of m)")
        replica.models.clear()
        on.gateway.replica_set.lost(replica, replica.lost)
        await asyncio.sleep(6)
        assert on.state()[1] == "replica a was killed: it did not answer within 6 s (one execution of m)"
        again = on.replica()
        await on.settle()
        again.die()
        await asyncio.sleep(6)
        assert on.state()[1] == "no replica of its service has joined"
