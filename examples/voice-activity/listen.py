"""Many streams of sound at once: a small LSTM says for each frame of 32 ms whether somebody speaks.

The recurrent layer has random weights, and a linear readout of its state is fitted by least squares (an echo state
network), so training takes a second and needs NumPy alone. Shoal compiles the layer for this CPU. Each stream is a
session: its state stays between frames, and the frames of all streams run in one batch.
"""

from __future__ import annotations

import argparse
import time
import wave
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import shoal.recurrent

RATE, FRAME = 16_000, 512
BANDS, HIDDEN = 24, 64
Sound = np.ndarray[Any, np.dtype[np.float32]]


def synthetic(seconds: float, seed: int) -> tuple[Sound, Sound]:
    """Sound (samples,) between -1 and 1 of somebody who speaks now and then in a noisy room, and per sample whether."""
    noise = np.random.default_rng(seed)
    samples = int(seconds * RATE)
    at, speaks = 0, np.zeros(samples, np.float32)
    while at < samples:
        silence, speech = (int(noise.uniform(low, high) * RATE) for low, high in ((0.3, 1.2), (0.4, 1.5)))
        speaks[at + silence : at + silence + speech] = 1
        at += silence + speech
    moment = np.arange(samples) / RATE
    pitch = 120 + 30 * np.sin(2 * np.pi * 0.7 * moment + noise.uniform(0, 6))
    phase = 2 * np.pi * np.cumsum(pitch) / RATE
    voice = sum(np.sin(number * phase) / number for number in range(1, 12))
    syllables = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * moment)
    hum = 0.05 * np.sin(2 * np.pi * 50 * moment)
    sound = 0.12 * speaks * syllables * voice + hum + 0.05 * noise.standard_normal(samples)
    return sound.astype(np.float32), speaks


def read(path: Path) -> Sound:
    """A mono WAV file of 16-bit samples at 16 kHz."""
    with wave.open(str(path)) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
            raise SystemExit(f"{path}: must be mono, 16 bits, 16 kHz (ffmpeg -i {path} -ac 1 -ar 16000 out.wav)")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def features(sound: Sound) -> Sound:
    """Per frame the logarithms of its energy in bands: (frames, BANDS)."""
    frames = sound[: len(sound) // FRAME * FRAME].reshape(-1, FRAME) * np.hanning(FRAME)
    power = np.abs(np.fft.rfft(frames)) ** 2
    edges = np.unique(np.geomspace(2, FRAME // 2, BANDS + 1).round().astype(int))
    bands = np.stack([power[:, low:high].sum(1) for low, high in pairwise(edges)], 1)
    found = np.zeros((len(frames), BANDS), np.float32)
    found[:, : bands.shape[1]] = 0.2 * np.log(bands + 1e-6)
    return found


def network(folder: Path, sessions: int, kind: str) -> shoal.recurrent.Network:
    """The compiled layer."""
    noise = np.random.default_rng(7)
    shapes = {"weight_ih_l0": (4 * HIDDEN, BANDS), "weight_hh_l0": (4 * HIDDEN, HIDDEN),
              "bias_ih_l0": (4 * HIDDEN,), "bias_hh_l0": (4 * HIDDEN,)}  # fmt: skip
    save_file(
        {name: noise.uniform(-0.3, 0.3, shape).astype(np.float32) for name, shape in shapes.items()},
        folder / "lstm.safetensors",
    )
    return shoal.recurrent.load(folder / "lstm.safetensors", type=kind, max_sessions=sessions)


def fitted(net: shoal.recurrent.Network) -> Sound:
    """The readout (HIDDEN + 1,), from a minute of made-up sound that no stream has."""
    sound, speaks = synthetic(60, seed=1)
    state = net.run({"x": features(sound)[:, None, :]})["y"][:, 0, :]
    wanted = speaks[: len(state) * FRAME].reshape(-1, FRAME).mean(1) > 0.5
    inputs = np.c_[state, np.ones(len(state))].astype(np.float64)
    ridge = 1e-3 * np.eye(HIDDEN + 1)
    return np.linalg.solve(inputs.T @ inputs + ridge, inputs.T @ (2.0 * wanted - 1)).astype(np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--file", type=Path, help="a WAV file (mono, 16 bits, 16 kHz) instead of made-up sound")
    parser.add_argument("--streams", type=int, default=50, help="streams at once [50]")
    parser.add_argument("--seconds", type=float, default=10.0, help="of made-up sound [10]")
    parser.add_argument("--type", choices=("fp32", "bf16", "int8"), default="fp32", help="of the weights [fp32]")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the layer's weights are written [.]")
    asked = parser.parse_args()

    net = network(asked.folder, asked.streams, asked.type)
    readout = fitted(net)
    truth = None
    if asked.file is None:
        made = [synthetic(asked.seconds, seed=100 + stream) for stream in range(asked.streams)]
        frames = np.stack([features(sound) for sound, _ in made])
        truth = np.stack([speaks[: frames.shape[1] * FRAME].reshape(-1, FRAME).mean(1) > 0.5 for _, speaks in made])
    else:
        frames = np.stack([features(read(asked.file))] * asked.streams)

    sessions = [net.session() for _ in range(asked.streams)]
    said, began = [], time.perf_counter()
    for moment in range(frames.shape[1]):
        batch = [{"x": frames[stream, moment][None, None, :]} for stream in range(asked.streams)]
        states = np.stack([one["y"][0, 0] for one in net.step(sessions, batch)])
        said.append(states @ readout[:-1] + readout[-1] > 0)
    took = time.perf_counter() - began
    for session in sessions:
        session.close()

    speaks = np.stack(said, 1)
    print(f"{asked.streams} streams, {frames.shape[1]} frames each: speech in {speaks.mean():.0%} of the frames")
    if truth is not None:
        print(f"accuracy={(speaks == truth).mean():.3f}")
    per_frame = took / frames.shape[1]
    print(f"{1e3 * per_frame:.2f} ms for a frame of all streams, which comes every {1e3 * FRAME / RATE:.0f} ms")


if __name__ == "__main__":
    main()
