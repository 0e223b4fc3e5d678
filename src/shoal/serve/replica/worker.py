"""What a replica does: join, load, execute, answer, in one thread, until it is told to stop."""

from __future__ import annotations

import gc
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from shoal.core import ShoalError
from shoal.serve.errors import BadModel, ModelFailed, NotReady
from shoal.serve.replica.connection import Connection, Gone, Refused, StopSignal
from shoal.serve.replica.execute import place_outputs, run_batch
from shoal.serve.replica.life import GAVE_UP, REFUSED, STOPPED, Patience
from shoal.serve.replica.messages import (
    ExecutionRequest,
    ExecutionResponse,
    ModelKey,
    Times,
    contents_of,
    read_key,
    read_request,
    read_spec,
    write_error,
    write_response,
)
from shoal.serve.replica.wire import Frame, Kind, WireError
from shoal.serve.runtimes.base import Array, Runtime
from shoal.serve.runtimes.memory import give_back
from shoal.serve.runtimes.open import LoadReport, open_warm
from shoal.serve.tensors import to_array
from shoal.serve.types import ModelSpec, Tensor, TensorSpec

log = logging.getLogger("shoal.serve.replica")


@dataclass(frozen=True, slots=True)
class Loaded:
    """`outputs` are those declared, by name."""

    runtime: Runtime
    report: LoadReport
    outputs: Mapping[str, TensorSpec]


class Worker:
    """`run` returns when the process may end."""

    def __init__(
        self,
        connect: Path,
        name: str,
        token: str,
        *,
        patience: Patience | None = None,
        open_model: Callable[[ModelSpec], tuple[Runtime, LoadReport]] = open_warm,
    ) -> None:
        self._connect = connect
        self._name = name
        self._token = token
        self._patience = patience or Patience()
        self._open_model = open_model
        self._models: dict[ModelKey, Loaded] = {}

    def run(self, stop: StopSignal) -> int:
        try:
            while not stop.requested:
                try:
                    connection = self._join(stop)
                except Refused as error:
                    log.error("replica %s is refused: %s", self._name, error)
                    return REFUSED
                except Gone as error:
                    log.error("replica %s finds no gateway at %s: %s", self._name, self._connect, error)
                    return GAVE_UP
                if connection is None:
                    break
                try:
                    self._serve(connection, stop)
                    break
                except (Gone, WireError) as error:
                    log.warning("replica %s lost the gateway: %s", self._name, error)
                finally:
                    connection.close()
            return STOPPED
        finally:
            for loaded in self._models.values():
                _close(loaded.runtime)

    def _join(self, stop: StopSignal) -> Connection | None:
        """Try until the gateway lets us in, or patience is over; None when told to stop. Raises Refused or Gone."""
        pause_s, ends_at = self._patience.first_s, time.monotonic() + self._patience.give_up_s
        while not stop.requested:
            try:
                return Connection(self._connect, self._token, self._name, stop)
            except Refused as error:
                if not error.again or time.monotonic() > ends_at:
                    raise
            except Gone:
                if time.monotonic() > ends_at:
                    raise
            stop.wait(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - so that many replicas do not come at once
            pause_s = min(2 * pause_s, self._patience.longest_s)
        return None

    def _serve(self, connection: Connection, stop: StopSignal) -> None:
        """ExecutionResponse until the gateway says stop, or did not although asked."""
        connection.send(Kind.MODELS, 0, [[*key, loaded.report] for key, loaded in self._models.items()])
        leave_by: float | None = None
        while True:
            if stop.requested and leave_by is None:
                connection.send(Kind.LEAVING, 0, None)
                leave_by = time.monotonic() + self._patience.leave_s
            left_s = None if leave_by is None else leave_by - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            frame = connection.receive(left_s)
            if frame is None:
                continue
            if frame.kind is Kind.STOP:
                return
            self._answer(connection, frame)

    def _answer(self, connection: Connection, frame: Frame) -> None:
        match frame.kind:
            case Kind.EXECUTE:
                self._execute_safely(connection, frame)
            case Kind.LOAD:
                self._load(connection, frame)
            case Kind.UNLOAD:
                self._drop(self._models.pop(read_key(frame.body), None))
                connection.send(Kind.UNLOAD, frame.number, None)
            case Kind.PING:
                connection.send(Kind.PING, frame.number, None)
            case _:
                raise WireError(f"{frame.kind.name} is no question")

    def _load(self, connection: Connection, frame: Frame) -> None:
        spec = read_spec(frame.body)
        try:
            runtime, report = self._open_model(spec)
        except BaseException as error:  # a model's file and code can raise anything, SystemExit as well
            known = error if isinstance(error, BadModel) else BadModel(f"{type(error).__name__}: {error}")
            connection.send(Kind.FAILED, frame.number, write_error(known))
            return
        before = self._models.get((spec.name, spec.version))
        outputs = {output.name: output for output in report.metadata.outputs}
        self._models[spec.name, spec.version] = Loaded(runtime, report, outputs)
        self._drop(before)
        gc.collect()
        gc.freeze()  # what a model brought stays until it is unloaded: the collector need not walk it again and again
        connection.send(Kind.LOAD, frame.number, report)

    def _drop(self, loaded: Loaded | None) -> None:
        if loaded is not None:
            _close(loaded.runtime)
            gc.unfreeze()
            give_back()

    def _execute_safely(self, connection: Connection, frame: Frame) -> None:
        """One request must not end the replica for all others: whatever it makes fail is the request's error."""
        try:
            self._execute(connection, frame)
        except (Gone, WireError):
            raise
        except BaseException as error:
            if isinstance(error, ShoalError):
                failed = error
            else:
                log.exception("a request could not be executed")
                failed = ModelFailed(f"{type(error).__name__}: {error}", where=f"replica {self._name!r}")
            connection.send(Kind.FAILED, frame.number, write_error(failed))

    def _execute(self, connection: Connection, frame: Frame) -> None:
        started = time.perf_counter()
        question = read_request(frame.body)
        room = connection.arena.view[question.offset : question.offset + question.room]
        loaded = self._models.get(question.model)
        if loaded is None:
            name, version = question.model
            raise NotReady(f"version {version} is not loaded", where=f"model {name!r}")
        inputs = _inputs(question, connection, frame.payload)
        ready = time.perf_counter()
        results = run_batch(loaded.runtime, inputs, question.outputs, question.sizes)
        done = time.perf_counter()
        outcomes, payload = place_outputs(results, loaded.outputs, room, connection.longest_payload)
        ended = time.perf_counter()
        times = Times(ready - started, done - ready, ended - done, ended - started)
        connection.send(Kind.EXECUTE, frame.number, write_response(ExecutionResponse(outcomes, times)), payload)


def _close(runtime: Runtime) -> None:
    try:
        runtime.close()
    except BaseException:  # a model's code can raise anything, SystemExit as well; the others go on
        log.exception("a model could not be closed")


def _inputs(question: ExecutionRequest, connection: Connection, payload: memoryview | None) -> dict[str, Array]:
    data = connection.arena.view if payload is None else payload
    return {
        each.name: to_array(Tensor(each.name, each.datatype, each.shape, contents_of(each, data)))
        for each in question.inputs
    }
