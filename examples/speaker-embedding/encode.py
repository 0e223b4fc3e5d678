"""Who speaks: three LSTMs and a projection make a unit vector of each voice; two of one speaker point the same way.

The network is that of Resemblyzer. With its package (`pip install --no-deps resemblyzer`) the trained weights are read,
without PyTorch. Without it the weights are drawn, which says so: they tell little more than loudness and pitch.
Shoal compiles the layers for this CPU, and windows of 1.6 s of all recordings run in one batch.
"""

from __future__ import annotations

import argparse
import importlib.util
import pickle
import time
import wave
from collections import OrderedDict
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from safetensors.numpy import load_file, save_file

import shoal.recurrent

RATE, HOP, SIZE = 16_000, 160, 400
BANDS, HIDDEN, WINDOW = 40, 256, 160
Array = np.ndarray[Any, np.dtype[np.float32]]


class Tensors(pickle.Unpickler):
    """What `torch.save` wrote before its version 1.6, of arrays and plain values alone: no other name is looked up."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, Array] = {}

    def find_class(self, module: str, name: str) -> Any:
        known = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch", "FloatStorage"): np.float32,
            ("torch", "LongStorage"): np.int64,
            ("torch._utils", "_rebuild_tensor_v2"): self.view,
        }
        if (module, name) not in known:
            raise pickle.UnpicklingError(f"{module}.{name} has no place in a file of weights")
        return known[module, name]

    def persistent_load(self, told: Any) -> Array:
        _, kind, key, _, count, _ = told
        return self.storages.setdefault(key, np.zeros(count, kind))

    @staticmethod
    def view(storage: Array, offset: int, shape: tuple[int, ...], *_: object) -> Array:
        return storage[offset : offset + int(np.prod(shape, dtype=int))].reshape(shape)


def read_weights(path: Path) -> dict[str, Array]:
    """The tensors of a file of PyTorch, by name. Numbers follow the names and shapes, storage by storage."""
    with path.open("rb") as file:
        for _ in range(3):  # a mark, the version, the sizes of types
            Tensors(file).load()
        reader = Tensors(file)
        state: dict[str, Array] = reader.load()["model_state"]
        for key in Tensors(file).load():
            storage = reader.storages[key]
            file.read(8)  # how many numbers follow, which the header said
            storage[:] = np.frombuffer(file.read(storage.nbytes), storage.dtype)
    return state


def drawn_weights() -> dict[str, Array]:
    noise = np.random.default_rng(0)
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (HIDDEN, HIDDEN), "linear.bias": (HIDDEN,)}
    for layer, inputs in enumerate((BANDS, HIDDEN, HIDDEN)):
        shapes[f"lstm.weight_ih_l{layer}"] = 4 * HIDDEN, inputs
        shapes[f"lstm.weight_hh_l{layer}"] = 4 * HIDDEN, HIDDEN
        shapes |= {f"lstm.bias_{side}_l{layer}": (4 * HIDDEN,) for side in ("ih", "hh")}
    return {name: noise.uniform(-0.2, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}


def write_weights(target: Path, given: Path | None) -> str:
    """The network as .safetensors at `target`. Returns where its numbers are from."""
    package = importlib.util.find_spec("resemblyzer")
    if given is None and package is not None and package.origin is not None:
        given = Path(package.origin).parent / "pretrained.pt"
    weights = drawn_weights() if given is None else read_weights(given)
    save_file({name: weights[name] for name in drawn_weights()}, target)
    return "drawn: no package resemblyzer here" if given is None else str(given)


def mel(sound: Array) -> Array:
    """Power in 40 bands of Slaney's scale at the loudness that the network knows: (frames of 10 ms, BANDS)."""

    def hertz(mels: Any) -> Any:
        return np.where(mels < 15, mels * 200 / 3, 1000 * np.exp((mels - 15) * np.log(6.4) / 27))

    edges = hertz(np.linspace(0, 15 + 27 * np.log(8) / np.log(6.4), BANDS + 2))[:, None]
    bins, width = np.fft.rfftfreq(SIZE, 1 / RATE), np.diff(edges, axis=0)
    up, down = (bins - edges[:-2]) / width[:-1], (edges[2:] - bins) / width[1:]
    filters = np.maximum(0, np.minimum(up, down)) * (2 / (edges[2:] - edges[:-2]))
    padded = np.pad(sound * (0.03 / max(1e-6, np.sqrt((sound**2).mean()))), SIZE // 2)
    cut = np.lib.stride_tricks.sliding_window_view(padded, SIZE)[::HOP]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(SIZE) / SIZE)
    return (np.abs(np.fft.rfft(cut * window)) ** 2 @ filters.T).astype(np.float32)


