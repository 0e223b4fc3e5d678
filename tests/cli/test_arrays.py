"""Job arrays, dependencies and Slurm's scripts on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from shoal.cli.app import app
from tests.cli.conftest import Shell

Write = Callable[..., str]
SLEEPS = "import time; time.sleep(600)"


def test_an_array_is_one_line_and_can_be_changed_in_part(shell: Shell, manifest: Write) -> None:
    line = shell("submit", manifest(SLEEPS, "sweep", array="0-5%1")).stdout
    array, name, *_ = line.split()
    assert name == "sweep[0-5%1]"
    try:
        listed = shell("jobs").stdout
        assert "sweep[0-5%1]" in listed
        assert "sweep-3" not in listed
        assert "sweep-3" in shell("jobs", "--tasks").stdout
        assert "6: 0-5" in shell("show", "sweep").stdout
        assert "run at a time" in shell("explain", f"{array}-5").stdout
        assert "waits" in shell("explain", array).stdout
        assert shell("cancel", "sweep[3-5]").stdout == f"{array}  sweep: cancel asked of 3 tasks\n"
        shell("cancel", "sweep[7]", code=3)
        shell("cancel", "swoop[7]", code=3)
    finally:
        shell("cancel", array)
    assert shell("wait", array, code=1).stdout.endswith("0 of 6 succeeded\n")


def test_a_job_waits_for_another(shell: Shell, manifest: Write) -> None:
    first = shell.json("submit", manifest(SLEEPS, "prepare"))["id"]
    second = shell.json("submit", manifest("print(1)", "train", after=[{"job": "prepare"}]))["id"]
    assert f"waits for the success of {first}" in shell("explain", second).stdout
    shell("cancel", first)
    shell("wait", second, code=1)
    assert f"waited for the success of {first}, which cannot come any more" in shell("show", second).stdout


def test_what_is_submitted_together_may_wait_for_what_comes_before_it(shell: Shell, manifest: Write) -> None:
    first = manifest("print(1)", "before")
    second = manifest("print(2)", "behind", after=["before"])
    refused = shell("submit", "--strict", second, code=2)
    assert "no job 'before' to wait for" in refused.stderr
    shell("submit", "--strict", second, first, code=2)
    ids = shell("submit", "--strict", "--quiet", first, second).stdout.split()
    assert shell("wait", *ids).stdout == "2 of 2 succeeded\n"


def sbatch(shell: Shell, *words: str, code: int = 0, stdin: str | None = None) -> tuple[str, str]:
    found = CliRunner().invoke(app, ["sbatch", *words], env={"SHOAL_HOME": str(shell.home)}, input=stdin)
    assert found.exit_code == code, (found.stdout, found.stderr)
    return found.stdout, found.stderr


def test_a_batch_script_runs_as_under_slurm(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("job.sh").write_text(
        "#!/bin/bash\n#SBATCH --array=3,5 --mail-type=END\n#SBATCH --time=5\n"
        'echo "$1 $SLURM_ARRAY_TASK_ID" > "$SLURM_ARRAY_TASK_ID.txt"\n'
    )
    out, notes = sbatch(shell, "job.sh", "--lr=1")
    assert out.startswith("Submitted batch job j-")
    assert "--mail-type is left out" in notes
    array = out.split()[-1]
    shell("wait", array)
    assert [Path(f"{n}.txt").read_text() for n in (3, 5)] == ["--lr=1 3\n", "--lr=1 5\n"]
    out, _ = sbatch(shell, "--parsable", "-d", f"afterok:{array}", "--wrap", "echo wrapped > wrapped.txt")
    shell("wait", out.strip())
    assert Path("wrapped.txt").read_text() == "wrapped\n"
    _, error = sbatch(shell, "--time=soon", "job.sh", code=2)
    assert "--time=soon is no time" in error
    made = shell.json("import", "slurm", "job.sh")
    assert (made["manifest"]["array"], made["manifest"]["max_runtime"]) == ("3,5", 300.0)
    assert "array: 3,5" in shell("import", "slurm", "job.sh").stdout
    assert json.dumps(made["notes"]).count("left out") == 1
