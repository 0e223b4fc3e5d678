"""Gradient-boosted trees of scikit-learn, one round a step. With --crash-at its first attempt dies half-way."""

from __future__ import annotations

import pickle
import time

import witness
from data import arguments, load
from sklearn.ensemble import GradientBoostingClassifier

from shoal import train


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--crash-at", type=int, default=None, metavar="STEP")
    options = parser.parse_args()
    witness.started()
    data = load(options.dataset)
    model, done = GradientBoostingClassifier(warm_start=True, learning_rate=0.3, max_depth=2, random_state=0), 0
    if checkpoint := train.resume_path():
        model, done = pickle.loads(checkpoint.read_bytes())  # noqa: S301 - written by this script's last attempt
        print(f"resumed after step {done}")

    for step in range(done + 1, options.steps + 1):
        if step == options.crash_at and train.attempt() == 1:
            raise RuntimeError("this crash was asked for with --crash-at")
        model.set_params(n_estimators=step)
        model.fit(data.train_x, data.train_y)
        witness.trained(step)
        train.report(step, total=options.steps, accuracy=model.score(data.test_x, data.test_y))
        if step < options.steps and train.should_checkpoint(every_s=0.5):
            path = train.checkpoint_dir() / f"step-{step}.pickle"
            path.write_bytes(pickle.dumps((model, step)))
            with witness.saving(step):
                train.checkpoint(path, step=step)
        time.sleep(options.pace)
    witness.finished()


if __name__ == "__main__":
    main()
