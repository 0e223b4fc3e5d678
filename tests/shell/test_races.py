"""The stages of a pipeline start in any order, and the plan does not depend on it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict

import pytest

from tests.shell.conftest import World
from tests.shell.test_faults import start

TIMES = 1000


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("pipeline", "stages"),
    [
        ("cat $M/a.txt | wc -l", 2),
        ("x=$(grep alpha $M/a.txt | sort | tail -1)", 3),
        ("cut -d' ' -f3 < $M/a.txt | sort -n | uniq -c | head -2", 4),
    ],
)
def test_a_pipeline_has_the_same_plan_each_time(own_world: World, pipeline: str, stages: int) -> None:
    own_world.begin()
    own_world.fill()
    log = own_world.home / "shell" / "runs" / "test.jsonl"
    start(own_world, f"for i in 1 2 3 4 5; do {pipeline}; done").communicate()  # what it costs is learned
    own_world.entries()
    log.unlink()
    _, errors = start(own_world, f"for i in $(seq {TIMES}); do {pipeline}; done").communicate()
    assert errors == b""
    plans = defaultdict[int, list[tuple[str, str]]](list)
    for entry in own_world.entries():
        plans[int(str(entry["pipeline"]))].append((str(entry["command"]), str(entry["where"])))
    found = Counter(json.dumps(sorted(one)) for one in plans.values())
    assert len(found) == 1, found
    assert found.total() == TIMES
    assert len(json.loads(next(iter(found)))) == stages
