"""A step of a sequence, from its arrival to its answer: it waits for its turn, and goes where the state is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from shoal.core import ShoalError
from shoal.inference.errors import BadRequest
from shoal.inference.opening import LoadReport
from shoal.inference.types import InferRequest, InferResponse, SequenceStep, Tensor
from shoal.serve.errors import DeadlineMissed, NotReady, ReplicaLost, TooManySequences
from shoal.serve.gateway.directory import Entry, patience_s
from shoal.serve.gateway.dispatcher import Call, Pinned
from shoal.serve.gateway.replicas.replica_handle import Replica
from shoal.serve.gateway.sequences import LiveSequence, Sequences

if TYPE_CHECKING:
    from shoal.serve.gateway.core import Gateway

_SWEEP_S = 1.0
"""How often idle sequences are looked for: their times are tens of seconds."""
_MOST_COPIES = 64
"""The most copies of steps in flight to shadows, of all sequences together."""


class Stepper:
    """The gateway's way for requests that belong to a sequence. `sequences` are those that are open."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._clock = gateway.dispatcher.clock
        self.sequences = Sequences(gateway.changed)
        self._sweeping: asyncio.TimerHandle | None = None
        self._copies = 0

    async def infer(self, request: InferRequest, step: SequenceStep) -> InferResponse:
        gateway = self._gateway
        entry = gateway.directory.find(request.tenant, request.model)
        now = began = self._clock()
        key = (request.tenant, entry.service.tenant, entry.name, step.id)
        idle_s = next(iter(entry.versions.values())).sequence_idle_s
        live = self.sequences.enter(key, step, idle_s, now)
        if self._sweeping is None:
            self._sweep_later()
        async with self._turn(live, entry, request):
            request = gateway.later(entry, request, began)
            try:
                if live.replica is None:
                    request = await self._place(live, entry, request)
                response = await self._run(live, entry, request)
            except asyncio.CancelledError:
                self.sequences.failed(live, step)
                raise
            except ShoalError as error:
                raise self._after_error(live, step, error) from error
            self.sequences.answered(live, step.end, self._clock())
            return response

    def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    # --- inside

    @asynccontextmanager
    async def _turn(self, live: LiveSequence, entry: Entry, request: InferRequest) -> AsyncIterator[None]:
        """Raises DeadlineMissed if the steps before it take too long, and what `Sequences.absent` gives."""
        live.requests += 1
        try:
            try:
                if live.requests == 1:  # nobody has the turn or waits for it
                    await live.turn.acquire()
                else:
                    async with asyncio.timeout(patience_s(entry, request)):
                        await live.turn.acquire()
            except TimeoutError:
                what = "the steps before it were not done before its deadline; it was not run"
                raise DeadlineMissed(what, where=live.place) from None
            try:
                if live.over:  # it takes no more steps
                    raise self.sequences.absent(live.key)
                yield
            finally:
                live.turn.release()
        finally:
            live.requests -= 1

    async def _place(self, live: LiveSequence, entry: Entry, request: InferRequest) -> InferRequest:
        """Choose the version and the replica that all its steps go to. Returns the request with the time that is left.
        Raises NotReady, BadRequest or TooManySequences."""
        gateway, version = self._gateway, request.version
        if version is None:
            version = entry.router.choose(gateway.takes(entry)) or entry.main
        else:
            entry.check(version)
        while True:
            key = entry.key(version)
            queue, report = gateway.dispatcher.queues[key], gateway.replica_set.reports.get(key)
            if not queue.executors:
                gateway.seek(entry, queue)
            elif report is not None:
                break
            request = await gateway.until_loaded(entry, queue, request)
        if "sessions" not in report.abilities:
            hint = "send it without sequence_id, or name its state pairs in the manifest"
            raise BadRequest("the model keeps no state from request to request", where=live.place, hint=hint)
        replica = self._choose(entry, version, report, queue.executors)
        self.sequences.place(live, queue.spec.key, (entry.name, version), replica, report.session_bytes)
        self._begin_shadow(live, entry)
        return request

    def _choose(self, entry: Entry, version: str, report: LoadReport, replicas: Sequence[Replica]) -> Replica:
        most, free = entry.versions[version].max_sequences, self._gateway.replica_set.free_bytes
        now = self._clock()
        return self.sequences.choose(entry.key(version), replicas, most, report.session_bytes, free, now)

    async def _run(self, live: LiveSequence, entry: Entry, request: InferRequest) -> InferResponse:
        call = self._submit(live, entry, request)
        if live.shadow is not None:
            self._copy(live.shadow, entry, request)
        assert call.future is not None
        try:
            return await call.future
        except asyncio.CancelledError:
            self._gateway.dispatcher.withdraw(call)
            raise

    def _submit(self, live: LiveSequence, entry: Entry, request: InferRequest, *, shadow: bool = False) -> Call:
        replica = live.replica
        assert replica is not None
        report, queue = replica.models.get(live.model), self._gateway.dispatcher.queues.get(live.queue)
        if report is None or queue is None:
            raise ReplicaLost("its model is not loaded there any more", where=f"replica {replica.name!r}")
        pinned = Pinned(replica, (live.number, live.steps))
        return self._gateway.take(entry, queue, request, report.metadata, pinned=pinned, shadow=shadow)

    def _after_error(self, live: LiveSequence, step: SequenceStep, error: ShoalError) -> ShoalError:
        """What the caller is told of a step that failed. The sequence is as before it, unless its state is gone."""
        if isinstance(error, ReplicaLost) or (isinstance(error, NotReady) and live.steps):
            self.sequences.lose(live, error.what)
        if live.over:
            return self.sequences.absent(live.key)
        if not self.sequences.failed(live, step):
            return error
        told = copy(error)  # one error may be that of many requests
        told.what = f"{error.what}; the sequence is as before this step, {live.steps} were answered"
        return told

    # --- shadows

    def _begin_shadow(self, live: LiveSequence, entry: Entry) -> None:
        """A shadow never costs its original anything: where it cannot have a copy, there is none."""
        version = entry.router.shadow(self._gateway.takes(entry)) if entry.router.route.shadow is not None else None
        if version is None:
            return
        queue = self._gateway.dispatcher.queues[entry.key(version)]
        report = self._gateway.replica_set.reports.get(queue.spec.key)
        if report is None or "sessions" not in report.abilities or not queue.executors:
            return
        with suppress(TooManySequences):
            replica = self._choose(entry, version, report, queue.executors)
            model = (entry.name, version)
            self.sequences.shadow(live, queue.spec.key, model, replica, report.session_bytes, self._clock())

    def _copy(self, shadow: LiveSequence, entry: Entry, request: InferRequest) -> None:
        if self._copies >= _MOST_COPIES:
            self.sequences.lose(shadow, "it could not keep up")
            return
        # The caller's buffers are its own again once it has its answer; the copy may wait longer.
        inputs = [Tensor(one.name, one.datatype, one.shape, bytes(one.data)) for one in request.inputs]
        self._copies += 1
        shadow.requests += 1
        self._gateway.replica_set.spawn(self._run_copy(shadow, entry, replace(request, inputs=inputs)))

    async def _run_copy(self, shadow: LiveSequence, entry: Entry, request: InferRequest) -> None:
        try:
            async with shadow.turn:
                if shadow.over:
                    return
                future = self._submit(shadow, entry, request, shadow=True).future
                assert future is not None
                await future
                end = request.sequence is not None and request.sequence.end
                self.sequences.answered(shadow, end, self._clock())
        except ShoalError as error:  # a copy that misses a step is of no use
            self.sequences.lose(shadow, error.what)
        finally:
            self._copies -= 1
            shadow.requests -= 1

    # --- idle sequences

    def _sweep_later(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._sweeping = None
        self.sequences.sweep(self._clock())
        if len(self.sequences):
            self._sweep_later()
