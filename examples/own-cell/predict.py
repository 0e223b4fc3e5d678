"""A recurrent cell of one's own, compiled like the known ones: it foresees a chaotic series.

The cell is a Python function of the input and the state, with the symbols of `shoal.recurrent`. Its units leak: each
keeps a share of its state that it has as a parameter. The weights are drawn, and a linear readout of the state is
fitted by least squares (an echo state network), so nothing but NumPy is needed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import shoal.recurrent as rnn

HIDDEN, AHEAD, WARM = 200, 10, 200
Numbers = np.ndarray[Any, np.dtype[np.float32]]


@rnn.cell
def leaky(x: Any, h: Any) -> Any:
    """`in.x`, `in.h` and `in.b` in the file of weights are those of `linear`, `leak` has a number for each unit."""
    leak = rnn.parameter("leak")
    return (1 - leak) * h + leak * rnn.tanh(rnn.linear("in", x, h))


def write_weights(path: Path) -> None:
    noise = np.random.default_rng(3)
    recurrent = noise.standard_normal((HIDDEN, HIDDEN)) * (noise.random((HIDDEN, HIDDEN)) < 0.1)
    recurrent *= 0.95 / np.abs(np.linalg.eigvals(recurrent)).max()  # what was long ago fades
    weights = {"in.x": noise.uniform(-1, 1, (HIDDEN, 1)), "in.h": recurrent, "in.b": noise.uniform(-0.2, 0.2, HIDDEN),
               "leak": noise.uniform(0.2, 0.9, HIDDEN)}  # fmt: skip
    save_file({name: np.ascontiguousarray(one, np.float32) for name, one in weights.items()}, path)


def mackey_glass(length: int) -> Numbers:
    """The series of Mackey and Glass with a delay of 17, which is chaotic."""
    found = [1.2] * 18
    while len(found) < length + 18:
        found.append(0.9 * found[-1] + 0.2 * found[-18] / (1 + found[-18] ** 10))
    return np.array(found[18:], np.float32) - 0.9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), help="where the cell's weights are written [.]")
    asked = parser.parse_args()
    write_weights(asked.folder / "leaky.safetensors")
    net = rnn.load(asked.folder / "leaky.safetensors", cell=leaky)

    series = mackey_glass(3000)
    seen, wanted = series[:-AHEAD], series[AHEAD:]
    learnt = 2000
    states = net.run({"x": seen[:learnt, None, None]})["y"][WARM:, 0]
    inputs = np.c_[states, np.ones(len(states))].astype(np.float64)
    readout = np.linalg.solve(inputs.T @ inputs + 1e-6 * np.eye(HIDDEN + 1), inputs.T @ wanted[WARM:learnt])

    found = []
    with net.session() as session:  # number by number, as they would come
        for one in seen:
            y = session.step({"x": one.reshape(1, 1, 1)})["y"][0, 0]
            found.append(float(y @ readout[:-1] + readout[-1]))
    wrong = np.array(found[learnt:]) - wanted[learnt:]
    naive = seen[learnt:] - wanted[learnt:]
    print(f"{AHEAD} steps ahead, error of the standard deviation: {wrong.std() / wanted.std():.3f}")
    print(f"the last number, as a guess: {naive.std() / wanted.std():.3f}")


if __name__ == "__main__":
    main()
