"""`shoal measure run`, `capacity` and `coldstart` as a stranger uses them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shoal.measure.commands.measure import measure_app
from tests.measure.servers import Fake, running_server


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with running_server(Fake(models={"fake": 0.001, "quick": 0.0}, token="hush")) as url:
        yield url


def shoal_measure(*words: str, code: int = 0, token: str = "hush") -> Result:
    result = CliRunner().invoke(
        measure_app, [*words], env={"SHOAL_TARGET_TOKEN": token, "SHOAL_TOKEN": "the-control-planes"}
    )
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, (words, result.stdout, result.stderr)
    assert "hush" not in result.output
    return result


def document(*words: str, **options: Any) -> Any:
    return json.loads(shoal_measure(*words, "--json", **options).stdout)


def run(url: str, *words: str, **options: Any) -> Any:
    return document("run", "-u", url, "-m", "quick", "--duration", "300ms", "--warmup", "0", *words, **options)


def test_a_run_for_people(url: str) -> None:
    shown = shoal_measure(
        "run", "-u", url, "-m", "fake", "-r", "100", "-d", "400ms", "--warmup", "100ms", "--slo", "20s"
    )
    lines = {line.split("  ")[0]: line for line in shown.stdout.splitlines()}
    assert "requests in 0.3 s, after 0.1 s of warm-up" in lines["measured"]
    assert "100.00%" in lines["within 20 s"]
    assert "1 ms in compute" in lines["server says"]
    assert {"p50", "p95", "p99", "p99.9"} <= set(lines)


def test_a_run_for_programs(url: str) -> None:
    found = run(url, "-r", "200", "--arrivals", "constant", "--slo", "20s")
    assert (found["loop"], found["requests"], found["failures"]) == ("open", 60, 0)
    assert found["attainment"]["value"] == 1.0
    assert found["offered_per_s"] == pytest.approx(200.0)


def test_several_models_at_once_and_a_closed_loop(url: str) -> None:
    both = run(url, "-m", "fake", "-r", "100", "-r", "50", "--arrivals", "constant")
    assert [(one["model"], one["requests"]) for one in both] == [("quick", 30), ("fake", 15)]
    closed = run(url, "--clients", "2")
    assert closed["loop"] == "closed"
    assert closed["requests"] >= 2


def test_the_same_seed_makes_the_same_load(url: str) -> None:
    first, again, other = (
        run(url, "-r", "300", "--arrivals", "bursty", "--seed", seed)["requests"] for seed in ("1", "1", "2")
    )
    assert first == again != other
    assert run(url, "-r", "300", "--arrivals", "diurnal", "--period", "300ms")["requests"] > 10


def test_a_trace_is_played(url: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("TIMESTAMP\n2024-01-01 00:00:00\n2024-01-01 00:00:10\n2024-01-01 00:00:20\n2024-01-01 00:02:00\n")
    assert run(url, "--arrivals", "trace", "--trace", str(trace), "--speed", "100")["requests"] == 3


def test_what_is_required_decides_the_exit_code(url: str) -> None:
    run(url, "-r", "100", "--slo", "10s", "--require", "1.0")
    assert run(url, "-r", "100", "--slo", "0.001ms", "--require", "0.5", code=1)["attainment"]["value"] == 0.0


def test_a_dead_server_aborts_with_a_reason() -> None:
    with running_server(Fake(models={"fake": 0.0}, die_after=20)) as dying:
        result = shoal_measure(
            "run", "-u", dying, "-m", "fake", "-r", "300", "-d", "60s", "--give-up", "300ms", "--json", code=1
        )
    assert "aborted: fake: nothing but failures" in result.stderr
    assert json.loads(result.stdout)["aborted"]["code"] == "failing"


def test_capacity_shows_its_trials_and_its_answer(url: str) -> None:
    words = ("capacity", "-u", url, "-m", "fake", "--slo", "100ms", "-q", "0.9", "--tolerance", "0.9")
    words += ("--trial-time", "300ms", "--start-rate", "800", "--warmup", "0")
    shown = shoal_measure(*words)
    assert "p90 within 100 ms" in shown.stdout
    assert "kept at" in shown.stdout
    assert "800/s" in shown.stderr
    said = "ends when the rate is known to 90% (--tolerance); each trial takes up to 0.3 s, and none begins after 300 s"
    assert shown.stderr.startswith(said), "beforehand"
    hurried = shoal_measure(*words, "--tolerance", "0.001", "--budget", "1ms")
    assert "the time was up after 1 trials" in hurried.stdout
    assert "kept at" in hurried.stdout, "what was measured is shown"
    too_slow = shoal_measure("capacity", "-u", url, "-m", "fake", "--slo-p99", "0.5ms", code=1).stdout
    assert "even alone half the requests take longer" in too_slow
    assert "proven" not in too_slow


def test_cold_starts(url: str) -> None:
    found = document("coldstart", "-u", url, "-m", "quick", "-n", "2")
    assert found["repeats"] == 2
    assert "until ready" in shoal_measure("coldstart", "-u", url, "-m", "quick", "-n", "1").stdout


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-m", "quick"), 2, "how many requests per second?"),
        (("-m", "quick", "-r", "-5"), 2, "-5 requests per second is not a rate"),
        (("-m", "quick", "-r", "1", "-r", "2"), 2, "there are 2 rates for 1 models"),
        (("-m", "quick", "-r", "1", "-c", "1"), 2, "a closed loop makes its own rate"),
        (("-m", "quick", "-r", "1", "-d", "soon"), 2, "'soon' is not a duration"),
        (("-m", "quick", "-r", "1", "-d", "500ms"), 2, "before its warm-up of 1 s is over"),
        (("-m", "quick", "-r", "1", "--require", "0.9"), 2, "--require needs an objective"),
        (("-m", "quick", "-r", "1", "--arrivals", "trace"), 2, "--arrivals trace --trace FILE"),
        (("-m", "quick", "--arrivals", "trace", "--trace", "/none"), 3, "there is no such trace"),
        (("-m", "quick", "-r", "1", "--shape", "x"), 2, "'x' is no shape"),
        (("-m", "quick", "-r", "1", "--shape", "x:1x9"), 2, "does not fit the input 'x'"),
        (("-m", "quick", "-r", "1", "--input", "/none.json"), 3, "there is no such file"),
        (("-m", "quick", "-r", "1", "--input", "a.json", "--zeros"), 2, "examples have their own values"),
        (("-m", "gone", "-r", "1"), 3, "it has fake, quick"),
    ],
)
def test_mistakes_are_named(url: str, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in shoal_measure("run", "-u", url, *words, code=code).stderr


def test_no_server_no_entry_and_no_objective(url: str) -> None:
    assert "no server can be reached" in shoal_measure("run", "-u", "127.0.0.1:1", "-m", "x", "-r", "1", code=4).stderr
    assert "give a token" in shoal_measure("run", "-u", url, "-m", "fake", "-r", "1", code=5, token="wrong").stderr
    assert "give one objective" in shoal_measure("capacity", "-u", url, "-m", "fake", code=2).stderr
    problem = json.loads(shoal_measure("run", "-u", "ftp://x", "-m", "x", "-r", "1", "--json", code=2).stderr)
    assert problem["error"]["where"] == "url"
