"""The cost of capture where nothing is gained: one operation, a creation of a small array, and ordinary scripts.

CPU time, the least of many runs, in turns with plain NumPy; each run of a script is the first in its process. An
operation is compared with the addition of two arrays
of four elements.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator

from common import Row, parser, report

from shoal.offload.bench import Side, side

_ADD_US = 0.25
"""Microseconds of a plain addition of four elements on the quiet machine that the goals were set on."""

SCRIPTS = {
    "a loop of scalars": "total = 0.0\nfor i in range(400_000):\n    total += i * 0.5\n",
    "elements of a large array": "a = np.zeros(200_000)\nfor i in range(len(a)):\n    a[i] = i\ntotal = a[5]\n",
    "rows of a table": "a = np.ones((20_000, 50))\ntotal = 0.0\nfor row in a:\n    total += row[3]\n",
    "sums of rows": "a = np.ones((20_000, 50))\ntotal = 0.0\nfor row in a:\n    total += row.sum()\n",
    "operations on rows": "a = np.ones((20_000, 50))\nfor row in a:\n    row * 2\n",
    "small arrays": "for _ in range(60_000):\n    x = np.zeros(5) + np.ones(5)\n",
    "small lists to arrays": "for _ in range(100_000):\n    np.array([1.0, 2.0, 3.0])\n",
    "single random numbers": "rng = np.random.default_rng(0)\nfor _ in range(200_000):\n    rng.random()\n",
    "old random numbers": "for _ in range(100_000):\n    np.random.rand()\n",
    "products of matrices": "a = np.ones((400, 400))\nfor _ in range(30):\n    b = a @ a\n",
    "a sort": "rng = np.random.default_rng(0)\nfor _ in range(4):\n    x = np.sort(rng.random(1_000_000))\n",
    "a histogram": "x = np.random.default_rng(0).random(1_000_000)\nfor _ in range(4):\n    np.histogram(x, 50)\n",
    "a cumulative sum": "x = np.ones(2_000_000)\nfor _ in range(10):\n    y = np.cumsum(x)\n",
    "slices": "a = np.zeros(300_000)\nfor i in range(0, 300_000, 10):\n    a[i : i + 10] = i\n",
    "a Fourier transform": "x = np.ones(1 << 18)\nfor _ in range(10):\n    y = np.fft.fft(x)\n",
    "unique values": "x = np.random.default_rng(0).integers(0, 1000, 500_000)\nfor _ in range(5):\n    np.unique(x)\n",
    "integers": "a = np.arange(100_000)\nfor _ in range(50):\n    b = (a * 3 + 1) % 7\n    s = int(b[5])\n",
    "strings": "total = 0\nfor i in range(200_000):\n    total += len(str(i))\n",
    "a linear system": "a = np.eye(500) + 0.01\nfor _ in range(5):\n    x = np.linalg.solve(a, np.ones(500))\n",
    "text": "text = ' '.join(map(str, range(100_000)))\nx = np.array(text.split(), float)\n",
}


def _answer(captured: bool) -> None:
    """One side of the scripts: each line names one, which a forked child runs as the first thing that it does."""
    import numpy as np

    if captured:
        import shoal.offload

        shoal.offload.install()
    for line in sys.stdin:
        if not os.fork():
            began = time.process_time()
            exec(compile(SCRIPTS[line.strip()], "script.py", "exec"), {"np": np})
            print(time.process_time() - began, flush=True)
            os._exit(0)
        os.wait()


@contextlib.contextmanager
def _sides() -> Iterator[list[Side]]:
    """The plain one and the captured one."""
    env = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # threads that spin count as processor time of either
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(side([__file__, "--side", name], env)) for name in ("plain", "captured")]


def _least(work: Callable[[], object], count: int) -> float:
    best = float("inf")
    for _ in range(9):
        began = time.process_time()
        for _ in range(count):
            work()
        best = min(best, (time.process_time() - began) / count)
    return best * 1e6


def operations() -> list[Row]:
    import numpy as np

    small = np.ones(4)
    unit = _least(lambda: small + small, 20_000)
    plain_list = _least(lambda: np.array([1, 2, 3]), 20_000)
    import shoal.offload

    shoal.offload.install()
    large = np.ones(100_000)

    def from_pending() -> None:
        pending = large * 2.0
        for _ in range(200):
            pending + 1.0

    def touching() -> None:
        large * 2.0

    touch = _least(touching, 500)
    operator = (_least(from_pending, 5) - touch) / 200
    as_list = _least(lambda: np.array([1, 2, 3]), 2_000)
    shoal.offload.uninstall()
    scale = _ADD_US / unit
    return [
        Row("a plain addition of four elements; scaled: as if it took 0.25 us", unit, "us"),
        Row("one captured operation, scaled", operator * scale, "us", "0.6", operator * scale <= 0.6),
        Row("the first operation on a tracked array, scaled", touch * scale, "us", "2", touch * scale <= 2),
        Row("np.array of a small list: more, scaled", (as_list - plain_list) * scale, "us", "0.15",
            (as_list - plain_list) * scale <= 0.15),
    ]  # fmt: skip


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=25)
    arguments.add_argument("--only", default=",".join(SCRIPTS), help="scripts, by commas")
    arguments.add_argument("--side", choices=("plain", "captured"), help=argparse.SUPPRESS)
    told = arguments.parse_args()
    if told.side:
        _answer(told.side == "captured")
        return 0
    rows = operations()
    with _sides() as sides:
        for name in told.only.split(","):
            pairs = [[float(each.ask(name)) for each in sides] for _ in range(told.rounds)]
            ratio = min(plain for plain, _ in pairs) / min(captured for _, captured in pairs)
            rows.append(Row(f"script: {name}", ratio, "x", "0.95 x", ratio >= 0.95))
    return report("offload: what capture costs", rows, as_json=told.json)


if __name__ == "__main__":
    raise SystemExit(main())
