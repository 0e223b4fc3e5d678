"""The reconciler's plan in a toy world where anything may happen to replicas, gateway and changes between two turns."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.contract.lifecycle import JobState
from shoal.core import Conflict
from shoal.serve.lifecycle import TRANSITIONS, ServiceState, check_step
from shoal.serve.live.plan import FAILURES, ObservedService, Plan, PlannedReplica, plan
from shoal.serve.live.records import ServiceRecord

Q, S, R = JobState.QUEUED, JobState.STARTING, JobState.RUNNING


def service(**fields: object) -> ServiceRecord:
    given = {
        "id": "s-1", "tenant": "ada", "name": "ocr", "state": ServiceState.DEPLOYING, "version": 1, "manifest": "{}",
        "replicas": 2, "created_at": 0.0, "updated_at": 0.0,
    }  # fmt: skip
    return ServiceRecord(**{**given, **fields})  # type: ignore[arg-type]


def replica(index: int, generation: int = 1, state: JobState = R, **fields: object) -> PlannedReplica:
    return PlannedReplica(f"s-1-{index}", f"ocr-{index}-{generation}", index, generation, state, **fields)  # type: ignore[arg-type]


def sees(*ready: PlannedReplica, **fields: object) -> ObservedService:
    return ObservedService(True, ready=frozenset(one.name for one in ready), **fields)  # type: ignore[arg-type]


def ids(found: Plan) -> list[str]:
    return [one.job_id for one in found.cancel]


# --- examples ---


def test_what_is_missing_is_started_and_nothing_twice() -> None:
    assert plan(service(replicas=3), [], sees()).create == 3
    assert plan(service(replicas=3), [replica(0, state=Q), replica(1)], sees()).create == 1
    assert plan(service(replicas=3), [replica(0), replica(1, leaving=True)], sees()).create == 2


def test_ready_is_when_every_wanted_replica_takes_requests() -> None:
    one, two = replica(0), replica(1)
    assert plan(service(), [one, two], sees(one)).state is ServiceState.DEPLOYING
    found = plan(service(), [one, two], sees(one, two))
    assert (found.state, found.reason, found.serves) == (ServiceState.READY, None, 1)
    was_ready = service(state=ServiceState.READY)
    assert plan(was_ready, [one, two], sees(two)).state is ServiceState.DEGRADED
    dark = plan(was_ready, [one, two], ObservedService(False, "it fell over"))
    assert dark.state is ServiceState.DEGRADED
    assert dark.reason is not None
    assert dark.reason.text == "0 of 2 replicas ready: it fell over"
    assert (
        plan(was_ready, [one, two], ObservedService(False, "it fell over", failing=True)).state is ServiceState.FAILED
    )


def test_scaling_down_takes_the_unready_first_then_the_newest() -> None:
    three = [replica(0), replica(1), replica(2)]
    assert ids(plan(service(replicas=2), three, sees(*three))) == ["s-1-2"]
    assert ids(plan(service(replicas=2), three, sees(three[1], three[2]))) == ["s-1-0"]
    assert ids(plan(service(replicas=0), three, sees(*three))) == ["s-1-2", "s-1-1", "s-1-0"]
    empty = plan(service(replicas=0), [], ObservedService(False))
    assert (empty.state, empty.create) == (ServiceState.READY, 0)


def test_an_update_goes_one_by_one_and_only_behind_ready_replicas() -> None:
    old = [replica(0), replica(1)]
    updated = service(generation=2, serves=1, launched=2)
    first = plan(updated, old, sees(*old))
    assert (first.create, first.cancel) == (1, ())
    new = replica(2, 2, S)
    second = plan(updated, [*old, new], sees(*old))
    assert (second.create, second.cancel, second.serves) == (0, (), 1)
    ready = plan(updated, [*old, new], sees(*old, new))
    assert (ready.create, ids(ready), ready.serves) == (1, ["s-1-0"], 2)


def test_an_update_in_place_ends_an_old_replica_first() -> None:
    old = replica(0)
    found = plan(service(replicas=1, generation=2, serves=1), [old], sees(old), surge=False)
    assert (found.create, ids(found)) == (1, ["s-1-0"])


def test_a_generation_that_never_served_leaves_at_once() -> None:
    bad = replica(0, 1)
    found = plan(service(replicas=1, generation=2), [bad], sees())
    assert (found.create, ids(found)) == (1, ["s-1-0"])


def test_older_replicas_stay_while_nobody_can_say_who_is_ready() -> None:
    old, new = replica(0), replica(1, 2)
    rolling = service(replicas=1, generation=2, serves=1)
    assert plan(rolling, [old, new], ObservedService(False, "restarting")).cancel == ()
    assert plan(rolling, [old, new], sees()).cancel == ()


def test_failure_is_told_apart_from_patience() -> None:
    waits = replica(0, state=Q, why="waits: needs 2 a100, 1 free")
    found = plan(service(replicas=1), [waits], sees())
    assert found.state is ServiceState.DEPLOYING
    assert found.reason is not None
    assert found.reason.code == "waiting"
    assert "needs 2 a100" in found.reason.text
    falls = replica(0, state=Q, failures=FAILURES, last="the process left with exit code 1")
    found = plan(service(replicas=1), [falls], sees())
    assert found.state is ServiceState.FAILED
    assert found.reason is not None
    assert "ended 3 times: the process left with exit code 1" in found.reason.text
    broken = replica(0)
    found = plan(service(replicas=1), [broken], sees(broken={broken.name: "the file is damaged"}))
    assert (found.state, found.reason and found.reason.code) == (ServiceState.FAILED, "model")


def test_a_failed_service_leaves_its_room_until_it_is_deployed_again() -> None:
    broken, waits = replica(0), replica(1, state=Q, why="waits: needs 2 a100, 1 free")
    seen = sees(broken={broken.name: "the file is damaged"})
    found = plan(service(replicas=2), [broken, waits], seen)
    assert (found.state, found.cancel) == (ServiceState.FAILED, ())  # first it is written down
    failed = service(replicas=2, state=ServiceState.FAILED, reason=found.reason)
    then = plan(failed, [broken, waits], seen)
    assert [(one.job_id, one.cause) for one in then.cancel] == [(broken.job_id, "it failed: the file is damaged")]
    assert (then.create, then.state) == (0, ServiceState.FAILED)
    over = plan(failed, [], sees())
    assert (over.create, over.cancel, over.state) == (0, (), ServiceState.FAILED)
    assert over.reason == found.reason
    assert plan(replace(failed, state=ServiceState.DEPLOYING, reason=None), [], sees()).create == 2


def test_what_fails_to_stay_up_is_tried_on() -> None:
    falls = replica(0, state=Q, failures=FAILURES, last="the process left with exit code 1")
    reason = plan(service(replicas=1), [falls], sees()).reason
    failed = service(replicas=1, state=ServiceState.FAILED, reason=reason)
    assert plan(failed, [falls], sees()).cancel == ()
    assert plan(failed, [], sees()).create == 1


def test_a_bad_update_degrades_a_service_that_goes_on() -> None:
    old, bad = replica(0), replica(1, 2)
    found = plan(service(replicas=1, generation=2, serves=1), [old, bad], sees(old, broken={bad.name: "no such input"}))
    assert (found.state, found.cancel) == (ServiceState.DEGRADED, ())
    assert found.reason is not None
    assert "generation 1 goes on serving" in found.reason.text


def test_stopping_ends_everything_and_stopped_is_when_nothing_is_left() -> None:
    stopping = service(state=ServiceState.STOPPING)
    found = plan(stopping, [replica(0), replica(1, leaving=True)], ObservedService(False))
    assert (ids(found), found.state, found.create) == (["s-1-0"], ServiceState.STOPPING, 0)
    assert plan(stopping, [], ObservedService(False)).state is ServiceState.STOPPED


def test_every_state_is_reachable_and_only_stopped_is_final() -> None:
    seen, frontier = {ServiceState.DEPLOYING}, [ServiceState.DEPLOYING]
    while frontier:
        for following in TRANSITIONS[frontier.pop()] - seen:
            seen.add(following)
            frontier.append(following)
    assert seen == set(ServiceState)
    assert {state for state in ServiceState if state.terminal} == {
        state for state, following in TRANSITIONS.items() if not following
    }
    with pytest.raises(Conflict, match="a service cannot go from STOPPED to READY"):
        check_step(ServiceState.STOPPED, ServiceState.READY)


# --- properties ---


@dataclass
class Toy:
    """A service and its replicas, without a control plane around them."""

    draw: random.Random
    service: ServiceRecord
    surge: bool
    replicas: dict[str, PlannedReplica] = field(default_factory=dict)
    ready: set[str] = field(default_factory=set)
    gateway: bool = True
    launched: list[str] = field(default_factory=list)

    def turn(self) -> None:
        """One turn of the reconciler, with what must hold of each."""
        observed = ObservedService(self.gateway, "dead", ready=frozenset(self.ready) if self.gateway else frozenset())
        found = plan(self.service, list(self.replicas.values()), observed, surge=self.surge)
        wanted = self.service.replicas
        stays = [one for one in self.replicas.values() if not one.leaving and one.job_id not in ids(found)]
        if found.create:
            assert len(stays) + found.create <= wanted + self.surge
        if self.service.state is not ServiceState.STOPPING and self.gateway:
            before = sum(not one.leaving and one.name in self.ready for one in self.replicas.values())
            after = sum(one.name in self.ready for one in stays)
            assert after >= min(before, wanted - (not self.surge))
        assert all(not self.replicas[job_id].leaving for job_id in ids(found))
        assert len(set(ids(found))) == len(found.cancel)
        if found.state is not self.service.state:
            check_step(self.service.state, found.state)
        assert found.serves >= self.service.serves
        first = self.service.launched
        for index in range(first, first + found.create):
            made = replica(index, self.service.generation, Q)
            assert made.job_id not in self.launched
            self.launched.append(made.job_id)
            self.replicas[made.job_id] = made
        for job_id in ids(found):
            self.replicas[job_id] = replace(self.replicas[job_id], leaving=True)
        self.service = replace(self.service, state=found.state, serves=found.serves, launched=first + found.create)

    def happen(self) -> None:
        """Anything at all, to anybody."""
        what = self.draw.choice(
            ("step", "step", "step", "crash", "end", "gateway", "scale", "update", "stop", "forget")
        )
        names = sorted(self.replicas)
        if what == "gateway":
            self.gateway = not self.gateway
        elif self.service.state in (ServiceState.STOPPING, ServiceState.STOPPED):
            self.step(self.draw.choice(names)) if names else None
        elif what == "scale":
            self.service = replace(self.service, replicas=self.draw.randrange(5))
        elif what == "update":
            state = ServiceState.DEPLOYING
            self.service = replace(self.service, generation=self.service.generation + 1, state=state)
        elif what == "stop" and self.draw.random() < 0.05:
            self.service = replace(self.service, state=ServiceState.STOPPING)
        elif what == "forget":
            self.ready.clear()  # the gateway was started anew
        elif names and what == "crash":
            self.crash(self.draw.choice(names))
        elif names:
            self.step(self.draw.choice(names))

    def step(self, job_id: str) -> None:
        one = self.replicas[job_id]
        if one.leaving:
            self.ready.discard(one.name)
            del self.replicas[job_id]
        elif one.state is Q:
            self.replicas[job_id] = replace(one, state=S)
        elif one.state is S:
            self.replicas[job_id] = replace(one, state=R)
        else:
            self.ready.add(one.name)

    def crash(self, job_id: str) -> None:
        one = self.replicas[job_id]
        self.ready.discard(one.name)
        if one.leaving:
            del self.replicas[job_id]
        else:
            self.replicas[job_id] = replace(one, state=Q, failures=one.failures + 1)


@given(seed=st.integers(0, 2**32), surge=st.booleans(), wanted=st.integers(0, 4), events=st.integers(0, 60))
@settings(max_examples=300, deadline=None)
def test_it_comes_to_what_is_wanted_whatever_happened_before(seed: int, surge: bool, wanted: int, events: int) -> None:
    toy = Toy(random.Random(seed), service(replicas=wanted), surge)
    for _ in range(events):
        toy.happen()
        if toy.service.state is not ServiceState.STOPPED:
            toy.turn()
    toy.gateway = True
    for _ in range(60):
        if toy.service.state is ServiceState.STOPPED:
            break
        toy.turn()
        for job_id in sorted(toy.replicas):
            toy.step(job_id)
    if toy.service.state is ServiceState.STOPPED:
        assert toy.replicas == {}
        return
    assert toy.service.state is ServiceState.READY
    assert [one.generation for one in toy.replicas.values()] == [toy.service.generation] * toy.service.replicas
    assert {one.name for one in toy.replicas.values()} <= toy.ready
    before = dict(toy.replicas)
    toy.turn()
    assert toy.replicas == before
