"""The gateway's handle on one replica: questions go out, futures come back.

Nothing here makes a task or waits: a question is written where it is asked, and its future settled where the answer
is read. Inputs are copied once, from the request's body into the arena, where those of requests put together simply lie
one after the other; outputs are copied once, out of it. A replica works off its questions in order, so it takes up a
batch that was sent while another ran without a pause.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from shoal.base.processes import Process, send, start_ticks
from shoal.core import Reason, ShoalError
from shoal.inference.opening import LoadReport
from shoal.inference.runtime import Condition
from shoal.inference.tensors import Stacked, samples_in, stack
from shoal.inference.types import Buffer, InferRequest, ModelSpec
from shoal.serve.errors import BodyTooLarge, NotReady, ReplicaLost
from shoal.serve.gateway.replicas.execution import (
    ExecutionResult,
    execution_of,
    expected_bytes,
    laid_out_bytes,
    lay_out,
    payload_of,
    wanted_outputs,
)
from shoal.serve.replica.arena import Allocator, Arena, ArenaSpan
from shoal.serve.replica.messages import (
    ExecutionRequest,
    ModelKey,
    Placed,
    Step,
    Times,
    read_condition,
    read_error,
    read_report,
    read_response,
    write_load,
    write_request,
)
from shoal.serve.replica.wire import Frame, Kind, WireError, encode, size_of
from shoal.serve.types import LOAD_TIMEOUT_S

T = TypeVar("T")

HANGS_OBJECTIVES, HANGS_S = 20.0, 5.0
"""An execution that takes this multiple of the service's objective, and at least these seconds, hangs: its replica is
killed. Less would kill models that are slow for a moment."""

log = logging.getLogger("shoal.serve")


class ReplicaEvents:
    """Callbacks of a registry, made in the loop's thread. Override those of interest; none may raise."""

    def joined(self, replica: Replica) -> None:
        """It can be given work; `replica.models` are those that it still holds from an earlier gateway."""

    def ready(self, replica: Replica, model: ModelKey) -> None:
        """The model is loaded and warm."""

    def condition(self, replica: Replica, model: ModelKey, condition: Condition) -> None:
        """How the model is, in the words of its runtime."""

    def leaving(self, replica: Replica) -> None:
        """It was told to end, by a signal: give it no more work. It ends when all that it was asked is answered."""

    def lost(self, replica: Replica, reason: Reason) -> None:
        """It is gone, and all that it was asked has failed. The reason's code is `closed` (it ended or was killed),
        `stuck` (no answer in time), `protocol` (it sent nonsense) or `stopped`."""


@dataclass(frozen=True, slots=True)
class ReplicaLimits:
    """`arena_bytes` of shared memory per replica, which cost nothing until used; larger batches go over the socket, up
    to `message_bytes`. A replica that does not answer in time is given up and killed; one that is idle is asked every
    so often whether it is alive. The replica set shortens the times of a replica to what its service is for."""

    arena_bytes: int = 64 << 20
    message_bytes: int = 256 << 20
    answer_timeout_s: float = 60.0
    load_timeout_s: float = LOAD_TIMEOUT_S
    greeting_timeout_s: float = 5.0
    ask_idle_every_s: float = 5.0


@dataclass(slots=True)
class _Asked:
    """`settle` makes the future's result of the answer, or raises the error that it is; `region` is what the question
    occupies of the arena, `what` says what the replica is at while it does not answer."""

    kind: Kind
    future: asyncio.Future[Any]
    settle: Callable[[Frame], Any]
    limit_s: float
    region: ArenaSpan | None
    what: str


