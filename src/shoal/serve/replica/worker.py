"""Work of a replica: join, load, execute, answer, in one thread, until it is told to stop."""

from __future__ import annotations

import gc
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path

from shoal.core import ShoalError
from shoal.inference.errors import BadModel, ModelFailed
from shoal.inference.memory import give_back
from shoal.inference.opening import LoadReport, open_warm
from shoal.inference.runtime import Array, Condition, Runtime, Sessions, Steps
from shoal.inference.tensors import to_array
from shoal.inference.types import Tensor, TensorSpec
from shoal.serve.errors import NotReady
from shoal.serve.replica.attendance import Attendance, condition_or_why_not, restore
from shoal.serve.replica.connection import Connection, Gone, Refused, StopSignal
from shoal.serve.replica.execute import Result, place_outputs, run_batch
from shoal.serve.replica.life import GAVE_UP, REFUSED, STOPPED, Patience
from shoal.serve.replica.messages import (
    ExecutionRequest,
    ExecutionResponse,
    ModelKey,
    Times,
    contents_of,
    read_ended,
    read_key,
    read_load,
    read_request,
    write_condition,
    write_error,
    write_response,
)
from shoal.serve.replica.rows import Row, Rows
from shoal.serve.replica.sequences import OpenSequences
from shoal.serve.replica.wire import Frame, Kind, WireError

log = logging.getLogger("shoal.serve.replica")


@dataclass(frozen=True, slots=True)
class Loaded:
    """`outputs` are those declared, by name; `sequences` are the open ones, of a runtime that keeps state,
    and `rows` the requests that a runtime works on in steps."""

    runtime: Runtime
    report: LoadReport
    outputs: Mapping[str, TensorSpec]
    sequences: OpenSequences | None
    rows: Rows | None


