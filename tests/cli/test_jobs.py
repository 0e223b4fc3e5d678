from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from tests.cli.conftest import Shell, eventually

Write = Callable[..., str]
FOREVER = "import time\nprint('up')\nwhile True: time.sleep(1)"


def test_run_shows_the_log_and_exits_as_the_job_did(shell: Shell, manifest: Write) -> None:
    good = shell("run", "-f", manifest("print('hello'); print('world')", "good"))
    assert good.stdout == "hello\nworld\n"
    assert "SUCCEEDED" in good.stderr
    bad = shell("run", manifest("print('oh'); raise SystemExit(3)", "bad"), code=1)
    assert bad.stdout == "oh\n"
    assert "FAILED" in bad.stderr
    assert "exit code 3" in bad.stderr
    as_json = shell.json("run", manifest("print('hello')", "third"))
    assert (as_json["state"], as_json["name"]) == ("SUCCEEDED", "third")


def test_submit_takes_files_options_and_stdin_and_is_repeatable_by_key(shell: Shell, manifest: Write) -> None:
    path = manifest(name="many")
    lines = shell("submit", path, "-f", path).stdout.splitlines()
    assert len({line.split()[0] for line in lines}) == 2
    text = "name: piped\ncommand: [python3, -c, 'print(1)']\n"
    first = shell.json("submit", "-", "--key", "k1", stdin=text)
    again = shell.json("submit", "-", "--key", "k1", stdin=text)
    assert first["id"] == again["id"]
    assert [job["name"] for job in shell.json("submit", path, path)] == ["many", "many"]
    shell("submit", path, path, "--key", "k2", code=2)
    shell("submit", code=2)
    conflict = shell("submit", "-", "--key", "k1", stdin=text.replace("piped", "other"), code=6)
    assert "error:" in conflict.stderr


def test_working_files_travel_with_the_job(shell: Shell, tmp_path: Path, manifest: Write) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "greet.py").write_text("WORD = 'from a file'")
    path = manifest("import sys; sys.path.insert(0, 'lib'); import greet; print(greet.WORD)", "files", files=["lib"])
    assert shell("run", path).stdout == "from a file\n"


