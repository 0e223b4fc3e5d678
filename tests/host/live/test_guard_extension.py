"""The server's guard: from what runs to groups, how it is told them, and that it is kept alive."""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.pages import Table
from shoal.contract.records import AttemptRecord, JobRecord
from shoal.control.extensions.loaded import Chosen
from shoal.control.jobs.cache import Live
from shoal.control.plane import ControlPlane
from shoal.control.settings import load_settings
from shoal.core import Invalid, ManualClock, PriorityClass, Resources, Unavailable
from shoal.engine.simulated import Script, SimulatedCluster, SimulatedEngine, VirtualClock
from shoal.extension import Server
from shoal.host.guard.config import FollowedConfig, parse_config
from shoal.host.live.extension import Guard
from shoal.host.live.groups import MIN_SHARE, groups
from shoal.host.live.process import CONFIG_FILE, GuardProcess, guard_capability
from shoal.host.live.reconciler import GuardReconciler
from shoal.host.live.settings import GuardSettings
from shoal.store import open_store
from tests.control.simulation import manifest, nodes

GUARANTEED, BEST_EFFORT = PriorityClass.GUARANTEED, PriorityClass.BEST_EFFORT
GANGS = Path("/home/gangs")


def live(
    name: str, priority_class: PriorityClass, *pids: int | None, tenant: str = "ada", service: str | None = None,
    state: JobState = JobState.RUNNING,
) -> Live:  # fmt: skip
    job = JobRecord(
        name, tenant, name, state, 1, "{}", Resources(), len(pids), priority_class, 0, 0.0, 0.0, owner_id=service
    )
    ranks = tuple({"rank": rank, "pid": pid, "ended_at": None} for rank, pid in enumerate(pids))
    return Live(job, AttemptRecord(name, 2, 1, (), 0.0, ranks=ranks))


def found(
    active: Sequence[Live], telemetry: Mapping[str, Mapping[str, Any]] | None = None, **weights: float
) -> dict[str, dict[str, object]]:
    """`telemetry`: by service, where its work is told."""
    told = telemetry or {}
    owner = {one.job.id: one.job.owner_id or "" for one in active}
    made = groups(active, weights, GANGS, lambda job_id: told.get(owner[job_id]), max_slowdown=1.1)
    parse_config({"groups": made}, kind=FollowedConfig)  # the guard takes it
    return {str(one["name"]): one for one in made}


def test_a_job_is_a_group_of_its_ranks_and_tells_its_steps() -> None:
    assert found([live("j-1", GUARANTEED, 7, 9)]) == {
        "j-1": {
            "name": "j-1", "class": "guaranteed", "pids": [7, 9], "slo": {"max_slowdown": 1.1},
            "ring": "/home/gangs/j-1.2.run",
            "reports": {"lines": "/home/gangs/j-1.2.run/rank-0/metrics.jsonl"},
        }
    }  # fmt: skip


def test_what_does_not_run_is_no_group() -> None:
    ended = live("j-4", GUARANTEED, 7)
    assert ended.attempt is not None
    ended.attempt = ended.attempt.evolve(ranks=({"rank": 0, "pid": 7, "ended_at": 12.0},))
    waiting = live("j-3", GUARANTEED, 8)
    waiting.attempt = None
    others = [live("j-1", GUARANTEED, 7, state=JobState.STORING), live("j-2", BEST_EFFORT, None), waiting, ended]
    assert found(others) == {}


def test_a_tenants_weight_is_shared_by_its_best_effort_groups() -> None:
    active = [
        live("j-1", BEST_EFFORT, 1), live("j-2", BEST_EFFORT, 2), live("j-3", BEST_EFFORT, 3, tenant="bob"),
        live("j-4", GUARANTEED, 4), live("j-5", BEST_EFFORT, 5, tenant="rich"),
    ]  # fmt: skip
    made = found(active, ada=3.0, bob=0.5, rich=1e9)
    assert {name: one.get("weight") for name, one in made.items()} == {
        "j-1": 1.5, "j-2": 1.5, "j-3": 0.5, "j-4": None, "j-5": 1000.0,
    }  # fmt: skip
    assert made["j-1"]["min_share"] == MIN_SHARE
    assert "ring" not in made["j-1"], "how fast best-effort work is has no say"


