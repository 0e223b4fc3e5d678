"""What a runtime says of its model: figures, a state, what it keeps beyond its process, and its idle work."""

from __future__ import annotations

import os
import signal
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.core import token_digest
from shoal.inference import ModelSpec, RuntimeState
from shoal.inference.runtime import Condition
from shoal.serve.gateway import kept as kept_states
from shoal.serve.gateway.conditions import summed_up
from shoal.serve.gateway.kept import KeptStates
from shoal.serve.replica import messages
from shoal.serve.replica.attendance import Attendance
from shoal.serve.replica.wire import WireError
from tests.serve.counting import Counting, forget_runtimes, install_runtimes
from tests.serve.gateway_kit import deployment, eventually, home, service, standalone, token_of

KEY = ("c", "1")
SPEC = ModelSpec("c", "none", "counting", warmup=0)


@pytest.fixture
def counting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install_runtimes(tmp_path / "installed", monkeypatch, counting="tests.serve.counting:COUNTING")
    yield
    forget_runtimes()


# --- through a gateway, with processes ---


@pytest.mark.usefixtures("counting")
def test_figures_and_state_reach_the_status_and_the_metrics(tmp_path: Path) -> None:
    with standalone(tmp_path, [service("s", [SPEC])]) as live, live.client() as client:
        client.infer("c", {"x": _rows(1, 2, 250)})
        told = live.gateway.status(live.gateway.directory.find("ada", "c"), "1")
        # A change of the state came before the answer: there was nothing to wait for.
        assert (told.word, told.said) == ("DRIFTED", "a row of 250")
        assert told.figures["rows_total"] == 3
        client.infer("c", {"x": _rows(7)})
        eventually(lambda: live.service("ada.s").models[0].figures.get("rows_total") == 4)
        assert "No" not in live.service("ada.s").models[0].figures
        with urllib.request.urlopen(f"{live.url}/metrics") as answer:
            text = answer.read().decode()
        at = 'tenant="ada",version="1"'
        assert f'shoal_serve_runtime_figure{{figure="rows_total",model="c",replica="ada.s-0-1",{at}}} 4.0' in text
        assert f'shoal_serve_runtime_state{{model="c",replica="ada.s-0-1",state="DRIFTED",{at}}} 1.0' in text


@pytest.mark.usefixtures("counting")
def test_idle_work_is_done_while_nothing_waits(tmp_path: Path) -> None:
    with standalone(tmp_path, [service("s", [SPEC])]) as live:
        eventually(lambda: live.service("ada.s").models[0].figures.get("idle_total", 0) >= 10)


@pytest.mark.usefixtures("counting")
@pytest.mark.slow
def test_a_state_outlives_kill_9_of_the_replica_and_then_of_the_gateway_and_the_replica(tmp_path: Path) -> None:
    with home(tmp_path) as made:
        made.configure(deployment(service("s", [SPEC])))
        made.start()
        made.replicas("s", 1, "r")
        eventually(lambda: _state(made) == "READY")
        with made.client() as client:
            client.infer("c", {"x": _rows(101)})
        _kill_replica(made)
        eventually(lambda: _state(made) == "DRIFTED")
        assert made.service("s").models[0].figures["rows_total"] == 1  # type: ignore[union-attr]
        made.end(signal.SIGKILL)
        os.kill(made.spawned["r"].pid or 0, signal.SIGKILL)
        made.start()
        eventually(lambda: _state(made) == "DRIFTED")
        made.configure(deployment(service("s", [SPEC]), generation=2))
        made.replicas("s", 2, "r2")
        eventually(lambda: made.spawned["r2"].pid and _state(made) == "READY")  # a new generation begins anew


def _rows(*values: float) -> Any:
    import numpy as np

    return np.array([[value] for value in values], np.float32)


def _state(made: Any) -> str:
    found = made.service("s")
    return found.models[0].word if found is not None and found.models else ""


def _kill_replica(made: Any) -> None:
    """The process that holds the models, not the one that stays between it and its parent."""
    before = made.spawned["r"].starts
    os.killpg(made.spawned["r"].pid, signal.SIGKILL)
    eventually(lambda: made.spawned["r"].starts > before)


# --- pure parts ---


def test_counters_are_added_means_taken_and_the_replica_that_is_not_ready_named() -> None:
    fine = Condition({"rows_total": 2, "share": 0.5})
    drifted = Condition({"rows_total": 3, "share": 1.0}, RuntimeState("DRIFTED", "new rows"))
    assert summed_up({}) == Condition(state=RuntimeState("", well=True))
    assert summed_up({"a": fine}) == Condition({"rows_total": 2, "share": 0.5}, RuntimeState("READY"))
    certified = Condition({}, RuntimeState("CERTIFIED", "to 1 %", well=True))
    assert summed_up({"a": certified}).state == certified.state
    assert summed_up({"a": certified, "b": drifted}).state.reason == "b: new rows"
    both = summed_up({"a": fine, "b": drifted})
    assert both == Condition({"rows_total": 5, "share": 0.75}, RuntimeState("DRIFTED", "b: new rows"))


