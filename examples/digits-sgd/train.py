"""Reads handwritten digits with scikit-learn's SGDClassifier, one pass over the data after another, resumably."""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import SGDClassifier
from sklearn.model_selection import train_test_split

from shoal import train

CLASSES = np.arange(10)


def save(path: Path, model: SGDClassifier, epoch: int) -> None:
    draft = path.with_name("draft.npz")
    np.savez(draft, epoch=epoch, coef=model.coef_, intercept=model.intercept_, t=model.t_)
    draft.replace(path)


def load(path: Path, model: SGDClassifier) -> int:
    """Restore the model; returns how many epochs it has seen."""
    with np.load(path, allow_pickle=False) as kept:
        # One step allocates the model's arrays; its effect is overwritten.
        model.partial_fit(np.zeros((1, kept["coef"].shape[1])), CLASSES[:1], classes=CLASSES)
        model.coef_[:], model.intercept_[:], model.t_ = kept["coef"], kept["intercept"], float(kept["t"])
        return int(kept["epoch"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="wait after each epoch")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    images, labels = load_digits(return_X_y=True)
    learn_x, test_x, learn_y, test_y = train_test_split(images / 16.0, labels, test_size=0.25, random_state=0)

    model = SGDClassifier(loss="log_loss", alpha=1e-4, random_state=args.seed)
    start = 0
    if kept := train.resume_path():
        start = load(kept, model)
        print(f"resumed at epoch {start} from {kept.name}", flush=True)

    for epoch in range(start, args.epochs):
        order = np.random.default_rng((args.seed, epoch)).permutation(len(learn_x))
        model.partial_fit(learn_x[order], learn_y[order], classes=CLASSES)
        accuracy = model.score(test_x, test_y)
        train.report(epoch + 1, total=args.epochs, accuracy=accuracy)
        print(f"epoch {epoch + 1}/{args.epochs} accuracy={accuracy:.4f}", flush=True)
        if train.should_checkpoint(every_s=2.0) and epoch + 1 < args.epochs:
            path = train.checkpoint_dir() / "model.npz"
            save(path, model, epoch + 1)
            train.checkpoint(path, step=epoch + 1)
        time.sleep(args.pace)

    print(f"final accuracy={model.score(test_x, test_y):.4f}", flush=True)


if __name__ == "__main__":
    main()
