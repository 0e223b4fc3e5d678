"""States of the machine and of the process in which capture must do no harm."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal.offload
from shoal.offload import OffloadSettings
from shoal.offload.arrays import chunks, kernels
from shoal.offload.arrays.threads import THREADS
from shoal.offload.launch import environment
from shoal.offload.settings import CompileMode

N = 1000
SOURCE = Path(shoal.offload.__file__).parents[2]


@pytest.fixture(autouse=True)
def waiting(tmp_path: Path) -> Any:
    """Kernels are made at the first evaluation."""
    shoal.offload.uninstall()
    shoal.offload.install(OffloadSettings(threshold=1, threads=2, home=str(tmp_path), compile=CompileMode.WAIT))
    yield
    shoal.offload.uninstall()


def test_an_interrupt_during_a_compile_is_the_programs_own_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("llvmlite")

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    x = np.arange(float(N)) * 2 + 1
    monkeypatch.setattr(kernels.Kernels, "_load", interrupted)
    with pytest.raises(KeyboardInterrupt):
        str(x)
    monkeypatch.undo()
    assert x[3] == 7.0


@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError, SystemExit])
def test_an_error_in_a_block_leaves_the_programs_array_as_it_was(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, a = np.zeros(N), np.arange(float(N))
    x = a * 2

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr(chunks, "_one", fails)
    monkeypatch.setattr(kernels.BoundKernel, "run", fails)
    with pytest.raises(error):
        np.add(x, 1, out=out)
    monkeypatch.undo()
    assert not out.any()
    assert np.add(x, 1, out=out)[3] == 7.0


def test_a_result_too_large_for_the_memory_raises_and_the_program_goes_on() -> None:
    a = np.ones((1, 1 << 20))
    x = a.T + a  # 8 TiB
    with pytest.raises(MemoryError):
        str(x)
    assert (a + 1)[0, 0] == 2.0


def test_threads_that_were_ended_start_anew() -> None:
    x = np.ones((64, N)) + 1
    assert x[0, 0] == 2.0
    THREADS.close()
    y = np.ones((64, N)) * 3
    assert y[5, 5] == 3.0
    shoal.offload.uninstall()
    assert not [each for each in threading.enumerate() if each.name.startswith("shoal-offload")]


def test_kernels_work_where_nothing_can_be_written(tmp_path: Path) -> None:
    """No space for the cache: every write fails."""
    program = tmp_path / "program.py"
    program.write_text(
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "import numpy as np\n"
        "x = np.arange(100_000.0)\n"
        "for _ in range(3):\n"
        "    y = np.sin(x) * 2 + 1\n"
        "    assert y[0] == 1.0\n"
        "import shoal.offload.profile as profile\n"
        "assert {each.backend for each in profile.PROFILE.records()} >= {'compiled'}\n"
    )
    environ = environment(os.environ, compile="wait", home=tmp_path / "home", report=tmp_path)
    ended = subprocess.run([sys.executable, program], env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert not [each for each in tmp_path.rglob("*.o") if each.stat().st_size]


def test_an_old_pytorch_is_not_used(tmp_path: Path) -> None:
    """One that cannot read NumPy's arrays."""
    folder = tmp_path / "torch"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "def from_numpy(array):\n    raise RuntimeError('Numpy is not available')\ndef erf(x, out): ...\n"
    )
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\nfrom scipy.special import erf, erfc\nx = np.linspace(-2, 2, 100_001)\n"
        "for _ in range(3):\n    y = np.asarray(erf(x) * 2.0 + erfc(x))\n    assert abs(y[50_000] - 1) < 1e-15, y\n"
    )
    environ = environment(os.environ, compile="wait", backends="chunks,torch", home=tmp_path / "home")
    environ["PYTHONPATH"] += os.pathsep + str(tmp_path)
    ended = subprocess.run([sys.executable, program], env=environ, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


def test_an_interactive_session_is_captured_line_by_line(tmp_path: Path) -> None:
    lines = "import numpy as np\na = np.ones(100_000)\nb = a * 2 + 1\ntype(b).__name__\nprint(b[5])\n"
    environ = environment(os.environ, home=tmp_path)
    ended = subprocess.run(
        [sys.executable, "-i", "-q"], input=lines, env=environ, capture_output=True, text=True, check=False
    )
    assert ended.stdout.splitlines() == ["'Lazy'", "3.0"]
