"""Work by steps: requests join and leave between steps, a short one does not wait for a long one, and others have their
turns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.core import PriorityClass, ShoalError
from shoal.inference import BadRequest, ModelFailed, ModelSpec, open_warm
from shoal.serve.errors import DeadlineMissed
from shoal.serve.replica.messages import ExecutionRequest, StepWork
from shoal.serve.replica.rows import Rows
from shoal.serve.scheduling import Batch, Item, Profiles, QueueSpec, Scheduler, make_scheduler
from shoal.serve.scheduling.profile import StepProfile
from tests.serve.counting import Stepping, forget_runtimes, install_runtimes
from tests.serve.gateway_kit import Live, eventually, service, standalone

SPEC = ModelSpec("c", "none", "stepping", warmup=0)
QUESTION = ExecutionRequest(("c", "1"), (), (), (1,), 0, 0)


def steps_of(value: float) -> dict[str, Any]:
    return {"x": np.array([[value]], np.float32)}


# --- in the replica ---


def finished(rows: Rows) -> list[tuple[int, Any]]:
    return [
        (row.number, result.what if isinstance(result, ShoalError) else result["y"].item())
        for row, result in rows.step()
    ]


@pytest.fixture
def runtime() -> Stepping:
    made = Stepping(SPEC)
    made.pause_s = 0.0
    return made


def test_rows_join_and_finish_in_their_own_time(runtime: Stepping) -> None:
    rows = Rows(runtime)
    rows.join(1, QUESTION, steps_of(4), 0.0)
    assert finished(rows) == []
    rows.join(2, QUESTION, steps_of(2), 0.0)
    assert finished(rows) == []
    assert finished(rows) == [(2, 2)]
    assert finished(rows) == [(1, 4)]
    assert len(rows) == 0


def test_each_row_is_charged_its_part_of_its_steps() -> None:
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 1.0  # each step takes a second, and each look at the clock between them another one
        return now

    runtime = Stepping(SPEC)
    rows = Rows(runtime, clock)
    rows.join(1, QUESTION, steps_of(3), 0.0)
    rows.step()
    rows.join(2, QUESTION, steps_of(1), 0.0)
    ((short, _),) = rows.step()
    ((long, _),) = rows.step()
    assert (short.share_s, short.work) == (0.5, StepWork(1, 2.0, 1.0))
    assert (long.share_s, long.work) == (2.5, StepWork(3, pytest.approx(4 / 3), 1.0))


def test_what_a_row_makes_fail_is_its_own(runtime: Stepping) -> None:
    rows = Rows(runtime)
    rows.join(1, QUESTION, steps_of(2), 0.0)
    rows.join(2, QUESTION, steps_of(-1), 0.0)
    with pytest.raises(BadRequest):
        rows.join(3, QUESTION, steps_of(0), 0.0)
    assert finished(rows) == [(2, "ValueError: a negative number")]
    assert finished(rows) == [(1, 2)]


def test_a_step_that_fails_as_a_whole_is_the_end_of_all_rows(runtime: Stepping) -> None:
    class Failing(Stepping):
        def step(self) -> Any:
            raise RuntimeError("no")

    failing = Failing(SPEC)
    rows = Rows(failing)
    for number in (1, 2):
        rows.join(number, QUESTION, steps_of(5), 0.0)
    assert finished(rows) == [(1, "RuntimeError: no"), (2, "RuntimeError: no")]
    assert failing.dropped == [1, 2]
    assert len(rows) == 0


def test_a_row_may_leave_before_its_end(runtime: Stepping) -> None:
    rows = Rows(runtime)
    rows.join(1, QUESTION, steps_of(5), 0.0)
    assert rows.leave(1)
    assert not rows.leave(1)
    assert runtime.dropped == [1]


def test_an_output_that_was_asked_for_and_is_not_there_is_the_models_error(runtime: Stepping) -> None:
    rows = Rows(runtime)
    rows.join(1, ExecutionRequest(("c", "1"), (), ("z",), (1,), 0, 0), steps_of(1), 0.0)
    ((_, result),) = rows.step()
    assert isinstance(result, ModelFailed)
    assert "no output z" in result.what


def test_a_runtime_with_sessions_is_not_asked_for_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    class Both(Stepping):
        session_bytes, sessions_only = 8, False

        def open_session(self) -> object:
            return object()

        def advance(self, sessions: Any, inputs: Any, outputs: Any) -> Any:
            return {"y": np.array(inputs["x"])}

        def undo(self, session: object) -> None:
            pass

        def close_session(self, session: object) -> None:
            pass

    monkeypatch.setattr("shoal.inference.opening._prepared", lambda spec: (Both, spec))
    _, report = open_warm(SPEC)
    assert (report.abilities, report.rows, report.session_bytes) == (("figures", "sessions"), 1, 8)
    monkeypatch.setattr("shoal.inference.opening._prepared", lambda spec: (Stepping, spec))
    _, report = open_warm(SPEC)
    assert (report.abilities, report.rows, report.session_bytes) == (("figures", "steps"), 4, 0)


# --- the scheduler ---


def scheduler(kind: str = "deadline", **more: Any) -> tuple[Scheduler, Profiles]:
    profiles = Profiles()
    made = make_scheduler(kind, slots=1, profiles=profiles, ahead_s=0.002)
    made.add_queue(QueueSpec("q", "a", executors=1, rows=4, **more))
    return made, profiles


def offer(made: Scheduler, number: int, now: float, queue: str = "q") -> list[Batch]:
    assert made.offer(Item(number, queue, now, float("inf")), now) is None
    return [*made.decide(now).batches]


def numbers(batches: list[Batch]) -> list[int]:
    return [item.number for batch in batches for item in batch.items]


def test_a_request_joins_what_runs_as_long_as_there_are_seats() -> None:
    made, _ = scheduler()
    started = [offer(made, number, 0.01 * number) for number in range(6)]
    assert [numbers(one) for one in started] == [[0], [1], [2], [3], [], []]
    made.finished(started[2][0], 1.0, 0.1, work=StepWork(10, 4.0, 0.01))
    assert numbers([*made.decide(1.0).batches]) == [4]
    made.finished(started[0][0], 2.0, 0.1, work=StepWork(10, 4.0, 0.01))
    assert numbers([*made.decide(2.0).batches]) == [5]


def test_another_tenant_that_is_owed_its_turn_has_it_before_more_rows_join() -> None:
    made, _ = scheduler("fair")
    made.add_queue(QueueSpec("other", "b", executors=1))
    (first,) = offer(made, 0, 0.0)
    assert offer(made, 9, 0.01, "other") == []
    assert offer(made, 1, 0.02) == []
    made.finished(first, 0.1, 0.1, work=StepWork(10, 1.0, 0.01))
    assert numbers([*made.decide(0.1).batches]) == [9]


def test_best_effort_rows_never_keep_a_guaranteed_request_from_its_slot() -> None:
    made, _ = scheduler(priority_class=PriorityClass.BEST_EFFORT)
    made.add_queue(QueueSpec("other", "b", executors=1))
    (first,) = offer(made, 0, 0.0)
    assert offer(made, 1, 0.01) == []
    assert offer(made, 9, 0.02, "other") == []
    made.finished(first, 0.1, 0.1, work=StepWork(10, 1.0, 0.01))
    assert numbers([*made.decide(0.1).batches]) == [9]


def test_the_profile_learns_the_time_of_a_step_by_its_rows_and_the_steps_of_a_request() -> None:
    profile = StepProfile()
    for number in range(400):
        rows = 1 + number % 8
        profile.observe(20, rows, 0.001 + 0.0005 * rows, float(number) * 0.01)
    assert profile.steps == pytest.approx(20)
    assert [profile.step_s(rows) for rows in (1, 4, 8)] == pytest.approx([0.0015, 0.003, 0.005], rel=0.05)
    assert profile.seats(8, 1.0) == 8
    assert profile.seats(8, 20 * 0.0031) in (3, 4)
    assert profile.seats(8, 0.001) == 1


def test_no_more_rows_are_used_than_let_a_typical_request_be_in_time() -> None:
    made, profiles = scheduler(slo_s=0.1)
    for number in range(60):
        (batch,) = offer(made, -number - 1, float(number))
        made.finished(batch, number + 0.05, 0.05, work=StepWork(10, 1 + number % 4, 0.002 * (1 + number % 4)))
    steps = profiles.of("q").steps
    assert steps is not None
    assert steps.seats(4, 0.05) == 2
    started = [numbers(offer(made, number, 100.0)) for number in range(4)]
    assert started == [[0], [1], [], []]


# --- through a gateway, with processes ---


@pytest.fixture
def stepping(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    install_runtimes(tmp_path / "installed", monkeypatch, stepping="tests.serve.counting:STEPPING")
    with standalone(tmp_path, [service("s", [SPEC])], slots=1) as live:
        yield live
    forget_runtimes()


def figures(live: Live) -> dict[str, float]:
    return live.service("ada.s").models[0].figures


def test_a_short_request_does_not_wait_for_a_long_one(stepping: Live) -> None:
    order: list[float] = []

    def ask(value: float) -> None:
        with stepping.client() as client:
            order.append(float(client.infer("c", steps_of(value))["y"].item()))

    long = threading.Thread(target=ask, args=(1000,))
    long.start()
    eventually(lambda: figures(stepping).get("most_together", 0) >= 1)
    for _ in range(3):
        ask(2)
    assert order == [2, 2, 2]
    long.join()
    assert order == [2, 2, 2, 1000]
    eventually(lambda: figures(stepping)["most_together"] == 2)


def test_what_nobody_waits_for_any_more_leaves(stepping: Live) -> None:
    with stepping.client() as client:
        with pytest.raises(DeadlineMissed):
            client.infer("c", steps_of(100_000), timeout_s=0.5)
        eventually(lambda: figures(stepping).get("dropped_total") == 1)
        assert client.infer("c", steps_of(3))["y"].item() == 3
        with pytest.raises(ModelFailed):
            client.infer("c", steps_of(-1))
        with pytest.raises(BadRequest):
            client.infer("c", steps_of(0))


def test_many_requests_of_different_lengths_all_get_their_own_answer(stepping: Live) -> None:
    found: dict[int, float] = {}

    def ask(value: int) -> None:
        with stepping.client() as client:
            found[value] = float(client.infer("c", steps_of(value))["y"].item())

    threads = [threading.Thread(target=ask, args=(value,)) for value in range(1, 13)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {value: value for value in range(1, 13)}
