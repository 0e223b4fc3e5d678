"""A server with planes is killed again and again while jobs are submitted to them: none is lost, none runs twice."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, read_server, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.control.server import start_detached
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from shoal.tenancy.models import NewPlaneView
from tests.servers import kill_for_good

PLANES, JOBS, KILLS = 3, 4, 2


def start(home: Home) -> None:
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "4"], home)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    start(home)
    yield home
    stop_server(home, timeout_s=20)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


@pytest.mark.slow
def test_every_acknowledged_job_of_every_plane_runs_once_through_kills(home: Home, tmp_path: Path) -> None:
    chance, ran = random.Random(7), tmp_path / "ran"
    script = f'echo "$SHOAL_JOB_ID" >> {ran}; sleep 0.2'
    acknowledged: list[tuple[str, str]] = []
    with Client(home=home.path, environ={}) as shared:
        shared.create_tenant("vision", sandbox="none")
        planes = [shared.planes.create(f"p{at}", tenant="vision") for at in range(PLANES)]

    def client(plane: NewPlaneView) -> Client:
        there = read_server(home)  # each server may answer at another port
        assert there is not None
        return Client(url=f"{there.url}{plane.path}", token=plane.token, environ={})

    def submit(plane: NewPlaneView, at: int) -> None:
        job = {"name": f"job-{at}", "command": ["sh", "-c", script],
               "resources": {"accelerators": "cpu:1", "cpus": 0.1, "memory": "16MiB"}}  # fmt: skip
        with client(plane) as there:
            acknowledged.append((plane.name, there.submit(job).id))

    for round_ in range(KILLS + 1):
        for at in range(JOBS):
            for plane in chance.sample(planes, PLANES):
                submit(plane, round_ * JOBS + at)
        if round_ < KILLS:
            time.sleep(chance.random() * 0.5)  # wherever that finds them
            kill_for_good(home)
            start(home)

    def states() -> dict[tuple[str, str], JobState]:
        found = {}
        for plane in planes:
            with client(plane) as there:
                found.update(
                    {(plane.name, job): there.job(job).state for name, job in acknowledged if name == plane.name}
                )
        return found

    end = time.monotonic() + 120
    found = states()
    while not all(state.terminal for state in found.values()):
        assert time.monotonic() < end, Counter(found.values())
        time.sleep(0.2)
        found = states()
    assert len(acknowledged) == PLANES * JOBS * (KILLS + 1)
    assert set(found.values()) == {JobState.SUCCEEDED}
    times = Counter(ran.read_text().split())
    assert times == {job: 1 for _, job in acknowledged}
