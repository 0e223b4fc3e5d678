"""Sequences: every row of the table of their states, over replicas that the test plays, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shoal.core import ShoalError
from shoal.inference.errors import BadRequest, ModelFailed
from shoal.inference.types import InferResponse, ModelSpec, SequenceStep, StatePair
from shoal.serve.contract import TenantEntry
from shoal.serve.errors import DeadlineMissed, SequenceLost, TooManySequences
from shoal.serve.types import Route
from tests.serve.gateway_kit import Stage, deployment, service, stage
from tests.serve.models import floats

pytestmark = pytest.mark.virtual_time


def model(version: str = "1", **more: Any) -> ModelSpec:
    return ModelSpec("m", "/m", version=version, state=(StatePair("h", "hn"),), **more)


def one(*models: ModelSpec, generation: int = 1, **more: Any) -> Any:
    return deployment(service("s", models or [model()], **more), generation)


def step(on: Stage, id_: int | str = 7, *, start: bool = False, end: bool = False, **more: Any) -> asyncio.Task[Any]:
    return on.ask(sequence=SequenceStep(id_, start, end), **more)


async def refused(task: asyncio.Task[InferResponse], kind: type[ShoalError], words: str | None = None) -> Any:
    with pytest.raises(kind, match=words) as caught:
        await task
    return caught.value


def lives(on: Stage) -> int:
    return len(on.gateway.stepper.sequences)


def counts(on: Stage, version: str = "1") -> dict[str, int]:
    return dict(on.gateway.stepper.sequences.counts[f"ada/m/{version}"])


async def test_the_first_request_must_start_its_sequence() -> None:
    async with stage(one()) as on:
        on.replica()
        await refused(step(on), BadRequest, r"there is no sequence 7 of this model.*send sequence_start")
        await refused(on.ask(), BadRequest, "belongs to no sequence")
        await step(on, start=True)
        await step(on)
        await step(on, end=True)
        await refused(step(on), BadRequest, "there is no sequence 7")
        assert lives(on) == 0


async def test_all_steps_go_to_the_replica_that_has_the_state_and_say_which_they_are() -> None:
    async with stage(one()) as on:
        a, b = on.replica("a"), on.replica("b")
        for id_ in (7, "seven"):
            await step(on, id_, start=True)
        for _ in range(3):
            await step(on, 7)
        await step(on, "seven", end=True)
        assert a.steps == [[(1, 0)], [(1, 1)], [(1, 2)], [(1, 3)]]
        assert b.steps == [[(2, 0)], [(2, 1)]]
        assert (a.ended, b.ended, a.held_sequences, b.held_sequences) == ([], [2], 1, 0)


async def test_a_model_without_state_takes_no_sequences() -> None:
    async with stage(deployment(service("s", [ModelSpec("m", "/m")]))) as on:
        on.replica()
        await refused(step(on, start=True), BadRequest, "keeps no state.*name its state pairs")
        await on.ask()
        assert lives(on) == 0


async def test_a_dead_replica_loses_its_sequences_until_they_are_begun_again() -> None:
    async with stage(one()) as on:
        a = on.replica("a")
        await step(on, start=True)
        await step(on)
        a.held = True
        running = step(on)
        await on.settle()
        a.die()
        lost = await refused(running, SequenceLost, "sequence 7 is lost: .*; 2 of its steps were answered")
        assert lost.answered == 2
        on.replica("b")
        for _ in range(2):
            assert (await refused(step(on), SequenceLost)).answered == 2
        await step(on, start=True)
        await step(on)
        assert counts(on) == {"started": 2, "lost": 1}


async def test_an_idle_sequence_is_dropped_counted_and_told_of() -> None:
    async with stage(one(model(sequence_idle_s=60.0))) as on:
        a = on.replica()
        await step(on, start=True)
        await asyncio.sleep(50)
        await step(on)
        await asyncio.sleep(59)
        assert lives(on) == 1
        await asyncio.sleep(3)
        assert (lives(on), a.ended) == (0, [1])
        await refused(step(on), SequenceLost, "it was idle for 60 s; 2 of its steps")
        assert counts(on) == {"started": 1, "idle": 1}


async def test_a_sequence_whose_step_takes_long_is_not_idle() -> None:
    async with stage(one(model(sequence_idle_s=2.0))) as on:
        a = on.replica(held=True)
        running = step(on, start=True)
        await asyncio.sleep(10)
        a.answer()
        await running
        assert lives(on) == 1


async def test_too_many_are_refused_at_their_start_and_the_others_go_on() -> None:
    async with stage(one(model(max_sequences=2, sequence_idle_s=30.0))) as on:
        on.replica("a")
        on.replica("b")
        for id_ in range(1, 5):
            await step(on, id_, start=True)
        await asyncio.sleep(10)
        full = await refused(step(on, 5, start=True), TooManySequences, "a replica keeps 2")
        assert full.retry_after_s == pytest.approx(20.0)
        await refused(step(on, 5), BadRequest, "there is no sequence 5")
        await step(on, 1, end=True)
        await step(on, 5, start=True)


async def test_the_memory_of_the_replica_limits_them_too() -> None:
    async with stage(one(memory_bytes=100)) as on:
        on.replica("a", sizes={"m": 80})
        await on.settle()
        await step(on, 1, start=True)
        await step(on, 2, start=True)
        await refused(step(on, 3, start=True), TooManySequences, "no replica has memory")
        await step(on, 1)


async def test_the_same_id_of_two_tenants_is_two_sequences() -> None:
    other = deployment(service("o", [model()], tenant="bob"))
    async with stage(one(), other, tenants=(TenantEntry("ada"), TenantEntry("bob"))) as on:
        a, b = on.replica("a"), on.replica("b", of="o")
        await step(on, start=True)
        await refused(step(on, tenant="bob"), BadRequest, "there is no sequence 7")
        await step(on, start=True, tenant="bob")
        await step(on, tenant="bob")
        await step(on, end=True)
        assert (a.steps, b.steps) == ([[(1, 0)], [(1, 1)]], [[(2, 0)], [(2, 1)]])
        await step(on, tenant="bob")


async def test_requests_of_one_sequence_run_in_the_order_in_which_they_came() -> None:
    async with stage(one(model(max_batch=8))) as on:
        a = on.replica(held=True)
        tasks = [step(on, start=True), *(step(on, id=str(number)) for number in range(4))]
        twice = step(on, start=True)
        for number in range(5):
            await on.settle()
            ((requests, _, _),) = a.asked
            assert [request.id for request in requests] == [str(number - 1) if number else ""]
            a.answer()
        await asyncio.gather(*tasks)
        assert a.steps == [[(1, number)] for number in range(5)]
        await refused(twice, BadRequest, "sequence 7 of this model has begun already")


async def test_the_next_sequence_of_an_id_may_begin_while_the_last_step_of_the_one_before_is_on_its_way() -> None:
    async with stage(one()) as on:
        a = on.replica()
        await step(on, start=True)
        a.held = True
        last, first = step(on, end=True), step(on, start=True)
        await on.settle()
        a.answer(ModelFailed("no"))
        await refused(last, ModelFailed, "^no$")  # its caller has begun anew: it is not kept for another try
        a.held = False
        a.answer()
        await first
        await step(on)
        assert (a.steps[1:], a.ended, lives(on)) == ([[(1, 1)], [(2, 0)], [(2, 1)]], [1], 1)


async def test_after_a_last_step_that_failed_the_sequence_is_still_there() -> None:
    async with stage(one()) as on:
        a = on.replica()
        await step(on, start=True)
        a.held = True
        last = step(on, end=True)
        await on.settle()
        a.answer(ModelFailed("no"))
        await refused(last, ModelFailed)
        a.held = False
        await refused(step(on, start=True), BadRequest, "has begun already")
        await step(on, end=True)
        assert (a.steps[1:], lives(on)) == ([[(1, 1)], [(1, 1)]], 0)


async def test_steps_of_different_sequences_are_executed_together() -> None:
    async with stage(one(model(max_batch=8))) as on:
        a = on.replica()
        for id_ in range(1, 5):
            await step(on, id_, start=True)
        a.held = True
        first = step(on, 1)
        await on.settle()
        tasks = [step(on, id_) for id_ in (2, 3, 4, 2)]
        await on.settle()
        a.answer()
        await on.settle()
        assert a.steps[-1] == [(2, 1), (3, 1), (4, 1)]
        a.answer()
        await on.settle()
        a.answer()
        await asyncio.gather(first, *tasks)
        assert a.steps[-1] == [(2, 2)]


async def test_sequences_of_two_replicas_are_never_in_one_batch() -> None:
    async with stage(one(model(max_batch=8))) as on:
        a, b = on.replica("a"), on.replica("b")
        for id_ in range(1, 5):
            await step(on, id_, start=True)
        await asyncio.gather(*(step(on, id_) for id_ in (1, 2, 3, 4)))
        assert {number for batch in a.steps for number, _ in batch} == {1, 3}
        assert {number for batch in b.steps for number, _ in batch} == {2, 4}


async def test_after_a_step_that_failed_the_sequence_is_as_before_it() -> None:
    async with stage(one()) as on:
        a = on.replica()
        await step(on, start=True)
        a.held = True
        failing = step(on)
        await on.settle()
        a.answer(ModelFailed("no"))
        await refused(failing, ModelFailed, "no; the sequence is as before this step, 1 were answered")
        a.held = False
        await step(on)
        assert a.steps == [[(1, 0)], [(1, 1)], [(1, 1)]]


async def test_a_sequence_whose_first_step_failed_never_began() -> None:
    async with stage(one()) as on:
        a = on.replica(held=True)
        failing = step(on, start=True)
        behind = step(on)
        await on.settle()
        a.answer(ModelFailed("no"))
        await refused(failing, ModelFailed, "^no$")
        await refused(behind, BadRequest, "there is no sequence 7")
        a.held = False
        await step(on, start=True)
        assert (a.steps, a.ended) == ([[(1, 0)], [(2, 0)]], [1])


async def test_a_bad_request_is_no_step() -> None:
    async with stage(one(model(max_batch=4))) as on:
        a = on.replica()
        await step(on, start=True)
        several = floats("x", [[1.0], [2.0]], tenant="ada", sequence=SequenceStep(7))
        await refused(asyncio.ensure_future(on.gateway.infer(several)), BadRequest, "is one sample, and not 2")
        await step(on)
        assert a.steps == [[(1, 0)], [(1, 1)]]


async def test_a_deadline_that_passes_before_the_step_ran_changes_nothing() -> None:
    async with stage(one()) as on:
        a = on.replica()
        await step(on, start=True)
        a.held = True
        slow = step(on)
        late = step(on, timeout_s=1.0)
        await refused(late, DeadlineMissed, "the steps before it were not done before its deadline")
        a.answer()
        await slow
        a.held = False
        await step(on)
        assert a.steps == [[(1, 0)], [(1, 1)], [(1, 2)]]


@pytest.mark.parametrize("how", ["deadline", "gone"])
async def test_a_step_that_nobody_waits_for_any_more_is_taken_back(how: str) -> None:
    async with stage(one()) as on:
        a = on.replica()
        await step(on, start=True)
        a.held = True
        running = step(on, timeout_s=1.0 if how == "deadline" else None)
        await on.settle()
        if how == "deadline":
            await refused(running, DeadlineMissed, "the sequence is as before this step, 1 were answered")
        else:
            running.cancel()
            await on.settle()
        again = step(on)
        await on.settle()
        a.answer()
        await on.settle()
        a.answer()
        await again
        assert a.steps == [[(1, 0)], [(1, 1)], [(1, 1)]]


async def test_a_planned_end_drains_no_new_sequences_and_live_ones_keep_their_replica() -> None:
    async with stage(one()) as on:
        a = on.replica("a")
        await step(on, 1, start=True)
        a.leave()
        await step(on, 1)  # no other replica is there
        b = on.replica("b")
        await step(on, 2, start=True)
        await step(on, 1)
        assert (a.steps, b.steps) == ([[(1, 0)], [(1, 1)], [(1, 2)]], [[(2, 0)]])
        await step(on, 1, end=True)
        assert a.held_sequences == 0
        await step(on, 2)
        a.die()
        await step(on, 2)


async def test_after_its_grace_a_leaving_replica_takes_its_sequences_with_it() -> None:
    async with stage(one()) as on:
        a = on.replica("a")
        await step(on, start=True)
        a.leave()
        on.replica("b")
        a.die()
        await refused(step(on), SequenceLost, "the replica that kept it is gone")


async def test_what_is_loaded_anew_or_undeployed_has_lost_its_state() -> None:
    async with stage(one()) as on:
        on.replica()
        await step(on, 1, start=True)
        await on.gateway.load("ada", "m")
        await refused(step(on, 1), SequenceLost, "loaded anew")
        await step(on, 1, start=True)
        await on.gateway.unload("ada", "m")
        await refused(step(on, 1), SequenceLost, "unloaded")
        await on.gateway.load("ada", "m")
        await step(on, 1, start=True)
        on.follow()
        on.follow(one(generation=2))
        on.replica("b", generation=2)
        await refused(step(on, 1), SequenceLost, "undeployed")


async def test_a_sequence_stays_with_the_version_it_began_with() -> None:
    first = Route((("1", 1.0), ("2", 0.0)))
    models = [model("1"), model("2")]
    async with stage(one(*models, routes=(("m", first),))) as on:
        a = on.replica()
        await step(on, 1, start=True)
        on.follow(one(*models, routes=(("m", Route((("1", 0.0), ("2", 1.0)))),)))
        assert (await step(on, 1)).version == "1"
        assert (await step(on, 2, start=True)).version == "2"
        assert (await step(on, 1, end=True)).version == "1"
        assert a.steps == [[(1, 0)], [(1, 1)], [(2, 0)], [(1, 2)]]


async def test_a_shadow_keeps_a_state_of_its_own() -> None:
    route = Route((("1", 1.0),), shadow="2", shadow_share=1.0)
    async with stage(one(model("1"), model("2"), routes=(("m", route),))) as on:
        a = on.replica()
        await step(on, start=True)
        await step(on)
        await step(on, end=True)
        await on.settle()
        assert [entry for entry in a.steps if entry[0][0] == 1] == [[(1, 0)], [(1, 1)], [(1, 2)]]
        assert [entry for entry in a.steps if entry[0][0] == 2] == [[(2, 0)], [(2, 1)], [(2, 2)]]
        assert (sorted(a.ended), a.held_sequences) == ([1, 2], 0)
        assert counts(on, "2") == {"started": 1, "ended": 1}


async def test_a_shadow_that_fails_ends_and_its_original_goes_on() -> None:
    route = Route((("1", 1.0),), shadow="2", shadow_share=1.0)
    async with stage(one(model("1"), model("2"), routes=(("m", route),))) as on:
        a = on.replica()
        await step(on, start=True)
        await on.settle()
        a.held = True
        running = step(on)
        await on.settle()
        for _ in (1, 2):
            _, version, _ = a.asked[0]
            a.answer(*([ModelFailed("no")] if version == "2" else []))
            await on.settle()
        await running
        a.held = False
        await step(on)
        await on.settle()
        assert counts(on, "2") == {"started": 1, "lost": 1}
        assert len([entry for entry in a.steps if entry[0][0] == 2]) == 2


async def test_a_sequence_may_begin_while_its_model_is_still_loading() -> None:
    async with stage(one()) as on:
        a = on.replica(slow={"m"})
        first, second = step(on, start=True), step(on)
        await on.settle()
        a.finish("m")
        await asyncio.gather(first, second)
        assert a.steps == [[(1, 0)], [(1, 1)]]
