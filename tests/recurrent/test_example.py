"""The example listens to several streams at once, and hears who speaks."""

from __future__ import annotations

import re
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest

LISTEN = Path(__file__).parents[2] / "examples" / "voice-activity" / "listen.py"


def listen(folder: Path, *options: str, code: int = 0) -> str:
    words = [sys.executable, str(LISTEN), "--streams", "3", "--seconds", "6", "--folder", str(folder), *options]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    assert done.returncode == code, done.stderr
    return done.stdout + done.stderr


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
