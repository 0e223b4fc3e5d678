"""Whether finish times hold for jobs that pause: seeded simulation, no job runs.

    python benchmarks/forecast_pauses.py [--jobs 200] [--seed 1] [--json]

Jobs of 2,000 steps of 0.1 s with a spread of 5 % (normal), which pause every so many steps, as checkpoints and
evaluations do; lengths of pauses have a spread of 10 %. The finish time is asked for when 25, 50 and 75 % of the steps
are reported. `aligned` pauses come at multiples, before the step's report; `shifted` ones begin at a step drawn
evenly from the first period; `coarse` reports come once a second, as the server reads them; `told` jobs report a
checkpoint at the end of each pause; `irregular` pauses come with the same chance in each step. A job that has not
paused yet has a finish time without pauses: such answers are not counted in a row, and their number is the last one.
"""

from __future__ import annotations

import random
import statistics
import sys
from collections.abc import Iterator

from common import Row, parser, report

from shoal.forecast.finish import Track

STEPS, STEP_S = 2000, 0.1
PAUSES = ((50, 0.5), (100, 1.0), (200, 2.0), (400, 2.0), (400, 10.0), (500, 20.0), (0, 0.0))
KINDS = ("aligned", "shifted", "coarse", "told", "irregular")
ASKED = (0.25, 0.5, 0.75)


def job(draw: random.Random, every: int, pause_s: float, kind: str) -> Iterator[tuple[float, bool]]:
    """When each step was reported, and whether it paused before."""
    first = draw.randrange(1, every + 1) if every and kind == "shifted" else every
    at = 0.0
    for step in range(1, STEPS + 1):
        at += STEP_S * max(0.1, draw.gauss(1.0, 0.05))
        due = (
            draw.random() < 1 / max(every, 1) if kind == "irregular" else step % max(every, 1) == first % max(every, 1)
        )
        paused = bool(every) and due
        if paused:
            at += pause_s * max(0.1, draw.gauss(1.0, 0.1))
        yield at, paused


def answers(draw: random.Random, every: int, pause_s: float, kind: str) -> Iterator[tuple[float, bool, float] | None]:
    """For each time of asking: the error of the median over the time left, whether the interval held, and half its
    width over the time left; None before the first pause."""
    ends = list(job(draw, every, pause_s, kind))
    track, asked, shown, seen = Track(), list(ASKED), 0.0, False
    saved_at: float | None = None
    for step, (at, paused) in enumerate(ends, start=1):
        seen = seen or paused
        if paused and kind == "told":
            saved_at = at
        if kind == "coarse" and at < shown + 1.0:
            continue
        shown = at
        track.observe(at, step, saved_at)
        while asked and step >= asked[0] * STEPS:
            asked.pop(0)
            found, truth = track.remaining(STEPS), ends[-1][0] - at
            assert found is not None
            width = (found.high - found.low) / 2 / truth
            yield None if every and not seen else (found.median / truth - 1, found.low <= truth <= found.high, width)


def rows_of(every: int, pause_s: float, kind: str, jobs: int, seed: int) -> list[Row]:
    rows = []
    found = [list(answers(random.Random(f"{seed}-{number}-{every}-{pause_s}-{kind}"), every, pause_s, kind))
             for number in range(jobs)]  # fmt: skip
    for at, column in zip(ASKED, zip(*found, strict=True), strict=True):
        known = [one for one in column if one is not None]
        held = statistics.mean(one[1] for one in known)
        error, width = (statistics.median(one[which] for one in known) for which in (0, 2))
        name = f"{every} x {pause_s:g} s, {kind}" if every else f"steady, {kind}"
        label = f"{name}, at {at:.0%}: median error {error:+.1%}, half width {width:.1%}, unknown {jobs - len(known)}"
        rows.append(Row(label, 100 * held, "%", ">= 85", held >= 0.85))
    return rows


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--jobs", type=int, default=200)
    arguments.add_argument("--seed", type=int, default=1)
    given = arguments.parse_args()
    rows: list[Row] = []
    for kind in KINDS:
        for every, pause_s in PAUSES:
            rows += rows_of(every, pause_s, kind, given.jobs, given.seed)
    return report("Finish times of jobs that pause (simulated): intervals that hold", rows, as_json=given.json)


if __name__ == "__main__":
    sys.exit(main())
