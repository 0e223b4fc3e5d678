"""A training script as people have them: it knows nothing of Shoal and prints how it fares.

Its accuracy is found in its log by a pattern in the manifest.
"""

from __future__ import annotations

import time

import numpy as np
from data import arguments, load
from sklearn.linear_model import SGDClassifier


def main() -> None:
    options = arguments(__doc__).parse_args()
    data = load(options.dataset)
    model = SGDClassifier(loss="log_loss", random_state=0)
    for epoch in range(1, options.steps + 1):
        model.partial_fit(data.train_x, data.train_y, classes=np.arange(data.classes))
        print(f"epoch {epoch}: accuracy {model.score(data.test_x, data.test_y):.4f}")
        time.sleep(options.pace)


if __name__ == "__main__":
    main()
