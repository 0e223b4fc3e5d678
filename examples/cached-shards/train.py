"""Trains on handwritten digits that lie in shards, and reads them through the cache: a job's input, or a URL."""

from __future__ import annotations

import argparse

import numpy as np
from shards import IndexedShards, TarShards
from sklearn.linear_model import SGDClassifier

CLASSES = np.arange(10)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="data", help="a folder, or its URL such as s3://data/digits")
    parser.add_argument("--layout", choices=("tar", "indexed"), default="tar")
    parser.add_argument("--shards", type=int, default=6, help="of the layout tar")
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()

    model, indexed = SGDClassifier(loss="log_loss", alpha=1e-4, random_state=0), None
    if args.layout == "indexed":
        indexed = IndexedShards(args.data)
    accuracy = 0.0
    for epoch in range(args.epochs):
        if indexed is not None:
            samples = [indexed[int(at)] for at in np.random.default_rng(epoch).permutation(len(indexed))]
        else:
            samples = list(TarShards(args.data, args.shards).epoch(epoch))
        images, labels = np.array([image for image, _ in samples]), np.array([label for _, label in samples])
        if epoch:
            accuracy = model.score(images, labels)  # of the epoch before, on another order of the same data
        model.partial_fit(images, labels, classes=CLASSES)
    print(f"{len(labels)} samples, accuracy={accuracy:.4f}", flush=True)


if __name__ == "__main__":
    main()
