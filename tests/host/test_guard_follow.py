"""Groups that come and go while the guard runs, what they report, and CPUs that a hypervisor moves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from shoal.core import Invalid
from shoal.host.guard.config import FollowedConfig, GroupConfig, GuardConfig, parse_config, read_config
from shoal.host.guard.follow import FollowedFile, Following
from shoal.host.guard.live import RECHECK_S, LiveHost, TopologyWatch
from shoal.host.guard.reporting import CpuTime, Reporting, fetch
from shoal.host.linux import topology
from shoal.host.linux.members import Found, Process
from shoal.host.linux.topology import Topology
from shoal.host.sensors import Key, Quantity, Scope, StepTimes
from shoal.host.types import Applied, Domain, Missing, Plan, Setting, Snapshot
from shoal.ring import Ring

PATIENCE_S = 30.0
FEED: dict[str, Any] = {"name": "feed", "class": "guaranteed", "pids": [os.getpid()]}
FLOOD: dict[str, Any] = {"name": "flood", "class": "best-effort", "pids": [1]}


def until(true: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def config(*groups: dict[str, Any]) -> GuardConfig:
    return parse_config({"groups": groups}, kind=FollowedConfig)


def put(path: Path, *groups: dict[str, Any], **more: object) -> None:
    draft = path.with_suffix(".new")
    draft.write_text(json.dumps({"groups": groups, **more}))
    draft.replace(path)


# --- the file ---


def test_a_file_is_read_again_only_when_it_was_written_again(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    put(path, FEED)
    file = FollowedFile(path)
    first = file.changed()
    assert first is not None
    assert [one.name for one in first.groups] == ["feed"]
    assert file.changed() is None
    put(path)
    second = file.changed()
    assert second is not None
    assert second.groups == (), "there may be no work at the moment"
    for broken in ("{", "[]", '{"groups": [{"name": "x"}]}'):
        path.write_text(broken)
        with pytest.raises(Invalid):
            file.changed()
        assert file.changed() is None, "each is told once"
    path.unlink()
    with pytest.raises(Invalid):
        file.changed()


def test_who_starts_a_guard_by_hand_has_to_name_a_group(tmp_path: Path) -> None:
    put(tmp_path / "guard.json")
    with pytest.raises(Invalid, match="configuration is wrong"):
        read_config(tmp_path / "guard.json")


class Host:
    """Stands for a `LiveHost`."""

    def __init__(self) -> None:
        self.groups: list[str] = []
        self.sensed: list[float] = []

    def exchange(self, groups: Sequence[GroupConfig]) -> None:
        self.groups = [one.name for one in groups]

    def sense(self, now: float) -> Snapshot:
        self.sensed.append(now)
        return Snapshot(now, (), ())

    def apply(self, plan: Plan) -> Applied:
        return Applied(plan.settings)


def test_groups_are_exchanged_and_a_broken_file_keeps_them(tmp_path: Path) -> None:
    path, host, notes = tmp_path / "groups.json", Host(), list[str]()
    put(path, FEED, FLOOD)
    guarded = Following(host, FollowedFile(path), note=notes.append)  # type: ignore[arg-type]
    guarded.sense(0.0)
    assert host.groups == ["feed", "flood"]
    put(path, FLOOD)
    guarded.sense(1.0)
    assert host.groups == ["flood"]
    path.write_text("{")
    guarded.sense(2.0)
    assert host.groups == ["flood"]
    [fault] = guarded.apply(Plan({})).errors
    assert fault.endswith("its groups stay what they were")
    assert notes == [fault]
    assert guarded.apply(Plan({})).errors == ()
    put(path, FLOOD, policy="kelp")
    guarded.sense(3.0)
    assert "only the groups are followed" in notes[-1]


def test_with_nobody_to_protect_from_the_host_is_looked_at_seldom(tmp_path: Path) -> None:
    path, host = tmp_path / "groups.json", Host()
    put(path, FEED)
    guarded = Following(host, FollowedFile(path))  # type: ignore[arg-type]
    for tick in range(20):
        assert guarded.sense(tick / 10).at == tick / 10
    assert len(host.sensed) < 6
    put(path, FEED, FLOOD)
    for tick in range(20, 40):
        guarded.sense(tick / 10)
    assert host.sensed[-18:] == [tick / 10 for tick in range(22, 40)], "from the next look at the file on"


# --- this machine ---


@pytest.fixture
def busy() -> Iterator[list[subprocess.Popen[bytes]]]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def stopped(process: subprocess.Popen[bytes]) -> bool:
    return Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_a_group_that_is_gone_is_let_go_and_one_that_came_is_limited(
    tmp_path: Path, busy: list[subprocess.Popen[bytes]]
) -> None:
    one, other = ({**FLOOD, "name": name, "pids": [process.pid]} for name, process in zip("ab", busy, strict=True))
    only_signals = {"actuators": {"allow": ["stop-signal"]}}
    host = LiveHost(parse_config({"groups": [one], **only_signals}), tmp_path)
    try:
        host.sense(time.monotonic())
        host.apply(Plan({"a": Setting(frozen=True)}))
        until(lambda: stopped(busy[0]), "the first is stopped")
        host.exchange(config(other).groups)
        assert [state.group.name for state in host.sense(time.monotonic()).groups] == ["b"]
        done = host.apply(Plan({"b": Setting(frozen=True)}))
        assert set(done.settings) == {"b"}
        until(lambda: stopped(busy[1]) and not stopped(busy[0]), "now the second is, and the first goes on")
        host.exchange(())
        assert host.sense(time.monotonic()).groups == ()
        assert host.apply(Plan({})).settings == {}
        until(lambda: not stopped(busy[1]), "it goes on")
    finally:
        assert host.close() == ()


def test_a_guard_of_its_own_ends_with_whoever_started_it(tmp_path: Path, busy: list[subprocess.Popen[bytes]]) -> None:
    put(tmp_path / "groups.json", {**FLOOD, "pids": [busy[0].pid]}, policy="none")
    code = (
        "import os, subprocess, sys, time\n"
        "words = [sys.executable, '-m', 'shoal.host.guard', sys.argv[1], '--parent', str(os.getpid())]\n"
        "print(subprocess.Popen(words).pid, flush=True)\ntime.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "groups.json")], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    guard = int(parent.stdout.readline())
    journal = tmp_path / "journal.jsonl"
    until(lambda: journal.exists() and journal.read_text().count("\n") > 2, "it ticks")
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    until(lambda: not Path(f"/proc/{guard}").exists() or _zombie(guard), "it has ended")


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


# --- what groups tell ---


def test_rings_of_groups_that_stay_are_read_on(tmp_path: Path) -> None:
    for rank in range(2):
        (tmp_path / f"rank-{rank}").mkdir()
    rings = [Ring(tmp_path / f"rank-{rank}" / "7.ring") for rank in range(2)]
    sensor = StepTimes({"job": tmp_path})
    sensor.read(0.0, {}, float("-inf"))
    for ring in rings:
        ring.add(4_000_000, 2_000_000, end_ns=2_000_000_000)
    sensor.exchange({"job": tmp_path, "other": tmp_path / "absent"})
    readings = sensor.read(2.0, {}, float("-inf"))
    assert readings[Key(Quantity.STEP, Scope.GROUP, "job")].value == pytest.approx(0.002), "of all ranks"
    sensor.exchange({"other": tmp_path / "absent"})
    assert {key.of for key in sensor.read(2.1, {}, float("-inf"))} == {"other"}
    sensor.close()


def test_cpu_time_never_goes_back_when_a_process_leaves(busy: list[subprocess.Popen[bytes]]) -> None:
    spent = CpuTime()
    assert spent() is None
    first, second = (Process(process.pid, 1) for process in busy)
    spent.processes = frozenset({first, second})
    until(lambda: (spent() or 0) > 0.05, "they work")
    before = spent()
    busy[0].kill()
    busy[0].wait()
    assert (spent() or 0) >= (before or 0)
    spent.processes = frozenset({second})
    assert (spent() or 0) >= (before or 0)


EXPOSITION = (
    'shoal_serve_executions_total{tenant="ada",model="find",version="1"} 10.0\n'
    'shoal_serve_compute_seconds_total{tenant="ada",model="find",version="1"} 2.0\n'
    'shoal_serve_executions_total{tenant="ada",model="read",version="1"} 5.0\n'
    'shoal_serve_compute_seconds_total{tenant="ada",model="read",version="1"} 1.0\n'
    'shoal_serve_executions_total{tenant="bob",model="find",version="1"} 7.0\n'
    'shoal_serve_compute_seconds_total{tenant="bob",model="find",version="1"} 7.0\n'
)


def test_a_services_work_is_that_of_its_models_for_its_tenant() -> None:
    asked = []

    def ask(url: str, token_file: Path | None) -> str:
        asked.append((url, token_file))
        if len(asked) == 1:
            raise OSError("it is not up yet")
        return EXPOSITION

    told = {"gateway": "http://127.0.0.1:1/metrics", "token_file": "/t", "tenant": "ada", "models": ["find", "read"]}
    reporting = Reporting(config({**FEED, "reports": told}).groups, ask=ask, every_s=0.01)
    try:
        until(lambda: reporting.work(0.0, {}), "it is asked again until it answers")
        [work] = reporting.work(0.0, {}).values()
        assert (work.units, work.busy_s) == (15.0, 3.0)
        assert set(asked) == {("http://127.0.0.1:1/metrics", Path("/t"))}
    finally:
        reporting.close()
    assert reporting.work(0.0, {}) == {}


def test_a_jobs_work_is_what_its_lines_say_in_its_own_cpu_time(
    tmp_path: Path, busy: list[subprocess.Popen[bytes]]
) -> None:
    lines, wall = tmp_path / "metrics.jsonl", time.time
    reporting = Reporting(config({**FEED, "reports": {"lines": str(lines)}}).groups)
    found = {"feed": Found(frozenset({Process(busy[0].pid, 1)}))}

    def step(number: int) -> float:
        reporting.work(time.monotonic(), found)
        time.sleep(0.1)
        with lines.open("a") as file:
            file.write(json.dumps({"at": wall(), "step": number, "metrics": {}}) + "\n")
        time.sleep(0.1)
        return reporting.work(time.monotonic(), found)["feed"].units

    assert [step(1), step(2)] == [1.0, 2.0]
    assert 0 < reporting.work(time.monotonic(), found)["feed"].busy_s < 60


@pytest.mark.parametrize(
    "reports",
    [{}, {"lines": "/x", "gateway": "http://h/metrics", "models": ["m"]}, {"gateway": "http://h/metrics"},
     {"gateway": "https://h/metrics", "models": ["m"]}, {"gateway": "http://user@h/metrics", "models": ["m"]}],
)  # fmt: skip
def test_reports_that_make_no_sense_are_refused(reports: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        config({**FEED, "reports": reports})


def test_the_token_goes_to_the_gateway_and_to_nobody_it_points_to(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    seen: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers["Authorization"]))
            self.send_response(302 if self.path == "/away" else 200)
            self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(b"x 1\n")

        def log_message(self, *_: object) -> None:
            return

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        assert fetch(f"{url}/metrics", token) == "x 1\n"
        with pytest.raises(ValueError, match="answers 302"):
            fetch(f"{url}/away", token)
    finally:
        server.shutdown()
        server.server_close()
    assert seen == [("/metrics", "Bearer secret"), ("/away", "Bearer secret")]


# --- virtual CPUs that move ---


def machine(*cpus: set[int]) -> Topology:
    domains = tuple(Domain(number, frozenset(some)) for number, some in enumerate(cpus))
    return Topology(domains, {}, "a test", virtual=True)


def test_of_cpus_too_busy_to_measure_what_was_known_is_believed() -> None:
    if len(topology.detect().domains) != 1 or not topology.detect().virtual or os.cpu_count() != 2:
        pytest.skip("it needs a virtual machine of two CPUs")
    busy = Missing("too busy")
    for known in (machine({0, 1}), machine({0}, {1})):
        assert [one.cpus for one in topology.again(known, lambda *_: busy).domains] == [
            one.cpus for one in known.domains
        ]
    assert len(topology.again(machine({0, 1}), lambda *_: 160.0).domains) == 2
    assert len(topology.again(machine({0}, {1}), lambda *_: 27.0).domains) == 1


def test_domains_are_measured_again_and_only_a_change_is_told() -> None:
    answers = [machine({0, 1}), machine({0}, {1})]
    watch = TopologyWatch(machine({0, 1}), lambda _: answers.pop(0))
    now, told = 0.0, list[Topology]()
    while answers or not told:
        now += RECHECK_S / 10
        found = watch.look(now)
        told += [found] if found is not None else []
        time.sleep(0.001)
        assert now < 1000 * RECHECK_S
    watch.close()
    assert [len(one.domains) for one in told] == [2]
    bare_metal = TopologyWatch(Topology((), {}, "sysfs"), lambda _: pytest.fail("its domains stay"))
    assert [bare_metal.look(now) for now in (0.0, 100.0, 200.0)] == [None] * 3
    bare_metal.close()


def test_a_moved_cpu_shows_in_a_later_snapshot(tmp_path: Path, busy: list[subprocess.Popen[bytes]]) -> None:
    if not topology.detect().virtual:
        pytest.skip("on bare metal domains stay where they are")
    moved = machine({0}, {4000})
    host = LiveHost(config({**FLOOD, "pids": [busy[0].pid]}), tmp_path, look_only=True, measure=lambda _: moved)
    try:
        now = time.monotonic()
        later = iter(range(1, 1_000_000))
        until(
            lambda: [one.domain for one in host.sense(now + next(later) * RECHECK_S).domains] == [*moved.domains],
            "its domains are those that were measured last",
        )
        assert host.topology is moved
    finally:
        host.close()
