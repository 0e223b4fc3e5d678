"""A two-layer network in plain NumPy on one of scikit-learn's data sets; stops and resumes at any step."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from shoal import train

DATA = {"digits": load_digits, "wine": load_wine, "breast-cancer": load_breast_cancer}
BATCH = 32


class Network:
    """Inputs, a layer of rectified units, softmax. Parameters by name, so that they are easy to keep."""

    def __init__(self, inputs: int, hidden: int, classes: int, seed: int) -> None:
        random = np.random.default_rng(seed)
        self.parameters = {
            "w1": random.normal(0, np.sqrt(2 / inputs), (inputs, hidden)),
            "b1": np.zeros(hidden),
            "w2": random.normal(0, np.sqrt(2 / hidden), (hidden, classes)),
            "b2": np.zeros(classes),
        }

    def forward(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Hidden activations (n, hidden) and class probabilities (n, classes)."""
        p = self.parameters
        hidden = np.maximum(x @ p["w1"] + p["b1"], 0)
        scores = hidden @ p["w2"] + p["b2"]
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, weights / weights.sum(axis=1, keepdims=True)

    def learn(self, x: np.ndarray, y: np.ndarray, rate: float) -> float:
        """One step down the gradient of the cross-entropy; returns it."""
        hidden, probability = self.forward(x)
        rows = np.arange(len(y))
        loss = -np.log(probability[rows, y] + 1e-12).mean()
        error = probability.copy()
        error[rows, y] -= 1
        error /= len(y)
        back = (error @ self.parameters["w2"].T) * (hidden > 0)
        for name, gradient in (
            ("w2", hidden.T @ error), ("b2", error.sum(0)), ("w1", x.T @ back), ("b1", back.sum(0))
        ):  # fmt: skip
            self.parameters[name] -= rate * gradient
        return float(loss)

    def accuracy(self, x: np.ndarray, y: np.ndarray) -> float:
        return float((self.forward(x)[1].argmax(axis=1) == y).mean())


def save(path: Path, network: Network, step: int) -> None:
    draft = path.with_name("draft.npz")
    np.savez(draft, step=step, **network.parameters)
    draft.replace(path)


def load(path: Path, network: Network) -> int:
    with np.load(path, allow_pickle=False) as kept:
        network.parameters = {name: kept[name] for name in network.parameters}
        return int(kept["step"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=DATA, default="digits")
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="wait after each step")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    x, y = DATA[args.data](return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = ((x - x.mean(0)) / (x.std(0) + 1e-8))[order], y[order]
    held_out = len(x) // 4
    test_x, test_y, learn_x, learn_y = x[:held_out], y[:held_out], x[held_out:], y[held_out:]

    network = Network(x.shape[1], args.hidden, int(y.max()) + 1, args.seed)
    path = train.checkpoint_dir() / f"{args.data}.npz"
    start = 0
    if train.resume_path() == path:
        start = load(path, network)
        print(f"resumed at step {start}", flush=True)

    for step in range(start + 1, args.steps + 1):
        batch = np.random.default_rng((args.seed, step)).integers(0, len(learn_x), BATCH)
        loss = network.learn(learn_x[batch], learn_y[batch], args.rate)
        train.report(step, total=args.steps, loss=loss)
        if step % 100 == 0 or step == args.steps:
            accuracy = network.accuracy(test_x, test_y)
            train.report(step, total=args.steps, accuracy=accuracy)
            print(f"step {step}/{args.steps} loss={loss:.4f} accuracy={accuracy:.4f}", flush=True)
        if train.should_checkpoint(every_s=2.0) and step < args.steps:
            save(path, network, step)
            train.checkpoint(path, step=step)
        time.sleep(args.pace)

    print(f"final accuracy={network.accuracy(test_x, test_y):.4f}", flush=True)


if __name__ == "__main__":
    main()