def test_a_services_replicas_are_one_group_whose_work_another_tells() -> None:
    replicas = [live(f"s-ocr-{n}", GUARANTEED, 10 + n, service="s-ocr") for n in range(2)]
    told = {"gateway": "http://127.0.0.1:7071/metrics", "token_file": "/t", "tenant": "ada", "models": ["find"]}
    [group] = found(replicas, {"s-ocr": told}).values()
    assert (group["name"], group["pids"], group["reports"]) == ("s-ocr", [10, 11], told)
    [silent] = found(replicas).values()
    assert "reports" not in silent


def test_it_is_off_unless_asked_for_by_flag_environment_or_file(tmp_path: Path) -> None:
    def told(*sets: str, environ: dict[str, str] | None = None) -> GuardSettings:
        settings = load_settings({"home": tmp_path}, sets=sets, environ=environ or {}).values.section(Guard)
        assert isinstance(settings, GuardSettings)
        return settings

    assert not told().enabled
    assert told("guard.enabled=on") == GuardSettings(enabled=True, policy="model", max_slowdown=1.05)
    assert told(environ={"SHOAL_GUARD__POLICY": "kelp"}) == GuardSettings(enabled=True, policy="kelp")
    (tmp_path / "config.yaml").write_text("guard: {enabled: true, policy: static, max_slowdown: 1.2}\n")
    assert told() == GuardSettings(enabled=True, policy="static", max_slowdown=1.2)
    assert not told("guard.enabled=off").enabled
    (tmp_path / "config.yaml").write_text("guard: {enabled: true, policy: nice, max_slowdown: 1}\n")
    with pytest.raises(Invalid) as refused:
        told()
    assert [problem.where for problem in refused.value.problems] == [
        f"{tmp_path}/config.yaml: guard.policy", f"{tmp_path}/config.yaml: guard.max_slowdown",
    ]  # fmt: skip


# --- the process ---


class Program:
    """Stands for the guard's program, and counts its starts."""

    def __init__(self, code: str = "import time; time.sleep(60)") -> None:
        self.code = code
        self.started: list[subprocess.Popen[bytes]] = []

    def __call__(self, command: Sequence[str], log_file: Path) -> subprocess.Popen[bytes]:
        assert command[-1].isdecimal(), "the parent's pid"
        with log_file.open("ab") as log:
            self.started.append(subprocess.Popen([sys.executable, "-c", self.code], stderr=log))
        return self.started[-1]


def kept(tmp_path: Path, start: Program) -> tuple[GuardProcess, ManualClock]:
    clock = ManualClock(1000.0)
    return GuardProcess(tmp_path / "guard", GuardSettings(), clock=clock, start=start), clock


def test_groups_are_told_by_replacing_a_file_only_when_they_changed(tmp_path: Path) -> None:
    process, _ = kept(tmp_path, Program())
    path = tmp_path / "guard" / CONFIG_FILE
    group = {"name": "j-1", "class": "best-effort", "pids": [7]}
    process.tell([group])
    told = json.loads(path.read_text())
    assert (told["groups"], told["policy"]) == ([group], "model")
    assert "weight" not in told["actuators"]["allow"]
    first = path.stat()
    process.tell([group])
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    process.tell([])
    assert json.loads(path.read_text())["groups"] == []
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == [CONFIG_FILE]


def test_a_guard_that_was_killed_is_started_again(tmp_path: Path) -> None:
    program = Program()
    process, clock = kept(tmp_path, program)
    process.tell([])
    process.tend()
    process.tend()
    assert len(program.started) == 1
    assert process.capability().available
    program.started[0].kill()
    program.started[0].wait()
    process.tend()
    assert not process.capability().available
    clock.advance(1.0)
    process.tend()
    assert len(program.started) == 2
    process.close()
    assert program.started[1].returncode is not None, "it ended with its reconciler"