class Replica:
    """A replica that joined. `models` are those it has loaded and warmed up; `lost` is why it is gone, once it is. An
    execution may take `answer_within_s`, a load `load_within_s`: longer ones hang. The state of `held_sequences`
    is here, and keeps it from ending."""

    def __init__(
        self,
        name: str,
        pid: int,
        token_digest: str,
        writer: asyncio.Transport,
        arena: Arena,
        limits: ReplicaLimits,
        events: ReplicaEvents,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.name = name
        self.pid = pid
        self.token_digest = token_digest
        self.models: dict[ModelKey, LoadReport] = {}
        self.leaving = False
        self.answer_within_s = limits.answer_timeout_s
        self.load_within_s = limits.load_timeout_s
        self.lost: Reason | None = None
        self.held_sequences = 0
        self._writer = writer
        self._view = arena.view
        self._allocator = Allocator(arena.size)
        self._limits = limits
        self._events = events
        self._loop = loop
        self._asked: dict[int, _Asked] = {}
        self._number = 0
        self._heard_at = loop.time()
        self._bytes_per_sample: dict[ModelKey, int] = {}
        self._conditions: set[ModelKey] = set()
        self._released = False
        # Known from the start on: the number may be another process's by the time this one hangs.
        self._process = Process(pid, start_ticks(pid) or 0)

    @property
    def in_flight(self) -> int:
        """Questions without an answer."""
        return len(self._asked)

    def expect(self, slo_s: float | None, load_timeout_s: float) -> None:
        """What its service is for says from when on it hangs."""
        longest_s = self._limits.answer_timeout_s
        self.answer_within_s = longest_s if slo_s is None else min(longest_s, max(HANGS_S, HANGS_OBJECTIVES * slo_s))
        self.load_within_s = load_timeout_s

    async def load(self, spec: ModelSpec, kept: bytes | None = None) -> LoadReport:
        """Load the model and warm it up, in the place of the same version if that is loaded; `kept` is what an earlier
        process of it left. What else the replica was asked waits meanwhile. Raises BadModel, or ReplicaLost."""
        key = (spec.name, spec.version)

        def settle(frame: Frame) -> LoadReport:
            report = read_report(frame.body)
            self.models[key] = report
            self._bytes_per_sample.pop(key, None)
            self._events.ready(self, key)
            return report

        body = write_load(spec, kept)
        return await self._ask(Kind.LOAD, body, settle, limit_s=self.load_within_s, what=f"loading {spec.name}")

    def unload(self, name: str, version: str) -> asyncio.Future[None]:
        """From now on it is not in `models`; what was asked before is still answered. Nothing happens if it is not
        loaded. The future fails with ReplicaLost."""
        self.models.pop((name, version), None)
        return self._ask(Kind.UNLOAD, [name, version], _nothing)

    def leave(self, execution: asyncio.Future[ExecutionResult]) -> None:
        """Nothing waits for this execution any more; a runtime that works in steps may drop it. Its future ends as
        always."""
        number = next((number for number, asked in self._asked.items() if asked.future is execution), None)
        if number is not None:
            self._writer.write(encode(Kind.LEAVE, number, None))

    def end_sequence(self, model: ModelKey, number: int) -> None:
        """Drop the state of a sequence that was held here."""
        self.held_sequences -= 1
        if self.lost is None and model in self.models:
            ended = self._ask(Kind.END_SEQUENCES, [model, [number]], _nothing, what="dropping a state")
            ended.add_done_callback(_ignore)
        self._release()

    def ask_condition(self, model: ModelKey) -> None:
        """Have the replica say how the model is: see `ReplicaEvents.condition`. Nothing while an earlier question of
        the kind is open."""
        if self._released or model in self._conditions:
            return

        def settle(frame: Frame) -> None:
            self.stated(frame)

        self._conditions.add(model)
        future = self._ask(Kind.CONDITION, [*model], settle, what=f"saying how {model[0]} is")
        future.add_done_callback(_ignore)
        future.add_done_callback(lambda _: self._conditions.discard(model))

    def stated(self, frame: Frame) -> None:
        """The replica said how a model is. Raises WireError."""
        self._events.condition(self, *read_condition(frame.body))

    def look(self) -> None:
        """Ask whether it is alive; if not, `overdue` will say so."""
        if not self._released:
            self._ask(Kind.PING, None, _nothing).add_done_callback(_ignore)

    def stop(self) -> None:
        """Let the replica end, once all that it was asked is answered and it holds no sequence; nothing more can be
        asked then."""
        self.leaving = True
        self._release()

    def _release(self) -> None:
        if self.leaving and not self._asked and not self.held_sequences and not self._released:
            self._released = True
            self._heard_at = self._loop.time()
            self._writer.write(encode(Kind.STOP, 0, None))

    def execute(
        self, model: str, version: str, requests: Sequence[InferRequest], steps: Sequence[Step] = ()
    ) -> asyncio.Future[ExecutionResult]:
        """Run requests together, as one batch. They have passed `check_request`, and their `batch_key`s are equal. With
        `steps`, each is one of a sequence whose state is here.

        The future's result has the model's response to each, errors included. The future fails with ReplicaLost when
        the replica ends. It fails at once with NotReady if the model is not loaded here, and with BodyTooLarge if
        the requests cannot be sent.
        """
        try:
            return self._execute((model, version), requests, steps)
        except ShoalError as error:
            failed: asyncio.Future[ExecutionResult] = self._loop.create_future()
            failed.set_exception(error)
            return failed

    def _execute(
        self, key: ModelKey, requests: Sequence[InferRequest], steps: Sequence[Step]
    ) -> asyncio.Future[ExecutionResult]:
        model, version = key
        gone = self._gone()
        if gone is not None:
            raise gone
        report = self.models.get(key)
        if report is None:
            raise NotReady(f"version {version} is not loaded in replica {self.name!r}", where=f"model {model!r}")
        stacked, sizes = stack(requests)
        samples = max(1, sum([samples_in(request, report.metadata) for request in requests]))
        per_sample = self._bytes_per_sample.get(key)
        room = samples * (expected_bytes(report.metadata) if per_sample is None else per_sample)
        region = self._allocator.allocate(laid_out_bytes(stacked) + room)
        payload: list[Buffer] = []
        if region is None:
            placed, _ = lay_out(stacked, 0)
            outputs_at = room = 0
            payload = payload_of(stacked)
            if size_of(payload) > self._limits.message_bytes:
                raise BodyTooLarge(f"{size_of(payload)} bytes of inputs are more than can be sent to a replica at once")
        else:
            placed, outputs_at = lay_out(stacked, region.offset)
            self._write_inputs(stacked, placed)

        def settle(frame: Frame) -> ExecutionResult:
            if frame.kind is Kind.FAILED:
                return ExecutionResult((read_error(frame.body),) * len(requests), Times(0.0, 0.0, 0.0, 0.0))
            answer = read_response(frame.body)
            data = self._view[outputs_at : outputs_at + room] if frame.payload is None else frame.payload
            execution, used = execution_of(answer, data, version, report.metadata, requests)
            # The most that was seen, slowly forgotten, so that one large answer does not keep room for ever.
            known = self._bytes_per_sample.get(key, 0)
            self._bytes_per_sample[key] = max(known - known // 8, -(-used // samples))
            return execution

        wanted = wanted_outputs(requests, report.metadata)
        question = ExecutionRequest(key, tuple(placed), wanted, tuple(sizes), outputs_at, room, tuple(steps))
        return self._ask(
            Kind.EXECUTE, write_request(question), settle, limit_s=self.answer_within_s, region=region,
            payload=payload, what=f"one execution of {model}",
        )  # fmt: skip

    def _write_inputs(self, stacked: Sequence[Stacked], placed: Sequence[Placed]) -> None:
        for each, place in zip(stacked, placed, strict=True):
            at = place.offset
            for part in each.parts:
                end = at + len(part)
                self._view[at:end] = part
                at = end

    def _ask(
        self,
        kind: Kind,
        body: object,
        settle: Callable[[Frame], T],
        *,
        limit_s: float | None = None,
        region: ArenaSpan | None = None,
        payload: Sequence[Buffer] = (),
        what: str = "saying whether it lives",
    ) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self._loop.create_future()
        gone = self._gone()
        if gone is not None:
            future.set_exception(gone)
            return future
        self._number = number = (self._number + 1) & 0xFFFFFFFF or 1  # 0 is for frames that answer nothing
        frame = encode(kind, number, body, size_of(payload))
        if not self._asked:
            self._heard_at = self._loop.time()
        self._asked[number] = _Asked(kind, future, settle, limit_s or self._limits.answer_timeout_s, region, what)
        self._writer.write(frame)
        if payload:
            self._writer.writelines([*payload])
        return future

    def _gone(self) -> ReplicaLost | None:
        if self.lost is None and not self._released:
            return None
        why = self.lost.text if self.lost is not None else "it was told to end"
        return ReplicaLost(why, where=f"replica {self.name!r}", hint="ask another")

    def answered(self, frame: Frame) -> None:
        """Settle the question that the frame answers. Raises WireError if there is none, or it is no answer to it."""
        asked = self._asked.get(frame.number)
        if asked is None or frame.kind not in (asked.kind, Kind.FAILED):
            raise WireError(f"{frame.kind.name} {frame.number} answers nothing")
        failed = frame.kind is Kind.FAILED and asked.kind is not Kind.EXECUTE
        error = read_error(frame.body) if failed else None
        result = None if failed else asked.settle(frame)
        del self._asked[frame.number]
        self._heard_at = self._loop.time()
        if asked.region is not None:
            self._allocator.free(asked.region)
        self._release()
        if asked.future.done():  # the caller has withdrawn its request
            return
        if error is not None:
            asked.future.set_exception(error)
        else:
            asked.future.set_result(result)

    def overdue(self, now: float) -> str | None:
        """What the replica has been at for longer than it may take; None if it is in time."""
        head = next(iter(self._asked.values()), None)
        if self._released:
            limit_s, what = self._limits.answer_timeout_s, "ending"
        elif head is not None:
            limit_s, what = head.limit_s, head.what
        else:
            return None
        return f"it did not answer within {limit_s:g} s ({what})" if now - self._heard_at > limit_s else None

    def kill(self) -> None:
        """End its process by SIGKILL, since it may hang in native code. The control plane then starts another one. Does
        nothing where the process has ended, or may not be ended by this user."""
        if self.pid == os.getpid():  # a replica simulated within this process
            return
        try:
            send(self._process, signal.SIGKILL)
        except PermissionError:
            log.error("replica %s (pid %d) hangs and may not be killed by this user", self.name, self.pid)

    def quiet_for(self, now: float) -> float:
        """Seconds since it last answered, 0 while there is something to answer."""
        return 0.0 if self._asked else now - self._heard_at

    def lose(self, reason: Reason) -> None:
        """It is gone: what it was asked fails now."""
        self.lost = reason
        self.models.clear()
        self._view = memoryview(b"")
        asked, self._asked = self._asked, {}
        for each in asked.values():
            if not each.future.done():
                each.future.set_exception(ReplicaLost(reason.text, where=f"replica {self.name!r}", hint="ask again"))


def _ignore(future: asyncio.Future[None]) -> None:
    if not future.cancelled():
        future.exception()


def _nothing(_frame: Frame) -> None:
    return None
