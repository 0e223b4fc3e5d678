"""Networks as people export them from PyTorch: a voice detector and a speaker encoder, against ONNX Runtime."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from shoal.recurrent import BadInput, load
from tests.recurrent.support import distance


def exported(module: Any, inputs: tuple[Any, ...], path: Path, names: list[str], **options: Any) -> Path:
    """The module as an ONNX file, written by PyTorch's own exporter."""
    torch = pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module.eval(), inputs, str(path), input_names=names, dynamo=False, **options)
    return path


def voice_detector(path: Path) -> Path:
    """As silero-vad is built: a spectrum by a convolution, four convolutions, an LSTM of one step, one output."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Detector(nn.Module):  # type: ignore[misc, name-defined]  # torch is not there where types are checked
        def __init__(self) -> None:
            super().__init__()
            self.spectrum = nn.Conv1d(1, 66, 64, 32, bias=False)
            sizes = ((33, 32, 1), (32, 16, 2), (16, 16, 2), (16, 32, 1))
            self.encoder = nn.Sequential(
                *(layer for a, b, s in sizes for layer in (nn.Conv1d(a, b, 3, s, 1), nn.ReLU()))
            )
            self.lstm, self.decoder = nn.LSTM(32, 32), nn.Conv1d(32, 1, 1)

        def forward(self, x: Any, state: Any) -> Any:
            spectrum = self.spectrum(x.unsqueeze(1))
            size = torch.sqrt(spectrum[:, :33] ** 2 + spectrum[:, 33:] ** 2)
            made = self.encoder(size).permute(2, 0, 1)
            y, (h, c) = self.lstm(made, (state[:1], state[1:]))
            found = torch.sigmoid(self.decoder(torch.relu(y).permute(1, 2, 0)))
            return found.mean(dim=2), torch.cat([h, c])

    torch.manual_seed(0)
    given = torch.zeros(1, 144), torch.zeros(2, 1, 32)
    return exported(Detector(), given, path, ["x", "state"], output_names=["speech", "next"])


def encoder_of(bands: int, hidden: int, size: int) -> Any:
    """As Resemblyzer is built: three LSTMs on one another, and the last state, made a unit vector."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Encoder(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.lstm, self.linear = nn.LSTM(bands, hidden, 3, batch_first=True), nn.Linear(hidden, size)

        def forward(self, x: Any) -> Any:
            _, (h, _) = self.lstm(x)
            found = torch.relu(self.linear(h[-1]))
            return found / torch.norm(found, dim=1, keepdim=True)

    torch.manual_seed(0)
    return Encoder()


def speaker_encoder(path: Path) -> Path:
    torch = pytest.importorskip("torch")
    return exported(
        encoder_of(40, 48, 32), (torch.zeros(1, 9, 40),), path, ["x"], output_names=["voice"],
        dynamic_axes={"x": {0: "rows", 1: "steps"}},
    )  # fmt: skip


def reference(path: Path) -> Any:
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def test_a_voice_detector_goes_on_from_frame_to_frame(tmp_path: Path) -> None:
    path = voice_detector(tmp_path / "vad.onnx")
    net, theirs = load(path, state={"state": "next"}), reference(path)
    noise = np.random.default_rng(0).normal(0, 0.3, (20, 1, 144)).astype(np.float32)
    state = np.zeros((2, 1, 32), np.float32)
    with net.session() as session:
        for x in noise:
            speech, state = theirs.run(["speech", "next"], {"x": x, "state": state})
            assert distance(session.step({"x": x}, ("speech",))["speech"], speech) < 1e-5


def test_a_speaker_encoder_is_three_compiled_layers(tmp_path: Path) -> None:
    path = speaker_encoder(tmp_path / "encoder.onnx")
    net, theirs = load(path), reference(path)
    assert [type(step).__name__ for step in net.graph.steps] == ["Segment", *["Recurrence"] * 3, "Segment"]
    for rows, steps in ((1, 30), (3, 17)):
        x = np.random.default_rng(rows).normal(0, 1, (rows, steps, 40)).astype(np.float32)
        assert distance(net.run({"x": x})["voice"], theirs.run(["voice"], {"x": x})[0]) < 1e-5
    first = np.random.default_rng(9).normal(0, 1, (1, 12, 40)).astype(np.float32)
    with net.session() as session:  # its states are no inputs, and go on all the same
        session.step({"x": first[:, :5]})
        assert distance(session.step({"x": first[:, 5:]})["voice"], net.run({"x": first})["voice"]) < 1e-5


def test_without_a_code_generator_onnx_runtime_runs_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module("shoal.recurrent.loading"), "best_target", lambda: None)
    detector, encoder = voice_detector(tmp_path / "vad.onnx"), speaker_encoder(tmp_path / "encoder.onnx")
    net = load(detector, state={"state": "next"})
    assert not net.graph.recurrences
    assert "stays with ONNX Runtime: no code can be made here" in net.graph.remarks[0]
    x, theirs = np.ones((1, 144), np.float32), reference(detector)
    _, state = theirs.run(["speech", "next"], {"x": x, "state": np.zeros((2, 1, 32), np.float32)})
    with net.session() as session:
        session.step({"x": x})
        assert np.array_equal(session.step({"x": x})["next"], theirs.run(["next"], {"x": x, "state": state})[0])
    with pytest.raises(BadInput, match="begins anew at every step"):
        load(encoder).session()
