"""A neural network of scikit-learn, one epoch a step. Makes room within one epoch when it is asked to."""

from __future__ import annotations

import pickle
import time

import numpy as np
import witness
from data import arguments, load
from sklearn.neural_network import MLPClassifier

from shoal import train


def main() -> None:
    options = arguments(__doc__).parse_args()
    witness.started()
    data = load(options.dataset)
    model, done = MLPClassifier((32,), learning_rate_init=0.003, batch_size=32, random_state=0), 0
    if checkpoint := train.resume_path():
        model, done = pickle.loads(checkpoint.read_bytes())  # noqa: S301 - written by this script's last attempt
        print(f"resumed after step {done}")

    for step in range(done + 1, options.steps + 1):
        model.partial_fit(data.train_x, data.train_y, classes=np.arange(data.classes))
        witness.trained(step)
        accuracy = model.score(data.test_x, data.test_y)
        train.report(step, total=options.steps, loss=model.loss_, accuracy=accuracy)
        if step < options.steps and train.should_checkpoint(every_s=1.0):
            path = train.checkpoint_dir() / f"step-{step}.pickle"
            path.write_bytes(pickle.dumps((model, step)))
            with witness.saving(step):
                train.checkpoint(path, step=step)
        time.sleep(options.pace)
    witness.finished()


if __name__ == "__main__":
    main()