def embed(net: shoal.recurrent.Network, weights: dict[str, Array], sounds: list[Array]) -> Array:
    """A unit vector for each recording (recordings, HIDDEN): the mean over its windows, which overlap by half."""
    windows, whose = [], []
    for number, sound in enumerate(sounds):
        frames = mel(np.pad(sound, (0, max(0, WINDOW * HOP - len(sound)))))
        for at in range(0, len(frames) - WINDOW + 1, WINDOW // 2):
            windows.append(frames[at : at + WINDOW])
            whose.append(number)
    last = net.run({"x": np.stack(windows, 1)})["y"][-1]  # x: [steps, rows, BANDS]
    found = np.maximum(0, last @ weights["linear.weight"].T + weights["linear.bias"])
    found /= np.linalg.norm(found, axis=1, keepdims=True)
    mean = np.stack([found[np.array(whose) == number].mean(0) for number in range(len(sounds))])
    return (mean / np.linalg.norm(mean, axis=1, keepdims=True)).astype(np.float32)


def made_up(pitch: float, throat: float, seed: int) -> Array:
    """Three seconds of somebody who hums: harmonics of `pitch` Hz, loud around `throat` Hz and three times that."""
    noise = np.random.default_rng(seed)
    moment = np.arange(3 * RATE) / RATE
    phase = 2 * np.pi * np.cumsum(pitch * (1 + 0.05 * np.sin(2 * np.pi * 0.8 * moment + noise.uniform(0, 6)))) / RATE
    sound = 0.002 * noise.standard_normal(len(moment))
    for number in range(1, int(7000 / pitch)):
        loud = sum(np.exp(-(((number * pitch - at) / (0.3 * at)) ** 2)) for at in (throat, 3 * throat))
        sound += 0.1 * (loud + 0.02) * np.sin(number * phase)
    return (sound * (0.7 + 0.3 * np.sin(2 * np.pi * 4 * moment + noise.uniform(0, 6)))).astype(np.float32)


def read(path: Path) -> Array:
    """A mono WAV file of 16-bit samples at 16 kHz."""
    with wave.open(str(path)) as file:
        if (file.getnchannels(), file.getsampwidth(), file.getframerate()) != (1, 2, RATE):
            raise SystemExit(f"{path}: must be mono, 16 bits, 16 kHz (ffmpeg -i {path} -ac 1 -ar 16000 out.wav)")
        return np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="WAV files (mono, 16 bits, 16 kHz); else made-up voices")
    parser.add_argument("--weights", type=Path, help="Resemblyzer's pretrained.pt, if its package is not installed")
    parser.add_argument("--type", choices=("fp32", "bf16", "int8"), default="fp32", help="of the weights [fp32]")
    parser.add_argument("--folder", type=Path, default=Path(), help="where the layers' weights are written [.]")
    asked = parser.parse_args()

    path = asked.folder / "speaker.safetensors"
    print(f"weights: {write_weights(path, asked.weights)}")
    # A spectrum has few large numbers and many small ones, so its layer keeps more bits than the others.
    net = shoal.recurrent.load(path, type=asked.type, first_type="bf16" if asked.type == "int8" else None)
    if asked.files:
        names, sounds = [one.stem for one in asked.files], [read(one) for one in asked.files]
    else:
        voices = {"low": (95.0, 450.0), "middle": (150.0, 600.0), "high": (240.0, 800.0)}
        takes = [(name, take) for name in voices for take in (1, 2)]
        names = [f"{name}-{take}" for name, take in takes]
        sounds = [made_up(*voices[name], seed=take) for name, take in takes]
    weights = load_file(path)
    embed(net, weights, sounds)  # the first call compiles
    began = time.perf_counter()
    found = embed(net, weights, sounds)
    took = time.perf_counter() - began
    alike = found @ found.T
    for name, row in zip(names, alike, strict=True):
        print(f"{name:>12}  " + " ".join(f"{one:5.2f}" for one in row))
    if len(names) > 1:
        nearest = [names[one] for one in (alike - 2 * np.eye(len(names))).argmax(1)]
        print("nearest: " + ", ".join(f"{name} -> {other}" for name, other in zip(names, nearest, strict=True)))
    print(f"{1e3 * took:.0f} ms for {sum(map(len, sounds)) / RATE:.0f} s of sound")


if __name__ == "__main__":
    main()
