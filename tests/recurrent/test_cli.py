"""`shoal recurrent`: what the commands print, write and refuse; artefacts."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file
from typer.testing import CliRunner, Result

from shoal.cli.app import app
from shoal.recurrent import BadNetwork, load
from shoal.recurrent.cells import library
from shoal.recurrent.llvm.target import host_features
from shoal.recurrent.nest.ir import Sizes
from tests.recurrent.support import spec_for
from tests.recurrent.test_onnx import lstm_between_others


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(app, ["recurrent", *map(str, words)])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights = spec_for(library.gru(), Sizes(4, 10)).weights
    tensors = {
        "weight_ih_l0": np.concatenate([weights.matrices[f"{gate}.x"] for gate in "rzn"]),
        "weight_hh_l0": np.concatenate([weights.matrices[f"{gate}.h"] for gate in "rzn"]),
    }
    save_file(tensors, tmp_path / "m.safetensors")
    return tmp_path / "m.safetensors"


def test_compile_explain_and_load(model: Path, own_cache: Path) -> None:
    made = run("compile", model, "--type", "int8", "--candidates", "2", "--steps", "3", "--threads", "2", "--json")
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert told["steps"][0]["layers"][0]["type"] == "int8"
    assert 0 < told["facts"]["error"]["relative_rms"] < 0.02
    assert told["facts"]["error"]["measured_on"] == "noise"
    assert [*told["facts"]["threads_tried"]] == ["1", "2"]
    shown = run("explain", model.with_suffix(".rnn"))
    assert shown.exit_code == 0, shown.output
    for text in ("GRU 4 to 10, int8", "for t in steps", "tried, by measured time", "of the roofline", "sessions: yes"):
        assert text in shown.stdout
    assert list(own_cache.glob("*.tuning.json"))
    x = np.random.default_rng(0).uniform(-1, 1, (5, 2, 4)).astype(np.float32)
    again = load(model, type="int8").run({"x": x})
    assert np.array_equal(load(model.with_suffix(".rnn")).run({"x": x})["y"], again["y"])


def test_an_artefact_of_onnx_keeps_its_segments_and_states(tmp_path: Path) -> None:
    path = lstm_between_others(tmp_path / "m.onnx")
    assert run("compile", path, "--candidates", "0").exit_code == 0
    net = load(tmp_path / "m.rnn")
    assert net.graph.pairs == {"h0": "hn", "c0": "cn"}
    x = np.ones((3, 1, 5), np.float32)
    with net.session() as session, load(path).session() as other:
        assert np.array_equal(session.step({"X": x})["out"], other.step({"X": x})["out"])


@pytest.mark.parametrize("kind", [("int8", "--max-error", "1e-6"), ("int4",)], ids=lambda one: one[0])
def test_an_error_that_is_too_large_is_refused_unless_it_is_accepted(kind: tuple[str, ...], model: Path) -> None:
    words = ("compile", model, "--candidates", "0", "--type", *kind)
    refused = run(*words)
    assert refused.exit_code == 2
    assert "--allow-error" in refused.output
    assert not model.with_suffix(".rnn").exists()
    assert run(*words, "--allow-error").exit_code == 0


def test_the_error_is_measured_on_calibration_data(model: Path, tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", x=np.ones((3, 1, 4), np.float32))
    made = run("compile", model, "--type", "bf16", "--candidates", "0", "--calibrate", tmp_path / "c.npz", "--json")
    assert json.loads(made.stdout)["facts"]["error"]["measured_on"] == "calibration data"
    np.savez(tmp_path / "o.npz", x=np.array([{}], object))
    assert run("compile", model, "--calibrate", tmp_path / "o.npz").exit_code == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--type", "fp8"), "fp8"),
        (("--set", "sr"), "NAME=VALUE"),
        (("--set", "sr=x"), "--set"),
        (("--cell", "lstm"), "3 gates"),
        (("--state", "a=b"), "only an ONNX file"),
    ],
)
def test_wrong_options_are_refused(words: tuple[str, ...], text: str, model: Path) -> None:
    found = run("compile", model, "--candidates", "0", *words)
    assert found.exit_code == 2
    assert text in found.output


def test_bench_compares_in_one_run(tmp_path: Path, model: Path) -> None:
    path = lstm_between_others(tmp_path / "m.onnx")
    found = run("bench", path, "--against", "onnxruntime", "--steps", "3", "--seconds", "0", "--json")
    assert found.exit_code == 0, found.output
    rows = json.loads(found.stdout)["rows"]
    assert [one["runtime"] for one in rows] == ["shoal fp32", "onnxruntime"]
    assert rows[1]["error"] < 1e-5
    assert run("bench", model, "--against", "onnxruntime").exit_code == 2
    assert run("bench", model, "--against", "keras").exit_code == 2


def test_chip_prints_the_table(tmp_path: Path) -> None:
    rows = json.loads(run("chip", "--json").stdout)["rows"]
    assert len(rows) == 10
    one = run("chip", "--cell", "gru", "--hidden", "2048", "--steps", "375")
    assert "5 x 8" in one.stdout
    assert "simulated" in one.stdout
    assert run("chip", "--cell", "rnn", "--hidden", "8").exit_code == 2


def entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as file:
        return {name: file.read(name) for name in file.namelist()}


@pytest.mark.few(count=3)
@pytest.mark.parametrize("what", ["version", "schedule", "weights", "cell", "json", "missing", "truncated"])
def test_a_damaged_artefact_is_refused(what: str, model: Path) -> None:
    path = model.with_suffix(".rnn")
    assert run("compile", model, "--candidates", "0").exit_code == 0
    parts = entries(path)
    manifest: Any = json.loads(parts["manifest.json"])
    if what == "version":
        manifest["version"] = 99
    elif what == "schedule":
        manifest["tunings"][0]["step"]["units"] = 10**9
    elif what == "cell":
        manifest["steps"][0]["layers"][0]["cell"]["nodes"][0] = ["system", [], "x", 0, ""]
    parts["manifest.json"] = b"{" if what == "json" else json.dumps(manifest).encode()
    if what == "weights":
        parts["weights/0.safetensors"] = b"\xff" * 64
    if what == "missing":
        del parts["weights/0.safetensors"]
    with zipfile.ZipFile(path, "w") as file:
        for name, data in parts.items():
            file.writestr(name, data)
    if what == "truncated":
        path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises((BadNetwork, Exception)) as caught:
        load(path)
    assert type(caught.value).__module__ == "shoal.recurrent.errors"


def test_doctor_says_what_is_missing_and_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    told = run("doctor", "--json")
    found = {one["name"]: one for one in json.loads(told.stdout)}
    assert told.exit_code == 0
    assert found["code generator"]["available"]
    assert all(one["available"] or one["consequence"] for one in found.values())
    assert found["AVX2"]["available"] == ("avx2" in host_features())
    monkeypatch.setattr("shoal.recurrent.doctor.best_target", lambda: None)
    told = run("doctor")
    assert told.exit_code == 1
    assert "ONNX files run in ONNX Runtime" in told.stdout
