"""A script that has never heard of Shoal: a perceptron on the breast cancer data. Its metrics are read from its log."""

from __future__ import annotations

import argparse
import time

from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import Perceptron
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="wait after each epoch")
args = parser.parse_args()

x, y = load_breast_cancer(return_X_y=True)
learn_x, test_x, learn_y, test_y = train_test_split(x, y, test_size=0.25, random_state=0)
scaler = StandardScaler().fit(learn_x)
learn_x, test_x = scaler.transform(learn_x), scaler.transform(test_x)

model = Perceptron(random_state=0)
for epoch in range(1, args.epochs + 1):
    model.partial_fit(learn_x, learn_y, classes=[0, 1])
    print(f"epoch {epoch} accuracy={model.score(test_x, test_y):.4f}", flush=True)
    time.sleep(args.pace)
print(f"final accuracy={model.score(test_x, test_y):.4f}", flush=True)