class Worker:
    """`run` returns when the process may end."""

    def __init__(self, connect: Path, name: str, token: str, *, patience: Patience | None = None) -> None:
        self._connect = connect
        self._name = name
        self._token = token
        self._patience = patience or Patience()
        self._models: dict[ModelKey, Loaded] = {}
        self._attendance = Attendance()
        self._stepping: dict[int, Loaded] = {}
        """By the number of its frame, the model of each request that is a row of a runtime now."""

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
        self._stepping.clear()
        for loaded in self._models.values():
            if loaded.rows is not None:
                loaded.rows.clear()
            if loaded.sequences is not None:
                loaded.sequences.clear()  # this gateway knows of none
        connection.send(Kind.MODELS, 0, [[*key, loaded.report] for key, loaded in self._models.items()])
        leave_by: float | None = None
        while True:
            if stop.requested and leave_by is None:
                self._report_all(connection)
                connection.send(Kind.LEAVING, 0, None)
                leave_by = time.monotonic() + self._patience.leave_s
            left_s = None if leave_by is None else leave_by - time.monotonic()
            if left_s is not None and left_s <= 0:
                return
            idle_in_s = 0.0 if self._stepping else self._attendance.idle_in()
            wait_s = left_s if idle_in_s is None else min(idle_in_s, inf if left_s is None else left_s)
            frame = connection.receive(wait_s)
            if frame is None:
                if self._stepping:
                    self._step(connection)
                    continue
                worked = self._attendance.work()
                if worked is not None:
                    self._report_change(connection, worked)
                continue
            if frame.kind is Kind.STOP:
                return
            self._answer(connection, frame)
            if self._stepping and frame.number not in self._stepping:  # other work must not keep rows waiting
                self._step(connection)

    def _answer(self, connection: Connection, frame: Frame) -> None:
        match frame.kind:
            case Kind.EXECUTE:
                self._execute_safely(connection, frame)
            case Kind.LOAD:
                self._load(connection, frame)
            case Kind.UNLOAD:
                key = read_key(frame.body)
                self._attendance.drop(key)
                loaded = self._models.pop(key, None)
                self._end_rows(connection, loaded)
                self._drop(loaded)
                connection.send(Kind.UNLOAD, frame.number, None)
            case Kind.END_SEQUENCES:
                key, numbers = read_ended(frame.body)
                loaded = self._models.get(key)
                if loaded is not None and loaded.sequences is not None:
                    loaded.sequences.end(numbers)
                connection.send(Kind.END_SEQUENCES, frame.number, None)
            case Kind.LEAVE:
                self._leave(connection, frame.number)
            case Kind.CONDITION:
                key = read_key(frame.body)
                loaded = self._models.get(key)
                said = Condition() if loaded is None else condition_or_why_not(loaded.runtime)
                connection.send(Kind.CONDITION, frame.number, write_condition(key, said))
            case Kind.PING:
                connection.send(Kind.PING, frame.number, None)
            case _:
                raise WireError(f"{frame.kind.name} is no question")

    def _load(self, connection: Connection, frame: Frame) -> None:
        spec, kept = read_load(frame.body)
        try:
            runtime, report = open_warm(spec)
        except BaseException as error:  # a model's file and code can raise anything, SystemExit as well
            known = error if isinstance(error, BadModel) else BadModel(f"{type(error).__name__}: {error}")
            connection.send(Kind.FAILED, frame.number, write_error(known))
            return
        before = self._models.get((spec.name, spec.version))
        if kept is not None:
            restore(runtime, kept)
        self._attendance.add((spec.name, spec.version), runtime)
        outputs = {output.name: output for output in report.metadata.outputs}
        sequences = OpenSequences(runtime) if isinstance(runtime, Sessions) else None
        rows = Rows(runtime) if isinstance(runtime, Steps) and "steps" in report.abilities else None
        self._models[spec.name, spec.version] = Loaded(runtime, report, outputs, sequences, rows)
        self._end_rows(connection, before)
        self._drop(before)
        gc.collect()
        gc.freeze()  # what a model brought stays until it is unloaded: the collector need not walk it again and again
        connection.send(Kind.LOAD, frame.number, report)

    def _report_change(self, connection: Connection, key: ModelKey) -> None:
        """Unasked, and before the answer that the change belongs to: who saw that may count on the gateway to know."""
        condition = self._attendance.changed(key)
        if condition is not None:
            connection.send(Kind.CONDITION, 0, write_condition(key, condition))

    def _report_all(self, connection: Connection) -> None:
        """What runtimes keep, before a planned end."""
        for key, loaded in self._models.items():
            if "keep" in loaded.report.abilities:
                connection.send(Kind.CONDITION, 0, write_condition(key, condition_or_why_not(loaded.runtime)))

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
        if loaded.rows is not None and not question.steps:
            loaded.rows.join(frame.number, question, inputs, ready - started)
            self._stepping[frame.number] = loaded
            return
        if not question.steps:
            results = run_batch(loaded.runtime, inputs, question.outputs, question.sizes)
        elif loaded.sequences is None or len(question.steps) != len(question.sizes):
            raise NotReady("this model keeps no state", where=f"model {question.model[0]!r}")
        else:
            results = loaded.sequences.advance(question.steps, inputs, question.outputs)
        done = time.perf_counter()
        outcomes, payload = place_outputs(results, loaded.outputs, room, connection.longest_payload)
        ended = time.perf_counter()
        if "state" in loaded.report.abilities:
            self._report_change(connection, question.model)
        times = Times(ready - started, done - ready, ended - done, ended - started)
        connection.send(Kind.EXECUTE, frame.number, write_response(ExecutionResponse(outcomes, times)), payload)

    def _step(self, connection: Connection) -> None:
        """One step of each runtime that has rows, and the answers to those that it finished."""
        for loaded in {id(one): one for one in self._stepping.values()}.values():
            assert loaded.rows is not None
            for row, result in loaded.rows.step():
                del self._stepping[row.number]
                self._answer_row(connection, loaded, row, result)

    def _answer_row(self, connection: Connection, loaded: Loaded, row: Row, result: Result) -> None:
        question, done = row.question, time.perf_counter()
        room = connection.arena.view[question.offset : question.offset + question.room]
        outcomes, payload = place_outputs([result], loaded.outputs, room, connection.longest_payload)
        if "state" in loaded.report.abilities:
            self._report_change(connection, question.model)
        times = Times(row.input_s, done - row.joined, time.perf_counter() - done, row.share_s)
        body = write_response(ExecutionResponse(outcomes, times, row.work))
        connection.send(Kind.EXECUTE, row.number, body, payload)

    def _end_rows(self, connection: Connection, loaded: Loaded | None) -> None:
        for number in [number for number, one in self._stepping.items() if one is loaded]:
            self._leave(connection, number)

    def _leave(self, connection: Connection, number: int) -> None:
        loaded = self._stepping.pop(number, None)
        if loaded is not None and loaded.rows is not None and loaded.rows.leave(number):
            connection.send(Kind.FAILED, number, write_error(ModelFailed("it was given up before it was finished")))


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
