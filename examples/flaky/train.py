"""Crashes on its first attempt, on purpose, and resumes on the second: nearest-centroid digits, one batch at a time."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from shoal import train

STEPS = 40


def save(path: Path, step: int, sums: np.ndarray, counts: np.ndarray) -> None:
    draft = path.with_name("draft.npz")
    np.savez(draft, step=step, sums=sums, counts=counts)
    draft.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--crash-at", type=int, default=0, metavar="STEP", help="crash here on attempt 1; 0 for never")
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="wait after each step")
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    learn_x, learn_y, test_x, test_y = images[:1400], labels[:1400], images[1400:], labels[1400:]
    sums, counts, start = np.zeros((10, images.shape[1])), np.zeros(10), 0
    path = train.checkpoint_dir() / "centroids.npz"
    if kept := train.resume_path():
        with np.load(kept, allow_pickle=False) as file:
            sums, counts, start = file["sums"], file["counts"], int(file["step"])
        print(f"attempt {train.attempt()} resumes at step {start}", flush=True)

    for step, rows in enumerate(np.array_split(np.arange(len(learn_x)), STEPS)[start:], start + 1):
        np.add.at(sums, learn_y[rows], learn_x[rows])
        np.add.at(counts, learn_y[rows], 1)
        train.report(step, total=STEPS, seen=counts.sum())
        if step < STEPS and (step % 5 == 0 or train.should_checkpoint()):
            save(path, step, sums, counts)
            train.checkpoint(path, step=step)
        if step == args.crash_at and train.attempt() == 1:
            raise RuntimeError(f"crashed on purpose at step {step}")
        time.sleep(args.pace)

    centroids = sums / np.maximum(counts, 1)[:, None]
    nearest = ((test_x[:, None, :] - centroids) ** 2).sum(axis=2).argmin(axis=1)
    accuracy = float((nearest == test_y).mean())
    train.report(STEPS, total=STEPS, accuracy=accuracy)
    print(f"final accuracy={accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
