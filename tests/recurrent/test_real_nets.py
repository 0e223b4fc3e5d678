"""Weights of 8 bits in nets that people use, on speech made by `espeak-ng` and noise: what they decide stays."""

from __future__ import annotations

import importlib.util
import io
import shutil
import subprocess
import wave
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

from shoal.recurrent import load
from tests.recurrent.test_nets import encoder_of, exported

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.skipif(shutil.which("espeak-ng") is None, reason="no espeak-ng: apt-get install espeak-ng"),
]
RATE, FRAME, BEFORE = 16_000, 512, 64
TEXTS = (
    "The quick brown fox jumps over the lazy dog, and then it rests for a long while in the shade of an old tree.",
    "Please call Stella. Ask her to bring these things with her from the store: six spoons of fresh snow peas.",
    "When the sunlight strikes raindrops in the air, they act as a prism and form a rainbow of many colours.",
)
VOICES = [f"{language}+{kind}" for language in ("en", "en-us", "de", "fr", "it") for kind in ("m3", "f2", "m7", "f4")]


def file_of(package: str, name: str) -> Path:
    found = importlib.util.find_spec(package)
    if found is None or found.origin is None:
        pytest.skip(f"no {package}: pip install --no-deps {package}")
    return Path(found.origin).parent / name


def spoken(text: str, voice: str) -> Any:
    """Samples at 16 kHz, from -1 to 1."""
    made = subprocess.run(["espeak-ng", "--stdout", "-v", voice, text], capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(made)) as file:
        data = np.frombuffer(file.readframes(1 << 30), np.int16)[: (len(made) - 44) // 2] / 32768
        times = np.arange(0, len(data), file.getframerate() / RATE)
    return np.interp(times, np.arange(len(data)), data).astype(np.float32)


def test_a_voice_detector_decides_as_with_all_its_bits() -> None:
    """Two seconds of silence around each sentence, and noise from hardly any to as loud as the voice."""
    path = file_of("silero_vad", "data/silero_vad_16k_op15.onnx")
    noise = np.random.default_rng(0)
    pause = np.zeros(RATE, np.float32)
    pieces = []
    for at, voice in enumerate(VOICES):
        said = np.concatenate([pause, spoken(TEXTS[at % len(TEXTS)], voice), pause])
        pieces.append(said + noise.normal(0, (0.001, 0.01, 0.05)[at % 3], len(said)).astype(np.float32))
    sound = np.concatenate(pieces)
    frames = [sound[at - BEFORE : at + FRAME][None] for at in range(BEFORE, len(sound) - FRAME, FRAME)]
    fixed = {"set": {"sr": 16000}, "state": {"state": "stateN"}, "shape": {"input": [1, 576], "state": [2, 1, 128]}}
    decided = {}
    for kind in ("fp32", "bf16", "int8"):
        with load(path, type=kind, **fixed).session() as session:  # type: ignore[arg-type]
            decided[kind] = np.array([session.step({"input": one}, ("output",))["output"].item() for one in frames])
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    state, wanted = np.zeros((2, 1, 128), np.float32), []
    for one in frames:
        given = {"input": one, "state": state, "sr": np.array(16000, np.int64)}
        speech, state = theirs.run(["output", "stateN"], given)
        wanted.append(speech.item())
    exact = np.array(wanted)
    assert len(frames) > 3000
    assert 0.3 < (exact > 0.5).mean() < 0.9
    assert np.abs(decided["fp32"] - exact).max() < 1e-4
    changed = {kind: int(((one > 0.5) != (exact > 0.5)).sum()) for kind, one in decided.items()}
    print(len(frames), changed)
    assert changed["fp32"] == 0
    assert max(changed.values()) <= 0.0005 * len(frames)


def mel(sound: Any) -> Any:
    """Power in 40 bands of Slaney's scale, [frames of 10 ms, 40], as the encoder was trained on."""
    size, hop, bands = 400, 160, 40

    def hertz(mels: Any) -> Any:
        return np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))

    edges = hertz(np.linspace(0, 15 + 27 * np.log(8) / np.log(6.4), bands + 2))
    bins = np.fft.rfftfreq(size, 1 / RATE)
    up, down = (
        (bins - edges[:-2, None]) / np.diff(edges)[:-1, None],
        (edges[2:, None] - bins) / np.diff(edges)[1:, None],
    )
    filters = np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))[:, None]
    padded = np.pad(sound, size // 2)
    cut = np.lib.stride_tricks.sliding_window_view(padded, size)[::hop]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)
    return (np.abs(np.fft.rfft(cut * window)) ** 2 @ filters.T).astype(np.float32)


def test_a_speaker_encoder_hears_the_same_voice(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    weights = file_of("resemblyzer", "pretrained.pt")
    encoder = encoder_of(40, 256, 256)
    encoder.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True)["model_state"], strict=False)
    path = exported(encoder, (torch.zeros(1, 160, 40),), tmp_path / "encoder.onnx", ["x"], output_names=["voice"])
    theirs = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    nets = {first: load(path, type="int8", first_type=first) for first in ("int8", "bf16")}
    cosines: dict[str, list[float]] = {name: [] for name in nets}
    voices = []
    for at, voice in enumerate(VOICES):
        said = spoken(TEXTS[at % len(TEXTS)], voice)
        x = mel(said * (0.03 / np.sqrt((said**2).mean())))[50:210][None]
        (wanted,) = theirs.run(["voice"], {"x": x})
        for name, net in nets.items():
            found = net.run({"x": x})["voice"]
            cosines[name].append(float((found * wanted).sum() / np.linalg.norm(found)))
        voices.append(wanted[0])
    least = {name: min(found) for name, found in cosines.items()}
    print(least)
    assert np.min(np.array(voices) @ np.array(voices).T) < 0.8  # they are not all alike to it
    assert least["bf16"] >= 0.985
    assert least["int8"] < least["bf16"]  # the powers of a spectrum are not for 8 bits
