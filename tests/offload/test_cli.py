"""The commands, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

BLACK_SCHOLES = """
import math
import sys

import numpy as np
from scipy.special import erf

n = int(sys.argv[1])
rng = np.random.default_rng(0)
S, K, T, r, v = (rng.uniform(a, b, n) for a, b in ((10, 50), (10, 50), (1, 2), (0.01, 0.05), (0.1, 0.4)))
root = v * np.sqrt(T)
d1 = (np.log(S / K) + (r + v * v * 0.5) * T) / root
d2 = d1 - root
c1, c2 = 0.5 + 0.5 * erf(d1 / math.sqrt(2)), 0.5 + 0.5 * erf(d2 / math.sqrt(2))
call = S * c1 - K * np.exp(-r * T) * c2
print(repr(float(call.sum())), repr(float(call[7])))
sys.exit(int(sys.argv[2]))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "prices.py"
    path.write_text(BLACK_SCHOLES)
    return path


def start(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **environ}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=env, timeout=60)


def shoal(*argv: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return start(sys.executable, "-m", "shoal.cli", "offload", *argv, **environ)


def numbers(text: str) -> list[float]:
    return [float(each) for each in text.split()]


def test_run_prints_what_the_program_prints_and_ends_as_it_ends(program: Path) -> None:
    plain = start(sys.executable, str(program), "200000", "7")
    found = shoal("run", str(program), "200000", "7")
    assert (found.returncode, found.stderr) == (7, "")
    assert numbers(found.stdout) == pytest.approx(numbers(plain.stdout), rel=1e-12)


def test_profile_names_line_backend_and_reason_of_every_call(program: Path) -> None:
    found = shoal("profile", "--json", str(program), "200000", "3")
    assert found.returncode == 3
    told = json.loads(found.stdout)
    assert told["processes"] == 1
    by_call = {(each["line"], each["call"]): each for each in told["calls"]}
    assert by_call[11, "sqrt"]["backend"] == "chunks"
    assert all(each["why"] for each in told["calls"])
    assert sum(told["summary"]["calls"].values()) == sum(each["calls"] for each in told["calls"])


def test_profile_shows_a_table_and_the_source(program: Path) -> None:
    found = shoal("profile", "--listing", str(program), "200000", "0")
    assert "prices.py:11" in found.stdout
    assert "d2 = d1 - root" in found.stdout
    assert "calls in 1 process" in found.stdout


def test_small_programs_are_not_captured(program: Path) -> None:
    found = shoal("profile", str(program), "1000", "0")
    assert "no call was captured" in found.stdout


def test_child_processes_are_in_the_profile(tmp_path: Path, program: Path) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(
        "import subprocess, sys\n"
        f"for _ in range(2):\n    subprocess.run([sys.executable, {str(program)!r}, '100000', '0'], check=True)\n"
    )
    told = json.loads(shoal("profile", "--json", str(parent)).stdout)
    assert told["processes"] == 2


def test_another_sitecustomize_still_runs(tmp_path: Path, program: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    found = shoal("run", str(program), "10", "0", PYTHONPATH=str(tmp_path))
    assert found.stdout.startswith("mine\n")


@pytest.mark.few(count=2)
@pytest.mark.parametrize(
    ("variable", "value", "said"),
    [
        ("SHOAL_OFFLOAD__THRESHOLD", "many", "'many' is not a whole number"),
        ("SHOAL_OFFLOAD__THRESHOLD", "-1", "-1 is below 0"),
        ("SHOAL_OFFLOAD__STRICT", "perhaps", "neither true nor false"),
        ("SHOAL_OFFLOAD__FALLBACK", "never", "not one of allow, warn, raise"),
        ("SHOAL_OFFLOAD__BACKENDS", "chunks,abacus", "unknown: abacus"),
        ("SHOAL_OFFLOAD__SPEED", "1", "there is no such setting"),
    ],
)
def test_a_wrong_setting_is_told_and_the_program_runs(program: Path, variable: str, value: str, said: str) -> None:
    found = shoal("run", str(program), "10", "0", **{variable: value})
    assert found.returncode == 0
    assert said in found.stderr
    assert found.stdout


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    found = shoal("run", str(tmp_path / "no.py"))
    assert found.returncode == 3
    assert "there is no such program" in found.stderr


def test_explain_shows_what_ran_together_and_the_alternatives(program: Path) -> None:
    told = json.loads(shoal("explain", "--json", f"{program}:11", "200000", "0").stdout)
    assert {each["call"] for each in told["calls"]} == {"sqrt", "multiply"}
    decision = told["decisions"][0]
    assert [11, "sqrt"] in decision["operations"]
    assert set(decision["expected_s"]) >= {"plain", "chunks"}
    assert decision["chosen"] in decision["expected_s"]
    assert any("it would be chosen below" in text for text in decision["why"])
    shown = shoal("explain", f"{program}:11", "200000", "0").stdout
    assert "operations on 200000 elements" in shown


def test_explain_of_a_line_without_large_arrays(program: Path) -> None:
    assert "no call of" in shoal("explain", f"{program}:3", "200000", "0").stdout
    wrong = shoal("explain", str(program))
    assert wrong.returncode == 2
    assert "names no line" in wrong.stderr


def test_calibration_is_kept_and_used(tmp_path: Path) -> None:
    from shoal.offload.calibration import calibration_file, read_calibration

    found = shoal("calibrate", "--json", SHOAL_OFFLOAD__HOME=str(tmp_path))
    told = json.loads(found.stdout)
    assert told["rates"]["nanoseconds"]["add"] > 0
    folder = tmp_path / "shoal" / "offload"
    assert read_calibration(folder) is not None
    file = calibration_file(folder)
    file.write_text(file.read_text().replace(told["machine"], "another machine"))
    assert read_calibration(folder) is None
    file.write_text("{")
    assert read_calibration(folder) is None


def test_the_machine_is_measured_by_itself_once_that_is_repaid(tmp_path: Path) -> None:
    from shoal.offload.calibration import Calibrating, Rates, read_calibration
    from shoal.offload.history import History

    used: list[Rates] = []
    first = Calibrating(tmp_path, History(tmp_path), used.append, wanted=True)
    first.observe(1.0)
    assert first.thread is None
    first.observe(100.0)
    assert first.thread is not None
    first.thread.join()
    assert [each.nanoseconds["add"] > 0 for each in used] == [True]
    found = read_calibration(tmp_path)
    assert found is not None
    assert found.rates == used[0]


def test_a_home_that_cannot_be_written(tmp_path: Path, program: Path) -> None:
    (tmp_path / "file").write_text("")
    home = str(tmp_path / "file")
    assert shoal("calibrate", SHOAL_OFFLOAD__HOME=home).returncode == 2
    assert shoal("run", str(program), "200000", "0", SHOAL_OFFLOAD__HOME=home).returncode == 0


def test_doctor_says_what_is_missing_and_what_it_costs(tmp_path: Path) -> None:
    found = json.loads(shoal("doctor", "--json", SHOAL_OFFLOAD__HOME=str(tmp_path)).stdout)
    by_name = {each["name"]: each for each in found}
    assert by_name["arrays in blocks on all cores"]["available"]
    assert not by_name["calibration"]["available"]
    assert "shoal offload calibrate" in by_name["calibration"]["detail"]
    assert "no   calibration" in shoal("doctor", SHOAL_OFFLOAD__HOME=str(tmp_path)).stdout


def test_bench_measures_in_turns_and_refuses_unknown_names() -> None:
    found = json.loads(shoal("bench", "--only", "haversine", "--small", "--rounds", "2", "--json").stdout)
    (one,) = found["workloads"]
    assert one["equal"] is True
    assert one["speedup"] > 0
    assert shoal("bench", "--only", "abacus").returncode == 2
