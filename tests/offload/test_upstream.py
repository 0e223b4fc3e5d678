"""The libraries' own tests, captured: none fails that passes without capture, but for those that are listed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from shoal.offload.launch import environment

_USUAL, _ALL = 65_536, 1
_NUMPY = tuple(f"numpy._core.tests.test_{name}" for name in ("numeric", "ufunc", "indexing", "umath"))
_WHOLE = (
    *(f"numpy.{each}.tests" for each in ("_core", "fft", "lib", "linalg", "ma", "matrixlib", "polynomial", "random")),
    "numpy.testing.tests",
    "numpy.tests",
    "pandas.tests.reshape.merge",
    "pandas.tests.series",
    "pandas.tests.groupby",
    "sklearn.tests.test_common",
)
"""Whole suites, at the usual threshold: of NumPy all but the compilers of `f2py`. An hour or two."""

_RUNS = [*((each, _ALL) for each in _NUMPY), *((each, _USUAL) for each in _WHOLE)]


def listed(module: str) -> set[str]:
    found = tomllib.loads(Path(__file__).with_name("upstream.toml").read_text())
    return {test for modules in found.values() for test in modules.get(module, ())}


def failures(module: str, environ: Mapping[str, str], folder: Path, only: Sequence[str] = ()) -> set[str]:
    """The ids of the tests that fail; `only` names those to run."""
    argv = [
        sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(folder), "-p", "no:cacheprovider",
        "-p", "no:warnings", "-q", "--tb=no", "-rfE", "--timeout", "300", "--pyargs", module,
    ]  # fmt: skip
    if only:
        argv += ["-k", " or ".join(sorted({re.split(r"[\[:]", each.rpartition("::")[2])[0] for each in only}))]
    ended = subprocess.run(argv, env=dict(environ), cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stdout[-2000:] + ended.stderr[-2000:]
    lines = re.findall(r"^(?:FAILED|ERROR) [^:\s]*::(.*?)(?: - .*)?$", ended.stdout, re.MULTILINE)
    assert ended.returncode == bool(lines), ended.stdout[-2000:]
    return set(lines)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("module", "threshold"), _RUNS)
def test_no_test_of_the_library_fails_that_passes_without_capture(module: str, threshold: int, tmp_path: Path) -> None:
    pytest.importorskip(module.partition(".")[0])
    plain = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_OFFLOAD__")}
    captured = environment(plain, threshold=threshold, everywhere=True, compile="never", home=tmp_path)
    new = failures(module, captured, tmp_path) - (listed(module) if threshold == _ALL else set())
    if new:
        new -= failures(module, plain, tmp_path, sorted(new))
    assert new == set()


def test_only_tests_that_exist_are_listed() -> None:
    found = tomllib.loads(Path(__file__).with_name("upstream.toml").read_text())
    modules = {module for each in found.values() for module in each}
    assert modules <= set(_NUMPY)
    assert sum(len(tests) for each in found.values() for tests in each.values()) < 89  # one in a hundred of 8,865
