"""Softmax regression in NumPy. Reports, checkpoints when asked, and resumes where its last attempt ended."""

from __future__ import annotations

import time

import numpy as np
import witness
from data import Floats, arguments, load

from shoal import train


def gradient(weights: Floats, x: Floats, labels: Floats) -> tuple[Floats, float]:
    """Of the mean cross-entropy; `labels` is one-hot, (rows, classes). Returns the loss too."""
    scores = x @ weights
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    loss = -float(np.mean(np.log(np.sum(chances * labels, axis=1) + 1e-12)))
    return x.T @ (chances - labels) / len(x), loss


def main() -> None:
    options = arguments(__doc__).parse_args()
    witness.started()
    data = load(options.dataset)
    labels = np.eye(data.classes)[data.train_y]
    weights, done = np.zeros((data.train_x.shape[1], data.classes)), 0
    if checkpoint := train.resume_path():
        kept = np.load(checkpoint)
        weights, done = kept["weights"], int(kept["step"])
        print(f"resumed after step {done}")

    for step in range(done + 1, options.steps + 1):
        for _ in range(10):
            slope, loss = gradient(weights, data.train_x, labels)
            weights -= 0.5 * slope
        accuracy = float(np.mean(np.argmax(data.test_x @ weights, axis=1) == data.test_y))
        witness.trained(step)
        train.report(step, total=options.steps, loss=loss, accuracy=accuracy)
        if step < options.steps and train.should_checkpoint(every_s=1.0):
            path = train.checkpoint_dir() / f"step-{step}.npz"
            np.savez(path, weights=weights, step=step)
            with witness.saving(step):
                train.checkpoint(path, step=step)
        time.sleep(options.pace)
    witness.finished()


if __name__ == "__main__":
    main()
