"""The examples run: they hear speech, tell speakers apart, and foresee a series with a cell of their own."""

from __future__ import annotations

import importlib.util
import io
import pickle
import re
import subprocess
import sys
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
ENCODE = EXAMPLES / "speaker-embedding" / "encode.py"


def said_by(script: Path, folder: Path, *options: str, code: int = 0) -> str:
    words = [sys.executable, str(script), "--folder", str(folder), *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


def listen(folder: Path, *options: str, code: int = 0) -> str:
    script = EXAMPLES / "voice-activity" / "listen.py"
    return said_by(script, folder, "--streams", "3", "--seconds", "6", *options, code=code)


@pytest.mark.few
@pytest.mark.parametrize("kind", ["fp32", "int8"])
def test_it_hears_speech_in_made_up_sound(tmp_path: Path, kind: str) -> None:
    (found,) = re.findall(r"accuracy=([\d.]+)", listen(tmp_path, "--type", kind))
    assert float(found) > 0.95


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "loud", "share"), [(1, 0.0, 0), (1, 0.3, 100), (2, 0.3, None)])
def test_a_file_of_ones_own(tmp_path: Path, channels: int, loud: float, share: int | None) -> None:
    """Noise alone is no speech, a sum of a voice's harmonics is, and two channels are refused in words."""
    noise = np.random.default_rng(0)
    moment = np.arange(3 * 16_000) / 16_000
    voice = sum(np.sin(2 * np.pi * 125 * number * moment) / number for number in range(1, 12))
    sound = 0.05 * noise.standard_normal(len(moment)) + loud * 0.5 * voice
    with wave.open(str(tmp_path / "own.wav"), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(16_000)
        file.writeframes((np.clip(sound, -1, 1) * 32767).astype("<i2").repeat(channels).tobytes())
    said = listen(tmp_path, "--file", str(tmp_path / "own.wav"), code=0 if share is not None else 1)
    if share is None:
        assert "must be mono" in said
    else:
        assert abs(int(re.findall(r"speech in (\d+)%", said)[0]) - share) <= 20


PAIRS = {f"{name}-{take} -> {name}-{3 - take}" for name in ("low", "middle", "high") for take in (1, 2)}


def nearest(said: str) -> set[str]:
    (found,) = re.findall("nearest: (.*)", said)
    return set(found.split(", "))


@pytest.mark.parametrize("kind", ["fp32", pytest.param("int8", marks=pytest.mark.slow)])
def test_a_voice_is_nearest_to_itself(tmp_path: Path, kind: str) -> None:
    assert nearest(said_by(ENCODE, tmp_path, "--type", kind)) == PAIRS


def encoder() -> Any:
    spec = importlib.util.spec_from_file_location("encode", ENCODE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_trained_weights_are_read_without_pytorch_as_it_reads_them(tmp_path: Path) -> None:
    package = importlib.util.find_spec("resemblyzer")
    if package is None or package.origin is None:
        pytest.skip("no resemblyzer: pip install --no-deps resemblyzer")
    torch = pytest.importorskip("torch")
    path = Path(package.origin).parent / "pretrained.pt"
    wanted = torch.load(path, map_location="cpu", weights_only=True)["model_state"]
    found = encoder().read_weights(path)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(one, wanted[name].numpy()) for name, one in found.items())
    said = said_by(ENCODE, tmp_path)
    assert f"weights: {path}" in said
    assert nearest(said) == PAIRS


def test_weights_that_name_anything_else_are_refused() -> None:
    with pytest.raises(pickle.UnpicklingError, match="has no place in a file of weights"):
        encoder().Tensors(io.BytesIO(pickle.dumps(Path))).load()


def test_a_cell_of_ones_own_foresees_a_chaotic_series(tmp_path: Path) -> None:
    ours, naive = map(float, re.findall(r": ([\d.]+)$", said_by(EXAMPLES / "own-cell" / "predict.py", tmp_path), re.M))
    assert ours < 0.1 * naive
