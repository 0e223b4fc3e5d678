"""`shoal schedule`, as it is typed."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shoal.cli.app import app
from tests.schedule.kit import line, table, write_table, write_trace


def shoal(*words: str | Path, code: int = 0) -> Result:
    result = CliRunner().invoke(app, ["schedule", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == code, (result.stdout, result.stderr)
    return result


@pytest.fixture
def inputs(tmp_path: Path) -> list[str | Path]:
    jobs = [
        line(kind, 20_000 * (at + 1), 1 + at % 2, at=300 * at) for at, kind in enumerate(["alpha", "beta", "gamma"])
    ]
    trace = write_trace(tmp_path, *jobs, *jobs)
    return ["--trace", trace, "--throughputs", write_table(tmp_path), "--cluster", "fast=2,slow=2"]


class TestSimulate:
    def test_a_table_for_people(self, inputs: list[str | Path]) -> None:
        text = shoal("simulate", *inputs, "--policy", "max-min,fifo").stdout
        assert text.startswith("simulated: ")
        assert "max-min" in text
        assert "fifo" in text

    def test_json_for_programs(self, inputs: list[str | Path], tmp_path: Path) -> None:
        out = tmp_path / "out.json"
        shoal("simulate", *inputs, "--policy", "max-min,blend", "--json", out)
        found = json.loads(out.read_text())
        assert found["simulated"] is True
        assert list(found["policies"]) == ["max-min", "blend"]
        for each in found["policies"].values():
            assert {"avg_jct_h", "p99_jct_h", "makespan_h", "migrations", "utilisation", "policy_cpu_s"} <= set(each)
            assert each["jobs"] == 6
        assert json.loads(shoal("simulate", *inputs, "--json", "-").stdout)["policies"]["max-min"]["simulated"] is True

    def test_files_of_jobs_and_figures(self, inputs: list[str | Path], tmp_path: Path) -> None:
        rows, plot = tmp_path / "jobs.csv", tmp_path / "page.html"
        shoal("simulate", *inputs, "--policy", "max-min,fifo", "--csv", rows, "--plot", plot)
        with rows.open() as file:
            assert len(list(csv.DictReader(file))) == 12
        assert plot.read_text().startswith("<!doctype html>")

    def test_bare_json_goes_to_stdout(self, inputs: list[str | Path], tmp_path: Path) -> None:
        for words in (["--json"], ["--json", "--policy", "fifo"], ["--json", "-"]):
            assert json.loads(shoal("simulate", *inputs, *words).stdout)["simulated"] is True
        shoal("simulate", *inputs, "--json", tmp_path / "out.json", "--policy", "fifo")
        assert list(json.loads((tmp_path / "out.json").read_text())["policies"]) == ["fifo"]

    @pytest.mark.parametrize("option", ["--json", "--csv", "--plot"])
    def test_where_nothing_can_be_written_nothing_is_simulated(
        self, inputs: list[str | Path], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("mine")

        def never(*_: object, **__: object) -> None:
            raise AssertionError("it was simulated")

        monkeypatch.setattr("shoal.schedule.commands.inputs.simulate", never)
        for wrong in (tmp_path / "none" / "out", tmp_path, tmp_path / "file" / "out"):
            told = shoal("simulate", *inputs, option, wrong, code=2).stderr
            assert "cannot be written" in told
            assert option in told

    def test_a_result_takes_the_place_of_the_one_before_and_leaves_nothing_beside(
        self, inputs: list[str | Path], tmp_path: Path
    ) -> None:
        folder = tmp_path / "results"
        folder.mkdir()
        (folder / "rows.csv").write_text("before")
        shoal("simulate", *inputs, "--csv", folder / "rows.csv", "--plot", "/dev/null")
        assert (folder / "rows.csv").read_text().startswith("policy")
        assert [path.name for path in folder.iterdir()] == ["rows.csv"]

    def test_a_form_that_a_policy_lacks_is_said_to_be_left_out(self, inputs: list[str | Path]) -> None:
        told = shoal(
            "simulate", *inputs, "--policy", "isolated,max-min", "--space-sharing", "--mechanism", "gavel"
        ).stderr
        assert "isolated knows no --space-sharing" in told
        assert "max-min knows" not in told

    def test_every_option_at_once(self, inputs: list[str | Path], tmp_path: Path) -> None:
        prices = tmp_path / "prices.csv"
        prices.write_text("seconds,type,usd_per_hour\n0,fast,2\n")
        text = shoal(
            "simulate", *inputs, "-p", "max-min", "--round", "180", "--seed", "3", "--gpus-per-node", "2",
            "--measure-jobs", "1:4", "--restart-cost", "30", "--agnostic", "--lengths", "predicted:2",
            "--mechanism", "shoal", "--checkpoint", "600:5", "--mtbf", "500", "--prices", prices, "--json", "-",
        ).stdout  # fmt: skip
        found = json.loads(text)["policies"]["max-min"]
        assert found["jobs"] == 3
        assert found["cost_usd"] > 0
        assert found["accelerator_hours_lost"] > 0

    def test_accelerators_may_be_shared_and_gangs_spread(self, inputs: list[str | Path], tmp_path: Path) -> None:
        shoal("simulate", *inputs, "--policy", "max-min", "--space-sharing", "--mechanism", "gavel")
        speeds = table()
        spread = {f"{name}_unconsolidated": found for name, found in table().items()}
        path = tmp_path / "both.json"
        path.write_text(json.dumps(speeds | spread))
        both = [*inputs[:3], path, *inputs[4:], "--gpus-per-node", "1", "--unconsolidated", "--mechanism", "shoal"]
        shoal("simulate", *both, "--policy", "max-min")

    def test_gangs_that_were_not_measured_may_be_scaled(self, inputs: list[str | Path], tmp_path: Path) -> None:
        trace = write_trace(tmp_path, line(gang=3), name="large.trace")
        words = ["simulate", "--trace", trace, *inputs[2:4], "--cluster", "fast=4"]
        assert "--scale-gangs" in shoal(*words, code=2).stderr
        shoal(*words, "--scale-gangs")

    def test_a_snapshot_is_a_trace(self, snapshot: Path) -> None:
        found = json.loads(shoal("simulate", "--trace", snapshot, "--policy", "fifo", "--json", "-").stdout)
        assert found["policies"]["fifo"]["jobs"] == 3
        more = shoal("simulate", "--trace", snapshot, "--policy", "fifo", "--cluster", "fast=8", "--json", "-").stdout
        assert json.loads(more)["policies"]["fifo"]["avg_jct_h"] < found["policies"]["fifo"]["avg_jct_h"]

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (["--policy", "best"], "there is no policy 'best'"),
            (["--policy", ","], "no policy is named"),
            (["--cluster", "fast"], "'fast' is no pool"),
            (["--cluster", "fast=2,fast=3"], "fast is named twice"),
            (["--cluster", "tpu=4"], "no throughputs for tpu"),
            (["--cluster", "fast=1"], "a gang of 2 fits in no pool"),
            (["--measure-jobs", "4"], "no range of jobs"),
            (["--measure-jobs", "4:9"], "the trace has 6"),
            (["--lengths", "guess"], "known, unknown, or predicted"),
            (["--lengths", "unknown", "--policy", "max-min,makespan"], "makespan needs to know"),
            (["--checkpoint", "often"], "EVERY:COST"),
            (["--mtbf", "0"], "hours between failures"),
            (["--round", "0"], "round_s"),
            (["--unconsolidated"], "no throughputs for fast_unconsolidated|machines of a known size"),
        ],
    )
    def test_wrong_input_is_named_and_nothing_is_simulated(
        self, inputs: list[str | Path], words: list[str], message: str, tmp_path: Path
    ) -> None:
        import re

        out = tmp_path / "never.json"
        result = shoal("simulate", *inputs, *words, "--json", out, code=2)
        assert re.search(message, " ".join(result.stderr.split()))
        assert not out.exists()

    def test_wrong_files_are_named_with_their_line(self, inputs: list[str | Path], tmp_path: Path) -> None:
        trace = write_trace(tmp_path, line(), line(steps=-4), name="wrong.trace")
        assert "wrong.trace:2" in shoal("simulate", "--trace", trace, *inputs[2:], code=2).stderr
        shoal("simulate", "--trace", tmp_path / "none", *inputs[2:], code=3)
        assert "has no 'alpha'" in shoal("simulate", *inputs[:2], "--cluster", "v100=4", code=2).stderr
        assert "--cluster" in shoal("simulate", *inputs[:4], code=2).stderr


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    jobs: list[dict[str, Any]] = [
        {"job": f"j{at}", "throughput": {"fast": 10.0, "slow": 4.0}, "work_left": 40_000.0, "arrived": 0.0}
        for at in range(3)
    ]
    head = {"shoal": "schedule", "version": 1, "now": 60.0}
    lines = [head, {"pool": "fast", "count": 1}, {"pool": "slow", "count": 1}, *jobs]
    return write_trace(tmp_path, *map(json.dumps, lines), name="live.jsonl")


class TestSnapshots:
    def test_solve(self, snapshot: Path) -> None:
        assert "max-min would decide" in shoal("solve", "--snapshot", snapshot).stdout
        found = json.loads(shoal("solve", "--snapshot", snapshot, "--json").stdout)
        assert found["simulated"] is True
        assert sum(job["time"] for job in found["jobs"].values()) == pytest.approx(2.0)
        assert found["certificate"]["gap"] < 1e-6
        assert found["prices"]["fast"] > found["prices"]["slow"] > 0

    def test_explain(self, snapshot: Path) -> None:
        assert "fast" in shoal("explain", "--snapshot", snapshot).stdout
        found = json.loads(shoal("explain", "--snapshot", snapshot, "j1", "--policy", "fifo", "--json").stdout)
        assert list(found["jobs"]) == ["j1"]
        assert found["jobs"]["j1"]["text"]
        assert "no job j9" in shoal("explain", "--snapshot", snapshot, "j9", code=3).stderr

    def test_forms_that_a_policy_does_not_have(self, snapshot: Path) -> None:
        assert "--agnostic" in shoal("solve", "--snapshot", snapshot, "--policy", "blend", "--agnostic", code=2).stderr


def test_compare(inputs: list[str | Path]) -> None:
    assert "as multiples of max-min" in shoal("compare", *inputs, "--policy", "max-min,fifo").stdout
    found = json.loads(shoal("compare", *inputs, "--policy", "max-min,fifo", "--json").stdout)
    assert found["base"] == "max-min"
    assert found["policies"][0]["relative"]["avg_jct_h"] == 1.0
    assert "at least two" in shoal("compare", *inputs, "--policy", "fifo", code=2).stderr


def test_a_table_says_which_policy_resized_which_jobs(inputs: list[str | Path]) -> None:
    words = [*inputs, "--policy", "max-min,elastic"]
    assert "elastic resized no job (--elastic lets it): all policies ran" in shoal("compare", *words).stdout
    said = " ".join(shoal("compare", *words, "--elastic").stdout.split())
    assert "elastic chose the sizes of 6 of 6 jobs, among those that their kinds were measured with" in said
    found = json.loads(shoal("compare", *words, "--elastic", "--json").stdout)
    assert [each["resizable_jobs"] for each in found["policies"]] == [0, 6]


def test_a_generated_trace_can_be_simulated(tmp_path: Path) -> None:
    from tests.schedule.kit import gavel_table

    speeds = gavel_table()
    body: dict[str, dict[str, dict[str, float]]] = {name: {} for name in speeds.types}
    for (kind, gang), row in speeds.keys.items():
        for at, name in enumerate(speeds.types):
            body[name][f"('{kind}', {gang})"] = {"null": float(speeds.rate[row, at])}
    path, trace = tmp_path / "speeds.json", tmp_path / "jobs.trace"
    path.write_text(json.dumps(body))
    for kind in ("gavel", "philly"):
        text = shoal(
            "generate", "--throughputs", path, "--out", trace, "--jobs", "20", "--kind", kind, "--gangs"
        ).stdout
        assert text.startswith("20 jobs over")
        shoal("simulate", "--trace", trace, "--throughputs", path, "--cluster", "v100=8,p100=8", "--policy", "blend")


def test_without_a_table_there_is_an_example(tmp_path: Path) -> None:
    trace = tmp_path / "small.trace"
    assert "made-up" in shoal("generate", "--out", trace, "--jobs", "12", "--gangs").stdout
    words = ["--trace", trace, "--cluster", "v100=8,p100=8,k80=8", "--policy", "max-min,fifo"]
    told = shoal("simulate", *words, "--space-sharing", "--mechanism", "gavel")
    assert "made-up" in told.stderr
    assert "made-up" in shoal("compare", *words).stderr
    shoal("generate", "--kind", "philly", "--out", trace, "--jobs", "12", "--accelerators", "16")
    assert len(trace.read_text().splitlines()) == 12
    assert "cannot be written" in shoal("generate", "--out", tmp_path / "none" / "x.trace", code=2).stderr


def test_heavy_tailed_traces_can_be_generated(tmp_path: Path) -> None:
    trace, again = tmp_path / "tails.trace", tmp_path / "again.trace"
    options = {
        "kind": "heavy-tailed", "jobs": 40, "accelerators": 12, "load": 1.2, "burst": 2, "durations": "pareto",
        "tail": 1.5, "median": 10, "gang-mix": "1=0.8,2=0.2", "seed": 3,
    }  # fmt: skip
    words = ["generate", *(word for name, value in options.items() for word in (f"--{name}", str(value)))]
    assert shoal(*words, "--out", trace).stdout.startswith("40 jobs over")
    shoal(*words, "--out", again)
    assert again.read_text() == trace.read_text()
    rows = [each.split("\t") for each in trace.read_text().splitlines()]
    assert {row[6] for row in rows} == {"1", "2"}
    assert len({row[9] for row in rows}) < 40, "some came at once"
    shoal("simulate", "--trace", trace, "--cluster", "v100=4,p100=4,k80=4", "--policy", "max-min,blend")
    for mix, message in (("1:2", "no part of jobs"), ("1=1,1=2", "named twice"), ("1=-1", "1=-1")):
        assert message in shoal(*words, "--out", again, "--gang-mix", mix, code=2).stderr
