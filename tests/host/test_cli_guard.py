"""`shoal guard` as a person calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from click.testing import Result
from host.simulate import simulate, workload_set
from typer.testing import CliRunner

from shoal.core import PriorityClass
from shoal.host.commands import guard
from shoal.host.commands import view as guard_view
from shoal.host.guard.journal import Head, Journal
from shoal.host.guard.loop import Tick
from shoal.host.policy import make_policy
from shoal.host.types import Group, GroupState, Plan, Reading, Setting, Snapshot

app = typer.Typer()
guard.register(app)


def call(*words: object) -> Result:
    return CliRunner().invoke(app, ["guard", *(str(word) for word in words)])


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    path = tmp_path / "guard" / "journal.jsonl"
    kept = Journal(path, Head("model", None, started_at=time.time() - 3))
    simulate(replace(workload_set()[7], duration_s=3.0), make_policy("model"), record=kept.write)
    kept.close()
    return path


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "guard.yaml"
    path.write_text(
        f"groups:\n  - {{name: feed, class: guaranteed, pids: [{os.getpid()}]}}\n"
        "  - {name: flood, class: best-effort, label: SHOAL_TEST_NOBODY_HAS_THIS=1}\n"
    )
    return path


@pytest.mark.few(count=3)
@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("replay", "/nonexistent/journal"), 2, "cannot be read"),
        (("replay", "/nonexistent/journal", "-p", "best"), 2, "there is no policy 'best'"),
        (("run", "-c", "/nonexistent/guard.yaml"), 2, "there is no configuration"),
        (("status", "--home", "/nonexistent"), 3, "no guard has kept a journal"),
        (("explain", "--home", "/nonexistent"), 3, "no guard has kept a journal"),
    ],
)
def test_wrong_calls_say_what_is_wrong(words: tuple[str, ...], code: int, said: str) -> None:
    found = call(*words)
    assert found.exit_code == code
    assert said in found.stderr
    as_json = call(*words, "--json")
    assert said in json.loads(as_json.stderr)["error"]["what"]


def test_a_wrong_configuration_shows_every_problem(tmp_path: Path) -> None:
    file = tmp_path / "guard.toml"
    file.write_text('policy = "best"\n[[groups]]\nname = "a b"\nclass = "gold"\n')
    found = call("run", "-c", file, "--home", tmp_path)
    assert found.exit_code == 2
    assert "groups[0].name" in found.stderr
    assert "groups[0].class" in found.stderr
    assert "there is no policy 'best'" in found.stderr


def test_replay_agrees_with_itself_and_shows_what_another_would_do(journal: Path) -> None:
    same = call("replay", journal)
    assert same.exit_code == 0, same.output
    assert "the same at every one" in same.stdout
    other = call("replay", journal, "--policy", "none")
    assert other.exit_code == 0
    assert "would have decided otherwise" in other.stdout
    assert json.loads(call("replay", journal, "-p", "kelp", "--json").stdout)["differing"] > 0


def test_replay_notices_a_journal_that_was_tampered_with(journal: Path) -> None:
    lines = journal.read_text().splitlines()
    tick = json.loads(lines[-1])
    tick["tick"]["plan"]["settings"]["flood"] = {"share": 0.9}
    journal.write_text("\n".join([*lines[:-1], json.dumps(tick)]) + "\n")
    found = call("replay", journal)
    assert found.exit_code == 1
    assert "90 %" in found.stdout


def test_explain_gives_the_reasons_of_changes(journal: Path, tmp_path: Path) -> None:
    shown = call("explain", "flood", "--home", tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "of what is allowed, by step time" in shown.stdout
    document = json.loads(call("explain", "--home", tmp_path, "--json", "-n", "3").stdout)
    assert len(document) == 3
    assert document[-1]["reason"]["code"]
    assert call("explain", "nobody", "--home", tmp_path).exit_code == 3


def test_status_shows_the_last_tick_of_a_guard_that_is_gone(journal: Path, tmp_path: Path) -> None:
    shown = call("status", "--home", tmp_path)
    assert shown.exit_code == 1
    assert "does not run" in shown.stdout
    assert "flood" in shown.stdout
    document = json.loads(call("status", "--home", tmp_path, "--json").stdout)
    assert document["running"] is False
    assert document["tick"]["snapshot"]["groups"][0]["group"]["name"] == "feed"
    journal.write_text("")
    assert "no tick yet" in call("status", "--home", tmp_path).stderr


def test_doctor_names_what_works_and_what_is_missing(tmp_path: Path) -> None:
    shown = call("doctor", "--home", tmp_path)
    assert shown.exit_code in (0, 1), shown.output
    assert "schedstat" in shown.stdout
    document = json.loads(call("doctor", "--json").stdout)
    assert document["domains"][0]["cpus"]
    assert {"name", "available", "detail", "consequence"} <= set(document["sensors"][0])
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_prints_plans_and_leaves_nothing(config: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    shown = call("run", "-c", config, "--home", home, "--dry-run", "--ticks", 2)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.count("->") == 2
    lines = call("run", "-c", config, "--home", home, "--dry-run", "--ticks", 1, "--json").stdout.splitlines()
    assert json.loads(lines[-1])["dry_run"] is True
    assert not (home / "guard" / "journal.jsonl").exists()


def test_a_group_that_nobody_is_in_is_said_aloud(config: Path, tmp_path: Path) -> None:
    said = "flood: no process matches: label SHOAL_TEST_NOBODY_HAS_THIS=1"
    home = tmp_path / "home"
    dry = call("run", "-c", config, "--home", home, "--dry-run", "--ticks", 1)
    assert f"warning: {said}" in dry.stderr
    assert f"warning: {said}" in call("doctor", "-c", config).stdout
    document = json.loads(call("doctor", "-c", config, "--json").stdout)
    assert document["unmatched"] == {"flood": "label SHOAL_TEST_NOBODY_HAS_THIS=1"}
    assert call("run", "-c", config, "--home", home, "-p", "none", "--ticks", 2).exit_code == 0
    assert f"warning: {said}" in call("status", "--home", home).stdout
    assert f"warning: {said}" in call("explain", "flood", "--home", home).stdout
    assert said not in call("explain", "feed", "--home", home).stdout


def test_status_says_that_guaranteed_work_starves_although_its_steps_look_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    feed = Group("feed", PriorityClass.GUARANTEED, cpus=1.0)
    well = GroupState(
        feed, frozenset({0}), step_s=Reading(0.001), alone_s=Reading(0.001), cpus=Reading(0.0898), rate=Reading(89.8),
        wait=Reading(9.0, age_s=2.0), unmatched="pids 7",
    )  # fmt: skip
    guard_view.snapshot(Snapshot(1.0, (), (well,)), Plan({"feed": Setting(weight=100.0)}))
    shown = capsys.readouterr().out
    assert "1.00x" in shown
    assert "89.8/s" in shown
    assert "weight 100x" in shown
    assert "warning: feed: waits for a CPU 90 % of the time that it could run, and gets 0.0898 CPUs of 1 that" in shown
    busy = replace(well, cpus=Reading(1.0))
    guard_view.snapshot(Snapshot(1.0, (), (busy,)), Plan({}))
    assert "waits for a CPU" not in capsys.readouterr().out, "for threads of its own"


def test_status_says_what_a_quota_or_the_hypervisor_takes_beyond_the_promise(
    capsys: pytest.CaptureFixture[str],
) -> None:
    home = frozenset({0})

    def told(lost: float, priority_class: PriorityClass = PriorityClass.GUARANTEED) -> str:
        one = GroupState(Group("feed", priority_class, max_slowdown=1.05), home, throttled=Reading(lost))
        guard_view.snapshot(Snapshot(1.0, (), (one,), steal=Reading(lost)), Plan({}))
        return capsys.readouterr().out

    assert "warning: feed: its CPU quota ran out in 40 % of the periods: raise cpu.max of its cgroup" in told(0.4)
    assert "warning: feed: the hypervisor takes 40 % of the CPU time, more than it may lose" in told(0.4)
    assert "warning" in told(0.048)
    assert "warning" not in told(0.047)
    assert "warning" not in told(0.4, PriorityClass.BEST_EFFORT)


def test_run_keeps_a_journal_and_ends_on_sigterm(config: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    code = "import typer; from shoal.host.commands import guard; app = typer.Typer(); guard.register(app); app()"
    words = [sys.executable, "-c", code, "guard", "run", "-c", str(config), "--home", str(home), "-p", "none"]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        journal = home / "guard" / "journal.jsonl"
        while not (journal.exists() and journal.stat().st_size):
            assert running.poll() is None
            time.sleep(0.05)
        status = call("status", "--home", home)
        assert "guard runs (pid" in status.stdout
        assert status.exit_code == 0
        second = subprocess.run(words, capture_output=True, text=True, check=False)
        assert second.returncode == 6
        assert f"another guard works on this host: pid {running.pid}" in second.stderr
        elsewhere = [str(tmp_path / "other") if word == str(home) else word for word in words]
        third = subprocess.run(elsewhere, capture_output=True, text=True, check=False)
        assert third.returncode == 6, "one guard for a host, whatever its home"
        assert f"pid {running.pid}, files in {home}"[:60] in third.stderr
        assert not (tmp_path / "other" / "guard" / "journal.jsonl").exists()
        followed = [sys.executable, "-m", "shoal.host.guard", str(config), "--parent", str(os.getpid())]
        fourth = subprocess.run(followed, capture_output=True, text=True, check=False)
        assert fourth.returncode != 0, "nor beside the guard of a server"
        assert "another guard works on this host" in fourth.stderr
        running.send_signal(signal.SIGTERM)
        assert running.wait(20) == 0
    finally:
        running.kill()
        running.communicate()
    assert "policy none" in call("status", "--home", home).stdout


def test_status_shows_what_is_in_force_and_what_went_wrong(tmp_path: Path) -> None:
    """What is planned only is not shown as a limit, and a fault is shown though later ticks had none."""
    path = tmp_path / "guard" / "journal.jsonl"
    kept = Journal(path, Head("static", None, started_at=time.time(), monotonic_at=0.0))
    flood = GroupState(Group("flood", PriorityClass.BEST_EFFORT), frozenset({0}))
    planned = Plan({"flood": Setting(share=0.3)})
    lost = Tick(0, 0.0, Snapshot(0.0, (), (flood,)), planned, {}, faults=("flood: it was removed: made again",))
    kept.write(lost)
    kept.write(replace(lost, number=1, at=0.1, faults=()))
    kept.close()
    shown = call("status", "--home", tmp_path)
    assert "- (planned: 30 %)" in " ".join(shown.stdout.split())
    assert "it was removed: made again" in shown.stdout
    document = json.loads(call("status", "--home", tmp_path, "--json").stdout)
    assert [one["fault"] for one in document["faults"]] == ["flood: it was removed: made again"]
    assert "made again" in call("explain", "flood", "--home", tmp_path).stdout
    found = json.loads(call("explain", "--home", tmp_path, "--json").stdout)
    assert "flood: it was removed: made again" in [one.get("fault") for one in found]
    kept = Journal(path, Head("static", None, started_at=time.time(), monotonic_at=0.0))
    kept.write(replace(lost, applied={"flood": Setting(share=0.3)}, faults=()))
    kept.write(replace(lost, at=120.0, applied={"flood": Setting(share=0.3)}, faults=()))
    kept.close()
    shown = call("status", "--home", tmp_path)
    assert "planned" not in shown.stdout
    assert "fault" not in shown.stdout
