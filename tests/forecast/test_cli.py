"""The commands, from a table of measurements to a prediction."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from shoal.forecast.commands.forecast import register
from tests.forecast.test_models import networks, true_seconds
from tests.forecast.test_onnx_file import write


@pytest.fixture
def app() -> typer.Typer:
    made = typer.Typer()
    register(made)
    made.callback()(lambda: None)
    return made


def ask(app: typer.Typer, *words: Any, code: int = 0) -> str:
    result = CliRunner().invoke(app, ["forecast", *map(str, words)])
    assert result.exit_code == code, result.output
    return result.stdout if code == 0 else result.stderr


@pytest.fixture
def speeds(tmp_path: Path) -> Path:
    lines = [
        f"k80,net{n},{one.flops},{one.parameters},{one.tensors},{true_seconds(one)}"
        for n, one in enumerate(networks(12))
    ]
    (path := tmp_path / "speeds.csv").write_text("\n".join(["kind,model,flops,parameters,tensors,seconds", *lines]))
    return path


def test_a_fitted_speed_is_told_with_its_interval(app: typer.Typer, speeds: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    assert f"wrote {model}" in ask(app, "fit", "speed", speeds, "--out", model)
    one = networks(1)[0]
    words = ("speed", "-m", model, "--flops", one.flops, "--parameters", one.parameters, "--tensors", one.tensors)
    found = json.loads(ask(app, *words, "-k", "k80", "--json"))
    assert found["median"] == pytest.approx(1 / true_seconds(one), rel=0.1)
    assert found["low"] < found["median"] < found["high"]
    assert "inferred from 12 other models measured on k80" in ask(app, *words, "-k", "k80")
    assert "nothing was measured on 'abacus'" in ask(app, *words, "-k", "abacus", code=3)
    assert "inferred from k80 by the data sheets: none on v100" in ask(app, *words, "-k", "v100")


def test_features_are_told_as_options(app: typer.Typer, tmp_path: Path) -> None:
    assert (
        ask(app, "features", write(tmp_path), "--batch", 10).strip()
        == "--flops 1.536e+06 --parameters 4221 --tensors 3"
    )


def test_a_fitted_lifetime_is_told(app: typer.Typer, tmp_path: Path) -> None:
    lives = [f"k80,east,{life},{gone}" for life, gone in [(1800, 1)] * 10 + [(86400, 0)] * 20]
    (path := tmp_path / "lives.csv").write_text("\n".join(["kind,region,lifetime_s,revoked", *lives]))
    model = tmp_path / "model.json"
    ask(app, "fit", "lifetime", path, "-o", model)
    words = ("lifetime", "-m", model, "-k", "k80", "--ahead", 1)
    found = json.loads(ask(app, *words, "-r", "east", "--json"))
    assert found["survival"] == pytest.approx(2 / 3, abs=0.1)
    assert found["source"] == "measured for k80 in east"
    assert "none was seen of this one" in ask(app, *words, "-r", "west")

    found = json.loads(ask(app, "cluster", "-m", model, "-k", "k80", "-r", "east", "--work", 12, "--checkpoint", 20,
                           "--restart", 120, "--json"))  # fmt: skip
    assert 12 * 3600 < found["median"] < 16 * 3600
    assert 300 < found["checkpoint_every_s"] < 3600
    words = ("cluster", "-m", model, "-k", "k80", "-r", "east", "--work", 12, "--restart", 120, "--every", 500)
    assert "with a checkpoint every 500 s" in ask(app, *words, "--checkpoint", 0)
    assert "a positive time of a checkpoint" in ask(app, *words[:-2], "--checkpoint", 0, code=2)


def test_a_slowdown_in_a_table_is_told_with_its_remedy(app: typer.Typer, tmp_path: Path) -> None:
    def told(steps: list[tuple[float, float]], *words: str, code: int = 0) -> str:
        lines = [f"{seconds},{wait}" for seconds, wait in steps]
        (path := tmp_path / "steps.csv").write_text("\n".join(["step_s,input_wait_s", *lines]))
        return ask(app, "bottleneck", path, *words, code=code)

    quiet = [(0.5, 0.1), (0.51, 0.11)] * 20
    assert "no slowdown" in told(quiet)
    slow = told([*quiet, *[(0.7, 0.3)] * 10])
    assert "from about step 40 on" in slow
    assert "input pipeline; give the job more cores" in slow
    assert json.loads(told(quiet, "--json")) == {"slowdown": None}
    assert "positive seconds" in told([(-1, 0)], code=2)


@pytest.mark.few
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("kind,model\n", "has no column flops, parameters, tensors, seconds"),
        ("kind,model,flops,parameters,tensors,seconds\nk80,a,0,1,1,1\n", "speeds.csv:2"),
        ("kind,model,flops,parameters,tensors,seconds\nk80,a,1,1,1,-1\n", "must be a positive number, not -1"),
        ("kind,model,flops,parameters,tensors,seconds\nk80,a,1,1,1,1\n", "at least 2 are needed"),
    ],
)
def test_a_wrong_table_is_refused_with_its_line(app: typer.Typer, tmp_path: Path, text: str, told: str) -> None:
    (path := tmp_path / "speeds.csv").write_text(text)
    assert told in ask(app, "fit", "speed", path, "-o", tmp_path / "model.json", code=2)


def test_a_model_of_another_sort_is_refused(app: typer.Typer, speeds: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.json"
    ask(app, "fit", "speed", speeds, "-o", model)
    assert "expected the model 'lifetimes'" in ask(app, "lifetime", "-m", model, "-k", "k80", "-r", "east", code=2)
    assert "cannot be read" in ask(app, "lifetime", "-m", tmp_path / "no", "-k", "k80", "-r", "east", code=2)


def test_devices_have_their_source(app: typer.Typer) -> None:
    told = json.loads(ask(app, "devices", "--json"))
    v100 = next(one for one in told if one["kind"] == "v100")
    assert v100["tflops"] == {"fp32": 15.7, "fp16": 125.0}
    assert all("data sheet" in one["source"] for one in told)


def test_a_pytorch_model_needs_a_shape(app: typer.Typer) -> None:
    with pytest.raises(AssertionError, match="needs the shape of a sample"):
        ask(app, "features", "net.pt")


@pytest.mark.slow
def test_the_hour_of_the_day_counts_where_it_was_measured(app: typer.Typer, tmp_path: Path) -> None:
    lives = ["k80,east,1800,1,12"] * 10 + ["k80,east,86400,0,"] * 20
    (path := tmp_path / "lives.csv").write_text("\n".join(["kind,region,lifetime_s,revoked,hour", *lives]))
    ask(app, "fit", "lifetime", path, "-o", model := tmp_path / "model.json")
    words = ("lifetime", "-m", model, "-k", "k80", "-r", "east", "--json")
    noon, night = (json.loads(ask(app, *words, "--clock", hour))["survival"] for hour in (12, 2))
    assert noon < night
    path.write_text(path.read_text().replace(",1,12", ",1,24"))
    with pytest.raises(AssertionError, match="hour of the day is 0 to 23"):
        ask(app, "fit", "lifetime", path, "-o", model)


def lives_of(tmp_path: Path) -> Path:
    rows = [{"kind": "k80", "region": "east", "lifetime_s": 3600 * (n % 20 + 0.5), "revoked": int(n % 3 > 0)}
            for n in range(60)]  # fmt: skip
    (path := tmp_path / "lives.json").write_text(json.dumps(rows))
    return path


@pytest.mark.slow
def test_speed_lifetime_and_total_time_are_drawn(app: typer.Typer, speeds: Path, tmp_path: Path) -> None:
    model, lives, page = tmp_path / "m.json", tmp_path / "l.json", tmp_path / "page.html"
    ask(app, "fit", "speed", speeds, "-o", model)
    ask(app, "fit", "lifetime", lives_of(tmp_path), "-o", lives)
    one = ("--flops", 1e9, "--parameters", 1e6, "--tensors", 50)
    ask(app, "speed", "-m", model, "-k", "v100", *one, "--plot", page)
    assert "<svg" in page.read_text()
    assert "k80" in page.read_text()
    ask(app, "lifetime", "-m", lives, "-k", "k80", "-r", "east", "--ahead", 12, "--plot", page)
    assert "part that is still there" in page.read_text()
    where = ("-m", lives, "-k", "k80", "-r", "east", "--work", 3, "--checkpoint", 10, "--restart", 60)
    told = json.loads(ask(app, "cluster", *where, "--servers", 4, "--plot", page, "--json"))
    assert "time between checkpoints" in page.read_text()
    alone = json.loads(ask(app, "cluster", *where, "--json"))
    assert told["median"] > alone["median"]
    assert told["checkpoint_every_s"] < alone["checkpoint_every_s"]
    assert "cannot be written" in ask(
        app, "lifetime", "-m", lives, "-k", "k80", "-r", "east", "--plot", tmp_path, code=2
    )


@pytest.mark.slow
def test_gangs_are_fitted_and_told(app: typer.Typer, tmp_path: Path) -> None:
    servers, ring, model = tmp_path / "servers.csv", tmp_path / "ring.json", tmp_path / "gang.json"
    lines = ["model,flops,parameters,tensors,alone_per_s,workers,servers,steps_per_s"]
    lines += [f"m{n},1e9,{n}e6,{40 * n},10,{workers},1,{workers * 9}" for n in (1, 2) for workers in (1, 2, 4)]
    servers.write_text("\n".join(lines))
    ask(app, "fit", "parameter-server", servers, "-o", model)
    words = ("gang", "-m", model, "--parameters", 1e6, "--tensors", 40, "--alone", 10, "--alone", 10)
    assert json.loads(ask(app, *words, "--json"))["median"] == pytest.approx(18, rel=0.15)
    rows = [
        {"model": f"m{n}", "weight_bytes": n * 4e6, "tensors": 40, "alone_s": 0.1, "workers": workers,
         "seconds": 0.1 + 2 * (workers - 1) / workers * n * 4e6 * 1e-9}
        for n in (1, 2, 4) for workers in (1, 2, 4)
    ]  # fmt: skip
    ring.write_text(json.dumps(rows))
    ask(app, "fit", "all-reduce", ring, "-o", model)
    assert json.loads(ask(app, *words, "--json"))["median"] == pytest.approx(1 / 0.104, rel=0.02)
    assert "inferred from gangs of 3 other models" in ask(app, *words)


ROW = {"model": "m", "weight_bytes": 1, "tensors": 1, "alone_s": 1, "workers": 1, "seconds": 1}


@pytest.mark.few(count=2)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{}", "is no array of measurements"),
        ("[1]", "has no model, weight_bytes"),
        ('[{"model": "m"}]', "has no weight_bytes"),
        ("[", "is no JSON"),
        (json.dumps([{**ROW, "weight_bytes": -1}]), "positive number"),
        (json.dumps([{**ROW, "workers": 0}]), "counted from 1"),
        ("[]", "two models at least"),
    ],
)  # fmt: skip
def test_wrong_measurements_are_told_by_file_and_row(app: typer.Typer, tmp_path: Path, text: str, told: str) -> None:
    (path := tmp_path / "wrong.json").write_text(text)
    assert told in ask(app, "fit", "all-reduce", path, "-o", tmp_path / "out.json", code=2)


@pytest.mark.few
@pytest.mark.parametrize(
    "text", ["[]", "{}", '{"model": "lifetimes", "version": 1}', '{"model": "step-time", "version": 1}']
)
def test_wrong_models_are_told(app: typer.Typer, tmp_path: Path, text: str) -> None:
    (path := tmp_path / "wrong.json").write_text(text)
    for words in (
        ("speed", "-k", "k80", "--flops", 1, "--parameters", 1, "--tensors", 1), ("lifetime", "-k", "a", "-r", "b"),
        ("cluster", "-k", "a", "-r", "b", "--work", 1, "--checkpoint", 1, "--restart", 1),
        ("gang", "--alone", 1, "--tensors", 1, "--parameters", 1),
    ):  # fmt: skip
        assert "wrong.json" in ask(app, *words, "-m", path, code=2)


@pytest.mark.few
@pytest.mark.parametrize(
    "words", [("--work", "inf"), ("--every", "inf"), ("--restart", "inf"), ("--checkpoint", "nan")]
)
def test_times_of_a_training_are_finite(app: typer.Typer, tmp_path: Path, words: tuple[str, str]) -> None:
    lives, model = tmp_path / "lives.csv", tmp_path / "lives.json"
    lives.write_text("kind,region,lifetime_s,revoked\n" + "".join(f"k80,r,{3000 * n},1\n" for n in range(1, 13)))
    ask(app, "fit", "lifetime", lives, "--out", model)
    given = {"--work": "5", "--checkpoint": "5", "--restart": "10", "--every": "600", words[0]: words[1]}
    said = ask(
        app, "cluster", "-m", model, "-k", "k80", "-r", "r", *(one for pair in given.items() for one in pair), code=2
    )
    assert "finite, not" in said


def test_a_start_up_is_fitted_to_launches_and_told_by_its_place(app: typer.Typer, tmp_path: Path) -> None:
    rows = [f"spot,east,k80,{seconds}" for seconds in (80, 85, 90, 95, 100)]
    rows += [f"spot,west,p100,{seconds}" for seconds in (110, 120)]
    (launches := tmp_path / "launches.csv").write_text("\n".join(["offer,region,kind,seconds", *rows]))
    model, page = tmp_path / "start-up.json", tmp_path / "page.html"
    ask(app, "fit", "start-up", launches, "--out", model)
    told = ["start-up", "-m", model, "--offer", "spot"]
    here = json.loads(ask(app, *told, "-r", "east", "-k", "k80", "--plot", page, "--json"))
    assert here["median"] == pytest.approx(90, rel=0.01)
    assert here["low"] < 80 < 100 < here["high"]
    assert here["source"] == "measured on 5 servers of the same place"
    assert "spot k80 in east" in page.read_text()
    assert "inferred from 2 places with spot servers" in ask(app, *told, "-r", "north", "-k", "k80")
    wrong = ["start-up", "-m", model, "--offer", "lease", "-r", "east", "-k", "k80"]
    assert "no 'lease' server was measured" in ask(app, *wrong, code=3)
    launches.write_text("offer,region,kind,seconds\nspot,east,k80,-3\n")
    assert f"{launches}:2" in ask(app, "fit", "start-up", launches, "--out", model, code=2)