def test_a_guard_that_does_not_stay_is_tried_again_with_growing_waits(tmp_path: Path) -> None:
    program = Program("import sys; sys.exit('another guard holds the write-ahead log')")
    process, clock = kept(tmp_path, program)
    process.tell([])
    starts = []
    for _ in range(1200):
        process.tend()
        if len(starts) < len(program.started):
            program.started[-1].wait()
            starts.append(clock.monotonic())
        clock.advance(0.1)
    waits = [later - before for before, later in itertools.pairwise(starts)]
    assert waits == sorted(waits)
    assert waits[-1] > 8 * waits[0]
    found = process.capability()
    assert not found.available
    assert found.detail.endswith("another guard holds the write-ahead log")


def test_one_that_cannot_be_started_is_an_error_that_passes(tmp_path: Path) -> None:
    def refuse(command: Sequence[str], log_file: Path) -> subprocess.Popen[bytes]:
        raise Unavailable("the guard cannot be started: no memory")

    process = GuardProcess(tmp_path / "guard", GuardSettings(), clock=ManualClock(1.0), start=refuse)
    process.tell([])
    with pytest.raises(Unavailable):
        process.tend()
    process.tend()  # not yet again
    assert process.capability().detail == "the guard cannot be started: no memory"


def test_doctor_finds_no_guard_where_there_is_none(tmp_path: Path) -> None:
    assert not guard_capability(tmp_path).available


@pytest.mark.virtual_time
async def test_the_reconciler_tells_what_runs_and_ends_its_guard(tmp_path: Path) -> None:
    program = Program()
    folder = tmp_path / "guard"
    store = open_store(f"sqlite:///{tmp_path / 'shoal.db'}", inline=True, sync=False)
    store.acquire("test")
    cluster = SimulatedCluster(nodes(1, 4), clock=VirtualClock(), behaviour=lambda _: Script(run_s=3600.0))
    process = GuardProcess(folder, GuardSettings(), start=program)

    class Watched(Guard):
        def __init__(self, server: Server, settings: GuardSettings) -> None:
            self._server = server
            self.reconciler = GuardReconciler(server, settings, process=process)

    chosen = Chosen(Watched, GuardSettings(enabled=True))
    plane = ControlPlane(store, SimulatedEngine(cluster), tmp_path, extensions=[chosen])
    await plane.open()

    async def told(count: int) -> list[dict[str, object]]:
        path = folder / CONFIG_FILE
        async with asyncio.timeout(20):
            while not path.exists() or len(json.loads(path.read_text())["groups"]) != count:
                await asyncio.sleep(0.02)
        made: list[dict[str, object]] = json.loads(path.read_text())["groups"]
        return made

    try:
        await plane.put_tenant("ada", actor="admin", weight=2.0)
        job, _ = await plane.submit(manifest(priority_class="best-effort"), tenant="ada", actor="admin")
        [group] = await told(1)
        assert (group["name"], group["class"], group["weight"]) == (job.id, "best-effort", 2.0)
        [capability] = plane.extensions.capabilities()
        assert capability.detail.startswith("model, 1 groups")
        guard = plane.extensions.get(Watched)
        assert guard is not None
        guard.reconciler.sensed._known = {job.id: {"guard_share": 0.5, "memory_latency_ns": 91.4}, "gone": {}}
        for tenant, rows in ((None, [[job.name, "ada", 0.5, None, 91]]), ("bob", [])):
            page = guard.page(tenant)
            assert (page.figures[0].name, page.figures[0].value) == ("works", True)
            [table] = page.parts
            assert isinstance(table, Table)
            assert table.rows == rows
        await plane.cancel(job.id, actor="admin")
        await told(0)
    finally:
        await plane.close()
        store.release()
        store.close()
    assert [one.poll() is not None for one in program.started] == [True]


@pytest.mark.virtual_time
async def test_status_says_that_nobody_guards(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path / 'shoal.db'}", inline=True, sync=False)
    store.acquire("test")
    cluster = SimulatedCluster(nodes(1, 4), clock=VirtualClock(), behaviour=lambda _: Script(run_s=1.0))
    plane = ControlPlane(store, SimulatedEngine(cluster), tmp_path, extensions=[Chosen(Guard, GuardSettings())])
    [guard] = [one for one in plane.status()["capabilities"] if one["name"] == "guard"]
    store.close()
    assert (guard["available"], guard["detail"]) == (False, "off: `shoal up --set guard.enabled=on`")