def test_show_jobs_events_logs_and_metrics_of_a_job_that_is_over(shell: Shell, manifest: Write) -> None:
    job = shell.json("run", manifest("print('loss=0.5')", "told", metrics={"regex": {"loss": r"loss=([\d.]+)"}}))
    shown = shell("show", job["id"]).stdout
    assert "SUCCEEDED" in shown
    assert "succeeded" in shown
    assert shell.json("show", "told")["id"] == job["id"]
    assert job["id"] in shell("jobs", "--name", "told").stdout
    assert [one["id"] for one in shell.json("jobs", "--name", "told", "--state", "succeeded")["jobs"]] == [job["id"]]
    assert shell("logs", job["id"]).stdout == "loss=0.5\n"
    (line,) = shell("logs", job["id"], "--json").stdout.splitlines()
    assert json.loads(line)["text"] == "loss=0.5\n"
    events = [json.loads(line) for line in shell("events", job["id"], "--follow", "--json").stdout.splitlines()]
    assert [event["new_state"] for event in events if event["new_state"]][-1] == "SUCCEEDED"
    assert re.search(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*QUEUED > ADMITTED", shell("events", job["id"]).stdout)
    assert (
        shell.json(
            "events",
            job["id"],
            "--after",
            str(events[-1]["seq"] - 1),
        )
        == events[-1]
    )
    (metric,) = shell.json("metrics", job["id"])["metrics"]
    assert (metric["name"], metric["value"]) == ("loss", 0.5)
    assert "loss" in shell("metrics", job["id"]).stdout
    assert "SUCCEEDED" in shell("explain", job["id"]).stdout.upper()


def test_of_several_files_none_is_submitted_if_one_is_wrong(shell: Shell, manifest: Write, tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    bad.write_text("name: bad\ncommand: [x]\nrankz: 2\n")
    late = manifest(name="late", deadline="2001-01-01T00:00:00Z")
    before = {job["id"] for job in shell.json("jobs", "--all")["jobs"]}
    told = shell("submit", manifest(name="fine"), str(bad), late, code=2)
    assert "2 of 3 manifests are wrong: none was submitted" in told.stderr
    assert f"{bad}:3: rankz" in told.stderr
    assert "has passed already" in told.stderr
    assert told.stdout == ""
    assert f"{bad}:3: rankz" in shell("submit", manifest(name="fine"), str(bad), code=2).stderr
    assert f"{late}:1: deadline" in shell("manifest", "check", late, code=2).stderr
    assert {job["id"] for job in shell.json("jobs", "--all")["jobs"]} == before
    assert len(shell.json("submit", manifest(name="one"), manifest(name="two"))) == 2


def test_a_waiting_job_is_explained_and_a_running_one_suspended_resumed_and_cancelled(
    shell: Shell, manifest: Write
) -> None:
    wide = shell.json("submit", manifest(name="wide", resources={"accelerators": "a100:64"}))
    told = shell("explain", wide["id"]).stdout
    assert "blocks" in told
    assert any(cause["blocking"] for cause in shell.json("explain", wide["id"])["causes"])
    shell("cancel", wide["id"], "--because", "too wide")
    assert shell.json("show", wide["id"])["message"] == "too wide"

    job = shell.json("submit", manifest(FOREVER, "long"))["id"]
    follow = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", "logs", "-f", job, "--home", str(shell.home)], stdout=subprocess.PIPE
    )
    assert follow.stdout is not None
    assert follow.stdout.readline() == b"up\n"
    shell("resume", job, code=6)
    assert shell.json("suspend", job)["desired"] == "suspend"
    assert follow.wait(30) == 0
    follow.stdout.close()
    shell("events", job)
    assert shell.json("show", job)["state"] == "SUSPENDED"
    assert shell.json("resume", job)["state"] == "QUEUED"
    shell("cancel", job)
    shell("logs", "-f", job)  # to its end: it may have started, and tests after this one count on its place


def test_a_job_of_no_fixed_size_says_how_large_it_may_be_and_is(shell: Shell, manifest: Write) -> None:
    code = "import os; print(os.environ['WORLD_SIZE'], os.environ['RANK'])"
    asked = manifest(code, "wide", resources={"accelerators": 1}, ranks={"min": 1, "max": 9})
    eventually(shell.at_rest)  # so that all there is can be had
    job = shell.json("run", asked)
    assert (job["min_ranks"], job["ranks"], job["size"]) == (1, 9, 2)  # two slots there are
    assert [place["rank"] for place in job["attempts"][0]["placement"]] == [0, 1]
    assert shell("logs", job["id"]).stdout == "2 0\n"
    assert "2 of 1-9x(any:1 1cpu " in shell("jobs", "--name", "wide").stdout
    shown = shell("show", job["id"]).stdout
    assert "2 of 1-9x(any:1 1cpu " in shown
    assert "(2 of 1 to 9 ranks)" in shown
    never = shell.json("submit", manifest(code, "never", resources={"accelerators": 1}, ranks={"min": 3, "max": 9}))
    assert (never["min_ranks"], never["size"]) == (3, None)
    assert "all nodes together hold 2 of 3 ranks" in shell("explain", never["id"]).stdout
    assert [warning["code"] for warning in never["warnings"]] == ["impossible"]
    shell("cancel", never["id"])


def test_a_job_that_can_never_run_is_accepted_with_a_warning_and_refused_when_strict(
    shell: Shell, manifest: Write
) -> None:
    huge = manifest(FOREVER, "huge", resources={"accelerators": {"type": "h100", "count": 8}}, ranks=500)
    told = shell("submit", huge)
    assert "warning: huge: needs 500 x 8 h100" in told.stderr
    assert "would never fit" in told.stderr
    shell("cancel", told.stdout.split()[0])
    before = len(shell.json("jobs", "--all", "--limit", "1000")["jobs"])
    assert "would never fit" in shell("submit", "--strict", huge, code=2).stderr
    assert len(shell.json("jobs", "--all", "--limit", "1000")["jobs"]) == before
    fine = shell("submit", "--strict", manifest("pass", "fine"))
    assert "warning" not in fine.stderr
    shell("wait", fine.stdout.split()[0])


def test_ctrl_c_ends_the_following_not_the_job(shell: Shell, manifest: Write) -> None:
    path = manifest(FOREVER, "forever")
    run = subprocess.Popen(
        [sys.executable, "-m", "shoal.cli", "run", path, "--home", str(shell.home)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n", run.poll() and run.communicate()
    run.send_signal(signal.SIGINT)
    _, told = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "the job goes on" in told
    job = shell.json("show", "forever")
    assert job["state"] == "RUNNING"
    shell("cancel", job["id"])


def test_errors_are_one_block_with_a_code_that_says_what_kind(shell: Shell, manifest: Write) -> None:
    absent = shell("show", "j-nothing", code=3)
    assert absent.stdout == ""
    assert "error: there is no job 'j-nothing'" in absent.stderr
    assert "hint:" in absent.stderr
    wrong = shell("submit", "-", stdin="name: x\nranks: none\ncomand: [x]\n", code=2)
    assert wrong.stderr.count("  - ") >= 2
    assert "ranks" in wrong.stderr
    path = Path(manifest(name="bad"))
    path.write_text("name: x\nranks: 0\ncommand: [x]\n")
    assert f"{path}:2: ranks" in shell("submit", str(path), code=2).stderr
    told = json.loads(shell("submit", "-", "--json", stdin="name: x\n", code=2).stderr)["error"]
    assert told["code"] == "invalid"
    shell("submit", "/no/such/file.yaml", code=2)
    shell("jobs", "--state", "asleep", code=2)
    url = json.loads((shell.home / "server.json").read_text())["url"]
    forbidden = shell("tenant", "create", "x", "--url", url, code=5, env={"SHOAL_TOKEN": "shoal_x_y"})
    assert "not known here" in forbidden.stderr


def test_many_jobs_are_told_in_one_line_and_waited_for_together(shell: Shell, manifest: Write) -> None:
    path = manifest(name="crowd")
    (line,) = shell("submit", *([path] * 11)).stdout.splitlines()
    assert line.startswith("submitted 11 jobs: j-")
    assert len(shell("submit", *([path] * 10)).stdout.splitlines()) == 10
    ids = shell("submit", "--quiet", *([path] * 11)).stdout
    assert len(set(ids.split())) == 11
    assert shell("wait", "-", stdin=ids).stdout == "11 of 11 succeeded\n"
    bad = shell("submit", manifest("raise SystemExit(3)", "stray")).stdout
    told = shell("wait", ids.split()[0], "-", stdin=bad, code=1).stdout
    assert "stray: FAILED: the process left with exit code 3" in told
    assert told.endswith("1 of 2 succeeded\n")
    forever = shell("submit", "-q", *([manifest(FOREVER, "endless")] * 2)).stdout
    assert shell("cancel", "-", stdin=forever).stdout.count("endless") == 2
    shell("wait", "-", stdin=forever, code=1)


def test_jobs_are_listed_since_a_time_and_in_an_order(shell: Shell, manifest: Write) -> None:
    for name in ("order-b", "order-a"):
        shell("run", manifest(name=name))
    names = [job["name"] for job in shell.json("jobs", "--since", "1h", "--sort", "name", "-n", "1000")["jobs"]]
    assert names == sorted(names)
    assert names.index("order-a") < names.index("order-b")
    newest = [job["name"] for job in shell.json("jobs", "-n", "2")["jobs"]]
    assert newest == ["order-a", "order-b"]
    ran = [job["ran_s"] for job in shell.json("jobs", "--sort", "ran")["jobs"]]
    assert ran == sorted(ran, reverse=True)
    eventually(lambda: not shell.json("jobs", "--since", "0.01s")["jobs"])
    assert not shell.json("jobs", "--since", "2100-01-01")["jobs"]
    assert shell.json("jobs", "--since", "2020-01-01T00:00Z")["jobs"]
    assert "'soon' is no duration and no time" in shell("jobs", "--since", "soon", code=2).stderr
    assert "'size' is not one of" in shell("jobs", "--sort", "size", code=2).stderr
    (first,) = shell.json("jobs", "--name", "order-*", "--sort", "name", "-n", "1")["jobs"]
    assert first["name"] == "order-a"
    rest = shell.json("jobs", "--name", "order-*", "--sort", "name", "--before", first["id"])["jobs"]
    assert [job["name"] for job in rest] == ["order-b"]


def test_a_pattern_means_all_unfinished_jobs_of_such_names(shell: Shell, manifest: Write) -> None:
    shell("run", manifest(name="broom-0"))
    for n in (1, 2, 3):
        shell("submit", manifest(FOREVER, f"broom-{n}"))
    told = shell("cancel", "broom-*", code=2).stderr
    assert "the pattern means 3 jobs" in told
    assert "--yes" in told
    assert all(job["desired"] == "run" for job in shell.json("jobs", "--name", "broom-*")["jobs"])
    assert shell("cancel", "broom-1*").stdout.count("broom-1") == 1  # it means one: nothing to confirm
    shell("cancel", "broom-*", "--yes")
    waited = shell("wait", *(f"broom-{n}" for n in range(4)), code=1).stdout
    assert waited.endswith("1 of 4 succeeded\n")
    assert shell("wait", "broom-*", code=1).stdout.endswith("1 of 4 succeeded\n")
    assert "no job that is queued or " in shell("cancel", "broom-*", code=3).stderr
    assert "no job has a name like 'bloom-*'" in shell("wait", "bloom-*", code=3).stderr
    shell("submit", manifest(name="wide-1", resources={"accelerators": "a100:64"}))
    shell("suspend", "wide-?")
    assert shell("wait", "wide-*", code=1).stdout.endswith("0 of 1 succeeded\n")
    shell("cancel", "wide-*")
    states = {job["name"]: job["state"] for job in shell.json("jobs", "--name", "broom-*")["jobs"]}
    assert states == {"broom-0": "SUCCEEDED", "broom-1": "CANCELLED", "broom-2": "CANCELLED", "broom-3": "CANCELLED"}


def test_one_job_that_cannot_be_changed_keeps_no_other_from_it(shell: Shell, manifest: Write) -> None:
    first, second = (shell.json("submit", manifest(FOREVER, f"mess-{n}"))["id"] for n in (1, 2))
    told = shell("cancel", first, "nothing-a", "nothing-b", second, code=3)
    assert [line.split()[0] for line in told.stdout.splitlines()] == [first, second]
    assert told.stderr.index("nothing-b") < told.stderr.index("nothing-a")  # the first is the command's own error
    shell("wait", first, second, code=1)


def test_a_wait_for_a_pattern_takes_the_newest_of_each_name_that_is_over(shell: Shell, manifest: Write) -> None:
    shell("wait", shell.json("submit", manifest("raise SystemExit(3)", "mop-1"))["id"], code=1)
    shell("run", manifest(name="mop-2"))
    told = shell("wait", "mop-*", code=1).stdout
    assert "mop-1: FAILED" in told
    assert told.endswith("1 of 2 succeeded\n")
    shell("run", manifest(name="mop-1"))
    assert shell("wait", "mop-*").stdout == "2 of 2 succeeded\n"
    waiting = [shell.json("submit", manifest(FOREVER, "mop-2"))["id"] for _ in range(2)]
    shell("cancel", "-", stdin="\n".join(waiting))
    shell("wait", "-", stdin="\n".join(waiting), code=1)
    assert shell("wait", "mop-*", code=1).stdout.endswith("1 of 2 succeeded\n")


def test_the_last_lines_of_a_log(shell: Shell, manifest: Write) -> None:
    job = shell.json("run", manifest("for n in range(50): print('line', n)", "tailed"))["id"]
    assert shell("logs", job, "--tail", "2").stdout == "line 48\nline 49\n"
    assert shell("logs", "-f", job, "--tail", "1").stdout == "line 49\n"
    assert shell("logs", job, "--tail", "0").stdout == ""
    (piece,) = shell("logs", job, "--tail", "1", "--json").stdout.splitlines()
    assert json.loads(piece)["offset"] == len("".join(f"line {n}\n" for n in range(49)))


def test_lines_of_a_log_since_a_time_and_with_times(shell: Shell, manifest: Write) -> None:
    job = shell.json("run", manifest("for n in range(3): print('line', n)", "timed"))["id"]
    lines = [line.split(" ", 1) for line in shell("logs", job, "--timestamps").stdout.splitlines()]
    assert [line for _, line in lines] == ["line 0", "line 1", "line 2"]
    told = shell.json("show", job)
    for at, _ in lines:
        assert told["submitted_at"] - 1 <= datetime.fromisoformat(at).timestamp() <= told["ended_at"]
    assert shell("logs", job, "--since", "1h", "--tail", "1").stdout == "line 2\n"
    assert shell("logs", "-f", job, "--since", "2100-01-01").stdout == ""
    (piece,) = shell("logs", job, "--since", "1h", "--timestamps", "--tail", "2", "--json").stdout.splitlines()
    assert json.loads(piece)["offset"] == len("line 0\n")
    assert "hint: 90s, 15m, 2h or 1d ago" in shell("logs", job, "--since", "soon", code=2).stderr
