"""Jobs side by side: what is compared, and the command with a real server."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import dataclass
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from shoal.base.home import Home, stop_server
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.results.compare import differences, reported
from shoal.sdk import Client


@dataclass(frozen=True)
class Said:
    attempt: int
    step: int | None
    name: str
    value: float | None
    at: float = 0.0


def test_an_attempt_that_goes_on_replaces_what_was_lost() -> None:
    points = [Said(1, step, "loss", 10.0 - step) for step in range(5)]
    points += [Said(2, step, "loss", 100.0 - step) for step in (3, 4)]
    found = reported([*points, Said(2, 5, "loss", None), Said(2, None, "rate", 7.0), Said(2, None, "rate", 8.0)])
    assert found["loss"].curve == {0: 10.0, 1: 9.0, 2: 8.0, 3: 97.0, 4: 96.0}
    assert (found["loss"].last, found["loss"].least, found["loss"].greatest) == (96.0, 8.0, 97.0)
    assert found["rate"].curve == {0: 7.0, 1: 8.0}


def test_each_metric_knows_by_itself_when_an_attempt_began_again() -> None:
    first = [Said(1, step, name, float(step)) for step in range(4) for name in ("loss", "rate")]
    found = reported([*first, Said(2, 1, "loss", 10.0), Said(2, 2, "loss", 20.0), Said(2, 3, "rate", 30.0)])
    assert found["loss"].curve == {0: 0.0, 1: 10.0, 2: 20.0}
    assert found["rate"].curve == {0: 0.0, 1: 1.0, 2: 2.0, 3: 30.0}
    assert reported([*first, Said(1, 1, "loss", 9.0)])["loss"].curve == {0: 0.0, 1: 9.0, 2: 2.0, 3: 3.0}


said = st.builds(
    Said, st.integers(1, 3), st.none() | st.integers(0, 20), st.sampled_from(["a", "b"]),
    st.none() | st.floats(-1e6, 1e6),
)  # fmt: skip


@given(st.lists(said))
def test_each_metric_has_what_it_said_last(points: list[Said]) -> None:
    points = sorted(points, key=lambda one: one.attempt)
    found = reported(points)
    for name in ("a", "b"):
        values = [one.value for one in points if one.name == name and one.value is not None]
        assert (name in found) is bool(values)
        if values:
            assert values[-1] in found[name].curve.values()
            assert found[name].least <= found[name].last <= found[name].greatest
            assert set(found[name].curve.values()) <= set(values)


def test_manifests_differ_in_what_they_say() -> None:
    one = {"name": "a", "command": ["x", "1"], "env": {"LR": "1"}, "ranks": 1}
    two = {"name": "b", "command": ["x", "2"], "env": {"LR": "1", "SEED": "3"}, "ranks": 1}
    assert differences([one, two]) == {"command": ["x 1", "x 2"], "env.SEED": [None, "3"]}
    assert differences([one]) == {}


SCRIPT = """
import json, os
with open(os.environ["SHOAL_METRICS_FILE"], "a") as file:
    for step in range(3):
        print(json.dumps({"step": step, "metrics": {"loss": float(os.environ["LR"]) / (step + 1)}}), file=file)
"""


def test_two_jobs_as_a_table_a_page_and_csv(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "2"], home)
    try:
        with Client(home=home.path, environ={}) as client:
            for rate in ("1", "4"):
                made = {"name": f"lr-{rate}", "command": ["python", "-c", SCRIPT], "env": {"LR": rate}}
                client.wait(client.submit(made).id, timeout_s=60)
        jobs = ["compare", "lr-1", "lr-4", "--home", str(home.path)]
        page = tmp_path / "page.html"
        shown = CliRunner().invoke(app, [*jobs, "--html", str(page)])
        assert shown.exit_code == 0, shown.output
        lines = {line.split("  ")[0]: line for line in shown.output.splitlines()}
        assert lines["env.LR"].split() == ["env.LR", "1", "4"]
        assert "0.333333 at 2 (0.3333 to 1)" in lines["loss"]
        assert "1.33333 at 2 (1.333 to 4)" in lines["loss"]
        assert "<svg" in page.read_text()
        told = json.loads(CliRunner().invoke(app, [*jobs, "--json", "--metric", "nothing"]).stdout)
        assert told["differences"] == {"env.LR": ["1", "4"]}
        assert [one["metrics"] for one in told["jobs"]] == [{}, {}]
        out = CliRunner().invoke(app, ["metrics", "lr-4", "--csv", "--home", str(home.path)]).stdout
        rows = list(csv.DictReader(io.StringIO(out)))
        assert [(one["step"], one["name"], float(one["value"])) for one in rows[:2]] == [
            ("0", "loss", 4.0),
            ("1", "loss", 2.0),
        ]
        missing = CliRunner().invoke(app, ["compare", "lr-1", "nobody", "--home", str(home.path)])
        assert missing.exit_code == 3
    finally:
        stop_server(home, timeout_s=20)
