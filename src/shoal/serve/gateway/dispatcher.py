"""Requests in, answers out: asks the scheduler what to execute next, and has replicas do it.

It decides nothing. Every request that is taken gets exactly one end: an answer, or a typed error.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from operator import attrgetter
from typing import TYPE_CHECKING

from shoal.core import Overloaded, ShoalError
from shoal.inference.types import InferRequest, InferResponse
from shoal.serve.errors import DeadlineMissed, ReplicaLost
from shoal.serve.gateway.replicas.execution import ExecutionResult
from shoal.serve.gateway.replicas.replica_handle import Replica
from shoal.serve.gateway.stats import Stats
from shoal.serve.replica.messages import Step
from shoal.serve.scheduling.base import Scheduler
from shoal.serve.scheduling.interface import Batch, Item, QueueSpec, Rejection

if TYPE_CHECKING:
    from shoal.serve.gateway.core import Gateway

log = logging.getLogger("shoal.serve")

_SWEEP_S = 0.05
"""How often it is looked for requests that wait past their deadline: schedulers do so when a slot is free at last."""


@dataclass(slots=True, eq=False)
class DispatchQueue:
    """What the dispatcher knows of a scheduler's queue. `waiting` are its calls by their number, `running` those
    that are being executed, `copies` how many of a shadow's are on their way. `draining` replicas are about to end, and
    execute only steps of sequences that they hold."""

    spec: QueueSpec
    service_id: str
    model: str
    version: str
    stats: Stats
    executors: Sequence[Replica] = ()
    draining: Sequence[Replica] = ()
    waiting: dict[int, Call] = field(default_factory=dict)
    running: dict[int, Call] = field(default_factory=dict)
    copies: int = 0


@dataclass(frozen=True, slots=True)
class Pinned:
    """Which replica has to execute a step of a sequence, and which step it is."""

    replica: Replica
    step: Step


@dataclass(slots=True, eq=False)
class Call:
    """An accepted request. It is a shadow's `copy` where no client waits for its response; `future` may then be None.
    `charged_s` is the advance charge, in slot-seconds. After `given_up_at` no client waits for it, even while it is
    executed. `leave` tells the replica so, where its model works in steps."""

    item: Item
    queue: DispatchQueue
    request: InferRequest
    future: asyncio.Future[InferResponse] | None
    charged_s: float = 0.0
    started: float = 0.0
    given_up_at: float = inf
    copy: bool = False
    pinned: Pinned | None = None
    leave: Callable[[], None] | None = None


class Dispatcher:
    """One event loop only. `gateway` is told what calls cost in the end."""

    def __init__(self, scheduler: Scheduler, gateway: Gateway, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._scheduler = scheduler
        self._gateway = gateway
        self.clock = clock
        self.queues: dict[str, DispatchQueue] = {}
        self._next = 0
        self._timer: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None

    # --- queues

    def open_queue(self, queue: DispatchQueue) -> None:
        """Add an empty queue, which no executor serves yet."""
        self.queues[queue.spec.key] = queue
        self._scheduler.add_queue(queue.spec)

    def change_queue(
        self, key: str, spec: QueueSpec, executors: Sequence[Replica], draining: Sequence[Replica] = ()
    ) -> None:
        """Its settings, and who can execute it, from now on. What waits in it stays."""
        queue = self.queues[key]
        queue.executors, queue.draining = executors, draining
        if replace(spec, executors=0) != queue.spec:
            queue.spec = replace(spec, executors=0)
            self._scheduler.add_queue(queue.spec)
        self._scheduler.resize(key, len(executors) + len(draining))
        self._pump(self.clock())

    def close_queue(self, key: str, why: ShoalError) -> None:
        """What waits in it fails with `why`; what is being executed is answered."""
        self._scheduler.remove_queue(key)
        self._abandon(self.queues.pop(key), why)

    def give_up(self, key: str, why: ShoalError) -> None:
        """What waits in it fails with `why`; the queue stays."""
        queue = self.queues[key]
        for call in queue.waiting.values():
            self._scheduler.withdraw(call.item)
        self._abandon(queue, why)

    def close(self, why: ShoalError) -> None:
        """Everything that waits fails; what is being executed is answered."""
        for key in self.queues:
            self.give_up(key, why)
        self._wake(None, 0.0)
        if self._sweep is not None:
            self._sweep.cancel()

    def _abandon(self, queue: DispatchQueue, why: ShoalError) -> None:
        calls, queue.waiting = queue.waiting, {}
        for call in calls.values():
            self._gateway.spared(call)
            self._fail(call, why)

    # --- requests

    def submit(
        self,
        queue: DispatchQueue,
        request: InferRequest,
        now: float,
        *,
        deadline: float,
        samples: int,
        batch_key: object,
        size: float = 0.0,
        charged_s: float = 0.0,
        given_up_at: float = inf,
        shadow: bool = False,
        pinned: Pinned | None = None,
    ) -> Call:
        """Take a request. Raises Overloaded if the scheduler refuses it at once."""
        self._next += 1
        item = Item(self._next, queue.spec.key, now, deadline, samples, batch_key, size)
        refused = self._scheduler.offer(item, now)
        if refused is not None:
            queue.stats.refused(0.0, refused.reason.code)
            raise _refusal(refused)
        loop, future = asyncio.get_running_loop(), None
        if shadow:
            queue.copies += 1
        if not shadow or pinned is not None:
            future = loop.create_future()
        if self._sweep is None and deadline < inf:
            self._sweep = loop.call_later(_SWEEP_S, self._end_late)
        call = queue.waiting[item.number] = Call(
            item, queue, request, future, charged_s, given_up_at=given_up_at, copy=shadow, pinned=pinned
        )
        self._pump(now)
        return call

    def withdraw(self, call: Call) -> None:
        """Drop the call: its caller is gone. An execution that has begun goes on, and its result is dropped; only a
        model that works in steps drops it."""
        if self._scheduler.withdraw(call.item):
            del call.queue.waiting[call.item.number]
            self._gateway.spared(call)
            self._pump(self.clock())
        elif call.leave is not None:
            call.leave()

    # --- inside

    def _pump(self, now: float) -> None:
        decision = self._scheduler.decide(now)
        for rejection in decision.rejected:
            call = self.queues[rejection.item.queue].waiting.pop(rejection.item.number)
            call.queue.stats.refused(now - call.item.arrived, rejection.reason.code)
            self._gateway.spared(call)
            self._fail(call, _refusal(rejection))
        for batch in decision.batches:
            self._start(batch, now)
        if self._timer is not None or decision.wake_at is not None:
            self._wake(decision.wake_at, now)

    def _wake(self, at: float | None, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if at is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, at - now), self._awake)

    def _awake(self) -> None:
        self._timer = None
        self._pump(self.clock())

    def _end_late(self) -> None:
        """End calls past their deadline, executed or not: an executor may hang."""
        self._sweep, now = None, self.clock()
        mortal = False
        for queue in self.queues.values():
            for call in [*queue.waiting.values()] if queue.waiting else ():
                if call.item.deadline > now:
                    mortal = mortal or call.item.deadline < inf
                elif self._scheduler.withdraw(call.item):
                    del queue.waiting[call.item.number]
                    queue.stats.refused(now - call.item.arrived, "late")
                    self._gateway.spared(call)
                    self._fail(call, DeadlineMissed("no replica was free before its deadline", where=queue.spec.key))
            for call in [*queue.running.values()] if queue.running else ():
                if call.given_up_at > now:
                    mortal = mortal or call.given_up_at < inf
                else:
                    del queue.running[call.item.number]
                    self._end_overdue(call, now)
        if mortal:
            self._sweep = asyncio.get_running_loop().call_later(_SWEEP_S, self._end_late)
        self._pump(now)

    def _end_overdue(self, call: Call, now: float) -> None:
        waited_s = now - call.item.arrived
        if call.leave is not None:
            call.leave()
        call.queue.stats.failed(waited_s, time.time())
        self._fail(call, DeadlineMissed(
            f"the model was still at it {waited_s:.3g} s after it was asked",
            where=call.queue.spec.key, hint="give a longer timeout, or see whether the model hangs",
        ))  # fmt: skip

    def _start(self, batch: Batch, now: float) -> None:
        queue = self.queues[batch.queue]
        waiting = queue.waiting
        calls = [waiting.pop(item.number) for item in batch.items]
        for call in calls:
            call.started = now
            queue.running[call.item.number] = call
        requests = [call.request for call in calls]
        pinned = calls[0].pinned
        executors = queue.executors or queue.draining
        if pinned is not None:
            executor = pinned.replica
        else:
            executor = executors[0] if len(executors) == 1 else min(executors, key=attrgetter("in_flight"))
        try:
            if pinned is None:
                done = executor.execute(queue.model, queue.version, requests)
            else:
                steps = [call.pinned.step for call in calls if call.pinned is not None]
                done = executor.execute(queue.model, queue.version, requests, steps)
        except Exception as error:  # a defect, after which no client may be left waiting
            log.exception("a batch could not be handed to replica %s", executor.name)
            done = asyncio.get_running_loop().create_future()
            done.set_exception(ReplicaLost(f"the batch could not be handed over: {error}", where=executor.name))
        if queue.spec.rows > 1:
            for call in calls:
                call.leave = partial(executor.leave, done)
        done.add_done_callback(partial(self._ended, batch, calls, executor))

    def _ended(
        self, batch: Batch, calls: Sequence[Call], executor: Replica, done: asyncio.Future[ExecutionResult]
    ) -> None:
        """Sends the responses first, so that a later error leaves no client waiting."""
        now, queue = self.clock(), calls[0].queue
        given_up = [queue.running.pop(call.item.number, None) is None for call in calls]
        for at, call in enumerate(calls):
            if call.given_up_at <= now and not given_up[at]:  # before the sweep came by
                given_up[at] = True
                self._end_overdue(call, now)
        error = ReplicaLost("it was given up", where=executor.name) if done.cancelled() else done.exception()
        work = None
        if error is None:
            result = done.result()
            work = result.work
            device_s, answered = result.times.device_s, self._answer(calls, given_up, result, now)
        else:
            device_s, answered = now - calls[0].started, 0
            for call, over in zip(calls, given_up, strict=True):
                if not over:
                    self._fail(call, error)
        self._scheduler.finished(batch, now, device_s, ok=answered > 0, work=work)
        self._pump(now)
        self._gateway.spent(queue, executor.name, calls, device_s, answered > 0)

    def _answer(self, calls: Sequence[Call], given_up: Sequence[bool], result: ExecutionResult, now: float) -> int:
        """Of how many calls the model made an answer: in the others it failed."""
        stats, wall, device_s = calls[0].queue.stats, time.time(), result.times.device_s
        answered = samples = done = 0
        for call, over, response in zip(calls, given_up, result.responses, strict=True):
            if over:
                done += not isinstance(response, ShoalError)
                continue
            if isinstance(response, ShoalError):
                self._fail(call, response)
                continue
            answered += 1
            samples += call.item.samples
            arrived = call.item.arrived
            stats.answered(now - arrived, call.started - arrived, wall)
            response.compute_s = device_s
            response.queue_s = max(0.0, now - arrived - device_s)
            if call.copy:
                call.queue.copies -= 1
            if call.future is not None and not call.future.done():
                call.future.set_result(response)
        if answered:
            stats.executed(samples, answered, result.times)
        return answered + done

    def _fail(self, call: Call, error: BaseException) -> None:
        if not isinstance(error, Overloaded):
            call.queue.stats.failed(self.clock() - call.item.arrived, time.time())
        if call.copy:
            call.queue.copies -= 1
        if call.future is not None and not call.future.done():
            call.future.set_exception(error)


def _refusal(rejection: Rejection) -> Overloaded:
    hint = "ask again later, with a longer timeout, or scale the service"
    if rejection.reason.code == "no-gap":
        hint = "use a smaller model, give the server more slots, or deploy the service as guaranteed"
    return DeadlineMissed(
        rejection.reason.text, where=rejection.item.queue, retry_after_s=rejection.retry_after_s, hint=hint
    )
