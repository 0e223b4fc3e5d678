"""The training hooks: what they write, when they write it, and what a script is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.train import EXIT_RESUMABLE, Hooks


class Clock:
    """Wall time and elapsed time that move only when told to."""

    def __init__(self) -> None:
        self.elapsed = 0.0

    def now(self) -> float:
        return 1_000_000.0 + self.elapsed

    def monotonic(self) -> float:
        return self.elapsed


class Place:
    """What Shoal gives to one rank."""

    def __init__(self, home: Path, rank: int = 0, ranks: int = 1) -> None:
        self.run = home / f"rank-{rank}"
        self.run.mkdir(parents=True, exist_ok=True)
        self.metrics = self.run / "metrics.jsonl"
        self.checkpoints = home / "checkpoints"
        self.environ = {
            "SHOAL_RUN": str(self.run),
            "SHOAL_METRICS_FILE": str(self.metrics),
            "SHOAL_CHECKPOINT_DIR": str(self.checkpoints),
            "SHOAL_ATTEMPT": "3",
            "RANK": str(rank),
            "WORLD_SIZE": str(ranks),
        }
        self.clock = Clock()
        self.hooks = Hooks(self.environ, now=self.clock.now, monotonic=self.clock.monotonic)

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.metrics.read_text().splitlines()] if self.metrics.exists() else []

    def ask_to_stop(self) -> None:
        (self.run / "notice").write_text('{"reason": "preempt"}')


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def run(code: str, environ: Mapping[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], **environ}
    return subprocess.run([sys.executable, "-c", code], env=env, cwd=cwd, capture_output=True, text=True, timeout=60)


def test_a_report_is_one_line_with_rate_and_time_left(place: Place) -> None:
    place.hooks.report(10, total=100, loss=0.5)
    place.clock.elapsed = 2.0
    place.hooks.report(30, total=100, loss=0.25)
    assert place.lines() == [
        {"at": 1_000_000.0, "step": 10, "total": 100, "rate_per_s": None, "eta_s": None, "metrics": {"loss": 0.5}},
        {"at": 1_000_002.0, "step": 30, "total": 100, "rate_per_s": 10.0, "eta_s": 7.0, "metrics": {"loss": 0.25}},
    ]


def test_frequent_reports_are_thinned_out_but_each_name_keeps_its_newest(place: Place) -> None:
    for step in range(1, 1001):
        place.clock.elapsed = step * 0.001
        place.hooks.report(step, loss=1 / step)
        if step == 950:
            place.hooks.report(step, accuracy=0.9)
    place.clock.elapsed = 1.2
    place.hooks.report(1001, loss=0.0)
    lines = place.lines()
    assert len(lines) <= 14
    assert [line["at"] for line in lines] == sorted(line["at"] for line in lines)
    assert [line["step"] for line in lines if "accuracy" in line["metrics"]] == [950]
    assert lines[-1]["step"] == 1001


def test_the_last_report_is_written_at_the_end(place: Place, tmp_path: Path) -> None:
    done = run("from shoal import train\nfor step in range(50): train.report(step, loss=step)", place.environ, tmp_path)
    assert done.returncode == 0
    assert place.lines()[-1]["step"] == 49


def test_the_last_report_is_written_when_the_script_crashes(place: Place, tmp_path: Path) -> None:
    done = run("from shoal import train\ntrain.report(1)\ntrain.report(2)\n1/0", place.environ, tmp_path)
    assert done.returncode == 1
    assert place.lines()[-1]["step"] == 2


def test_values_are_numbers_and_infinite_ones_are_absent(place: Place) -> None:
    class Scalar:
        def __float__(self) -> float:
            return 0.5

    place.hooks.report(1, a=Scalar(), b=True, c=float("nan"), d=float("inf"))  # type: ignore[arg-type]
    assert place.lines()[0]["metrics"] == {"a": 0.5, "b": 1.0, "c": None, "d": None}


@pytest.mark.parametrize("environ", [{}, {"SHOAL_METRICS_FILE": "metrics"}])
def test_what_is_no_number_is_refused_everywhere_alike(environ: dict[str, str]) -> None:
    with pytest.raises(TypeError, match=r"report\(loss=...\): str is not a number"):
        Hooks(environ).report(1, loss="low")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Hooks(environ).report(1.5)  # type: ignore[arg-type]


def test_a_line_that_a_crash_left_unfinished_is_closed_off(place: Place) -> None:
    place.metrics.write_text('{"step": 1}\n{"st')
    place.hooks.report(2)
    first, torn, second = place.metrics.read_text().splitlines()
    assert (json.loads(first)["step"], torn, json.loads(second)["step"]) == (1, '{"st', 2)


@given(kept=st.binary(max_size=40), steps=st.lists(st.integers(0, 1000), min_size=1, max_size=5))
def test_reports_are_whole_lines_whatever_stood_before(
    tmp_path_factory: pytest.TempPathFactory, kept: bytes, steps: list[int]
) -> None:
    place = Place(tmp_path_factory.mktemp("hooks"))
    place.metrics.write_bytes(kept)
    for step in steps:
        place.clock.elapsed += 1
        place.hooks.report(step)
    written = place.metrics.read_bytes().split(b"\n")[-len(steps) - 1 :]
    assert [json.loads(line)["step"] for line in written[:-1]] == steps
    assert written[-1] == b""


def test_a_full_disk_costs_reports_and_not_the_training(capsys: pytest.CaptureFixture[str]) -> None:
    hooks = Hooks({"SHOAL_METRICS_FILE": "/dev/full"}, monotonic=iter(range(1000)).__next__)
    hooks.report(1)
    hooks.report(2)
    assert capsys.readouterr().err.count("No space left on device") == 1


def test_nobody_asks_until_there_is_a_notice(place: Place) -> None:
    assert not place.hooks.should_checkpoint()
    place.ask_to_stop()
    assert not place.hooks.should_checkpoint(), "the file is looked for every 50 ms only"
    place.clock.elapsed = 0.06
    assert place.hooks.should_checkpoint()
    assert place.hooks.stop_requested()


def test_only_a_script_that_looks_for_notices_is_cooperative(place: Place) -> None:
    place.hooks.report(1)
    place.hooks.resume_path()
    assert not (place.run / "cooperative").exists()
    place.hooks.should_checkpoint()
    assert (place.run / "cooperative").exists()


def test_checkpoints_may_be_periodic(place: Place) -> None:
    path = place.hooks.checkpoint_dir() / "model"
    path.write_text("weights")
    asked = []
    for second in range(12):
        place.clock.elapsed = float(second)
        asked.append(place.hooks.should_checkpoint(every_s=5))
        if asked[-1]:
            place.hooks.checkpoint(path, step=second)
    assert [second for second, was in enumerate(asked) if was] == [5, 10]


def test_a_checkpoint_is_recorded_and_found_again(place: Place) -> None:
    path = place.hooks.checkpoint_dir() / "step-7.npz"
    path.write_bytes(b"weights")
    assert place.hooks.resume_path() is None
    place.hooks.report(6)
    place.hooks.report(7)
    place.hooks.checkpoint(path)
    assert place.hooks.resume_path() == path == Hooks(place.environ).resume_path()
    assert place.lines()[-2]["step"] == 7, "reports come before the checkpoint that follows them"
    assert place.lines()[-1] == {
        "at": 1_000_000.0, "checkpoint": str(path), "step": 7, "seconds": None, "bytes": len(b"weights")
    }  # fmt: skip
    assert json.loads((place.checkpoints / "latest.json").read_text())["path"] == "step-7.npz"
    assert sorted(item.name for item in place.checkpoints.iterdir()) == ["latest.json", "step-7.npz"]


def test_how_long_a_checkpoint_took_is_counted_from_the_answer_that_asked_for_it(place: Place) -> None:
    (path := place.hooks.checkpoint_dir() / "step").mkdir()
    for name in ("a", "b"):
        (path / name).write_bytes(b"12345")
    assert not place.hooks.should_checkpoint(every_s=5)
    place.clock.elapsed += 5
    assert place.hooks.should_checkpoint(every_s=5)
    place.clock.elapsed += 1.5
    place.hooks.checkpoint(path, step=1)
    assert (place.lines()[-1]["seconds"], place.lines()[-1]["bytes"]) == (1.5, 10)
    place.hooks.checkpoint(path, step=2)
    assert place.lines()[-1]["seconds"] is None, "nobody asked for this one"
    place.ask_to_stop()
    place.clock.elapsed += 1
    assert place.hooks.stop_requested()
    place.clock.elapsed += 2
    place.hooks.checkpoint(path, step=3, leave=False)
    assert place.lines()[-1]["seconds"] == 2.0


def test_a_checkpoint_may_be_a_directory_and_lie_elsewhere(place: Place, tmp_path: Path) -> None:
    path = tmp_path / "elsewhere"
    (path / "shards").mkdir(parents=True)
    (path / "shards" / "0").write_text("weights")
    place.hooks.checkpoint(path)
    assert Hooks(place.environ).resume_path() == path


def test_the_checkpoints_may_move_as_a_whole(place: Place, tmp_path: Path) -> None:
    (place.hooks.checkpoint_dir() / "model").write_text("weights")
    place.hooks.checkpoint(place.checkpoints / "model")
    moved = place.checkpoints.rename(tmp_path / "moved")
    assert Hooks({"SHOAL_CHECKPOINT_DIR": str(moved)}).resume_path() == moved / "model"


def test_a_missing_checkpoint_is_an_error_and_leaves_the_last_one(place: Place) -> None:
    first = place.hooks.checkpoint_dir() / "first"
    first.write_text("weights")
    place.hooks.checkpoint(first)
    with pytest.raises(FileNotFoundError):
        place.hooks.checkpoint(place.checkpoints / "second")
    assert place.hooks.resume_path() == first


@pytest.mark.parametrize("latest", ["", "[]", "{}", '{"path": 3}', '{"path": "gone"}', "\x00"])
def test_a_spoilt_record_means_a_fresh_start(place: Place, latest: str) -> None:
    (place.hooks.checkpoint_dir() / "latest.json").write_text(latest)
    assert place.hooks.resume_path() is None


def test_a_script_that_was_asked_leaves_after_its_checkpoint(place: Place, tmp_path: Path) -> None:
    place.ask_to_stop()
    done = run(
        "from shoal import train\n"
        "for step in range(1000):\n"
        "    train.report(step)\n"
        "    if train.should_checkpoint():\n"
        "        (path := train.checkpoint_dir() / 'model').write_text(str(step))\n"
        "        train.checkpoint(path)\n"
        "print('went on')",
        place.environ,
        tmp_path,
    )
    assert (done.returncode, done.stdout) == (EXIT_RESUMABLE, "")
    assert (place.checkpoints / "model").read_text() == "0"
    assert place.lines()[-1]["checkpoint"].endswith("model")


def test_in_a_gang_the_ranks_leave_as_rank_0_says(tmp_path: Path) -> None:
    leader, other = Place(tmp_path, 0, 2), Place(tmp_path, 1, 2)
    path = leader.hooks.checkpoint_dir() / "model"
    path.write_text("weights")
    other.ask_to_stop()
    for place in (leader, other):
        place.hooks.should_checkpoint()
        place.hooks.checkpoint(path, step=1, leave=False)
    for place in (leader, other):
        with pytest.raises(SystemExit) as left:
            place.hooks.checkpoint(path, step=2, leave=True)
        assert left.value.code == EXIT_RESUMABLE
    assert [line["step"] for line in leader.lines()] == [1, 2]
    assert other.lines() == [], "one rank alone records a gang's checkpoint"


def test_outside_shoal_everything_works_and_nothing_is_reported(tmp_path: Path) -> None:
    script = tmp_path / "mine" / "train.py"
    script.parent.mkdir()
    script.write_text(
        "from shoal import train\n"
        "train.report(1, total=2, loss=1.0)\n"
        "assert not train.should_checkpoint() and not train.stop_requested() and not train.is_managed()\n"
        "assert (train.rank(), train.world_size(), train.attempt()) == (0, 1, 1)\n"
        "print(train.resume_path())\n"
        "(train.checkpoint_dir() / 'm').touch()\n"
        "train.checkpoint(train.checkpoint_dir() / 'm')\n"
        "print(train.resume_path())\n"
    )
    done = subprocess.run(
        [sys.executable, script], env={"PATH": os.environ["PATH"]}, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout.split() == ["None", ".shoal-checkpoints/mine-train/m"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".shoal-checkpoints", "mine"]


def test_what_shoal_gave_is_read(place: Place) -> None:
    hooks = Hooks({**place.environ, "RANK": "2", "WORLD_SIZE": "4"})
    assert (hooks.rank(), hooks.world_size(), hooks.attempt(), hooks.is_managed()) == (2, 4, 3, True)


def test_the_hooks_import_the_standard_library_alone(tmp_path: Path) -> None:
    code = (
        "import sys; before = set(sys.modules); from shoal import train; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)));"
        "print(*sorted(name for name in sys.modules if name.startswith('shoal')))"
    )
    done = run(code, {}, tmp_path)
    assert done.stdout.splitlines() == ["shoal", "shoal shoal.train shoal.train._files shoal.train._hooks"]


def test_the_first_script_of_the_documentation_runs_and_resumes(place: Place, tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "training-hooks.md").read_text()
    script = page.split("```python\n")[1].split("```")[0]
    place.ask_to_stop()
    assert run(script, place.environ, tmp_path).returncode == EXIT_RESUMABLE
    (place.run / "notice").unlink()
    done = run(script, place.environ, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line["step"] for line in place.lines()][:3] == [1, 1, 2]
    assert place.lines()[-1]["step"] == 1000


def test_an_artifact_outside_shoal_goes_nowhere_and_its_digest_is_told(tmp_path: Path) -> None:
    (tmp_path / "logs/deep").mkdir(parents=True)
    (tmp_path / "logs/deep/a").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path / "logs/deep/a")
    hooks = Hooks({})
    digest = "sha256:ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert hooks.artifact(tmp_path / "logs") == {"logs/deep/a": digest}
    assert hooks.artifact(tmp_path / "logs/deep/a", name="best") == {"best": digest}
    with pytest.raises(FileNotFoundError):
        hooks.artifact(tmp_path / "nothing")
    with pytest.raises(RuntimeError, match="keeps no artifacts"):
        Hooks({"SHOAL_RUN": str(tmp_path)}).artifact(tmp_path / "link")


def test_an_artifact_that_no_server_answers_for_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "runs/j-1/1/.artifacts"
    folder.parent.mkdir(parents=True)
    (tmp_path / "x").write_text("x")
    with pytest.raises(TimeoutError, match="did not keep x within"):
        Hooks({"SHOAL_ARTIFACTS": str(folder)}).artifact(tmp_path / "x", timeout_s=0.0)
    assert list(folder.iterdir()) == []