def test_a_condition_survives_the_wire_and_a_slip_costs_only_itself() -> None:
    import orjson

    given = Condition({"ok": 1, "Bad Name": 2, "nan": float("nan")}, RuntimeState("bad word", "why"), b"k" * 70_000)
    body = orjson.loads(orjson.dumps(messages.write_condition(KEY, given)))
    assert messages.read_condition(body) == (KEY, Condition({"ok": 1.0}, RuntimeState("UNKNOWN", "why", False), None))
    lasting = Condition({}, RuntimeState("DRIFTED", "new rows", False, lasting=True), b"k")
    assert messages.read_condition(messages.write_condition(KEY, lasting)) == (KEY, lasting)


@pytest.mark.parametrize(
    "body",
    [
        None, [], ["c", "1", {}, "READY", "", 7, True], ["c", "1", {"Bad": 1}, "READY", "", None, True],
        ["c", "1", {}, "no word", "", None, True], ["c", "1", {"a": "x"}, "READY", "", None, True],
        ["c", "1", {f"a{n}": 1 for n in range(65)}, "READY", "", None, True], ["c", "1", {}, "READY", "", None],
        ["c", "1", {}, "READY", "", None, True, True, True],
    ],
)  # fmt: skip
def test_a_replica_that_says_nonsense_of_a_model_is_not_believed(body: Any) -> None:
    with pytest.raises(WireError):
        messages.read_condition(body)


def test_only_a_change_of_the_word_is_news() -> None:
    runtime, told = Counting(SPEC), Attendance()
    told.add(KEY, runtime)
    assert told.changed(KEY) is None
    runtime.run({"x": _rows(101)}, ())
    first = told.changed(KEY)
    assert first is not None
    assert (first.state.word, first.kept) == ("DRIFTED", runtime.keep())
    runtime.run({"x": _rows(102)}, ())
    assert told.changed(KEY) is None
    told.drop(KEY)
    assert told.changed(KEY) is None


def test_idle_work_is_asked_for_again_at_once_while_there_is_more_and_a_second_later_else() -> None:
    now = 5.0
    runtime, told = Counting(SPEC), Attendance(lambda: now)
    assert told.idle_in() is None
    told.add(KEY, runtime)
    for _ in range(10):
        assert told.idle_in() == 0.0
        assert told.work() == KEY
    assert told.idle_in() == 1.0
    assert told.work() is None
    now = 6.0
    assert told.work() == KEY


def test_a_runtime_that_fails_to_say_how_it_is_fails_alone() -> None:
    class Failing(Counting):
        failing = False

        def state(self) -> RuntimeState:
            if self.failing:
                raise RuntimeError("no")
            return super().state()

        def idle(self, budget_s: float) -> bool:
            raise RuntimeError("no")

    runtime, told = Failing(SPEC), Attendance()
    told.add(KEY, runtime)
    runtime.failing = True
    assert told.changed(KEY) is None
    assert told.work() == KEY
    assert (told.idle_in() or 0) > 0.5


def test_what_is_kept_is_a_deployments_own_and_goes_with_it(tmp_path: Path) -> None:
    one, other = token_digest(token_of("s", 1)), token_digest(token_of("s", 2))
    kept = KeptStates(tmp_path)
    kept.put(one, "r", "ada/c/1", b"a")
    kept.put(other, "r", "ada/c/1", b"b")
    again = KeptStates(tmp_path)
    assert (again.get(one, "r", "ada/c/1"), again.get(other, "r", "ada/c/1")) == (b"a", b"b")
    assert again.get(one, "r2", "ada/c/1") is None
    again.follow({other})
    assert (again.get(one, "r", "ada/c/1"), again.get(other, "r", "ada/c/1")) == (None, b"b")
    assert len(list(tmp_path.iterdir())) == 1
    nowhere = KeptStates(None)
    nowhere.put(one, "r", "k", b"a")
    assert nowhere.get(one, "r", "k") == b"a"
    nowhere.follow(())
    assert nowhere.get(one, "r", "k") is None


@pytest.mark.parametrize("on_disk", [True, False])
def test_what_was_kept_in_a_lasting_state_is_for_whoever_has_none_of_his_own(
    tmp_path: Path, on_disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_states, "MOST_LASTING", 3)
    folder = tmp_path / "kept" if on_disk else None
    kept = KeptStates(folder)
    kept.put("one", "r1", "ada/c/1", b"drifted", lasting=True)
    kept.put("one", "r2", "ada/c/1", b"fine")
    kept.follow(())  # undeployed
    after = KeptStates(folder) if on_disk else kept
    assert after.get("two", "r1", "ada/c/1") == b"drifted"
    after.put("two", "r1", "ada/c/1", b"fine")
    assert after.get("two", "r1", "ada/c/1") == b"fine"
    assert after.get("two", "r2", "ada/c/1") == b"drifted"
    assert [after.get("two", "r2", key) for key in ("ada/c/2", "ada/d/1", "bob/c/1")] == [None] * 3
    for number in range(3):  # a tenant with many forgets his own oldest, and no other's
        after.put("two", "r1", f"bob/{number}/1", b"drifted", lasting=True)
    assert after.get("three", "r1", "ada/c/1") == b"drifted"
    after.put("two", "r1", "bob/3/1", b"drifted", lasting=True)
    again = KeptStates(folder) if on_disk else after
    found = [again.get("three", "r1", f"bob/{number}/1") for number in range(4)]
    assert found == [None, b"drifted", b"drifted", b"drifted"]
