"""Runs the libraries' own test suites captured, in pieces, and tells which tests fail that pass without capture.

    python -m tests.offload.suites numpy --threshold 1 --log suites.jsonl

Each piece, a few test files, adds a line to the log when it has ended. The same command goes on after a stop: pieces in
the log are not run again. `--report` shows what the log holds.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from shoal.offload.launch import environment

USUAL, EVERYTHING = 65_536, 1

SUITES: dict[str, tuple[str, ...]] = {
    "numpy": (
        "numpy._core.tests", "numpy.lib.tests", "numpy.ma.tests", "numpy.linalg.tests", "numpy.fft.tests",
        "numpy.random.tests", "numpy.matrixlib.tests", "numpy.polynomial.tests", "numpy.testing.tests", "numpy.tests",
    ),
    "pandas-series": ("pandas.tests.series",),
    "pandas-groupby": ("pandas.tests.groupby",),
    "pandas-merge": ("pandas.tests.reshape.merge",),
    "sklearn-checks": ("sklearn.tests.test_common",),
    "sklearn-estimators": (
        "sklearn.decomposition.tests.test_truncated_svd", "sklearn.decomposition.tests.test_pca",
        "sklearn.decomposition.tests.test_incremental_pca", "sklearn.neighbors.tests.test_neighbors",
        "sklearn.neighbors.tests.test_neighbors_pipeline", "sklearn.cluster.tests.test_dbscan",
        "sklearn.tests.test_base", "sklearn.tests.test_pipeline",
    ),
}  # fmt: skip
"""Folders and files of tests, by suite."""

_LEFT_OUT = ("test_simd.py", "test_simd_module.py", "test_cython.py", "test_limited_api.py", "test_umath_accuracy.py")
"""They test NumPy's compiled kernels, or need a compiler. Left out besides: `numpy.f2py`, `numpy.distutils`, and what
the libraries mark as slow, as `numpy.test()` does."""

_PIECE_BYTES = 150_000
_TEST_S, _PIECE_S = 300, 5400
_MESSAGE = 300
_NOT_FOUND = 4
"""What pytest answers where there is no test of a name: parameters are named by their address, for example."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Of one run of pytest: how many tests ended, and the message of each that failed."""

    passed: int
    failed: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Piece:
    """A line of the log. `new` fail only captured, `expected` are listed for that, `unsteady` passed when run again."""

    suite: str
    threshold: int
    modules: Sequence[str]
    versions: Mapping[str, str]
    passed: int
    plain_failures: int
    expected: Sequence[str] = ()
    unsteady: Sequence[str] = ()
    new: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def ended(self) -> int:
        """Tests that passed or failed."""
        return self.passed + self.plain_failures + len(self.expected) + len(self.unsteady) + len(self.new)

    @property
    def key(self) -> tuple[int, str, tuple[str, ...], str]:
        return self.threshold, self.suite, tuple(self.modules), json.dumps(dict(self.versions), sort_keys=True)


def pieces(suite: str, only: str = "") -> Iterator[tuple[str, ...]]:
    """The modules of a suite, a few files together."""
    together: list[str] = []
    size = 0
    for module, file in _modules(suite):
        if only not in module:
            continue
        if together and size + file.stat().st_size > _PIECE_BYTES:
            yield tuple(together)
            together, size = [], 0
        together.append(module)
        size += file.stat().st_size
    if together:
        yield tuple(together)


def _modules(suite: str) -> Iterator[tuple[str, Path]]:
    for name in SUITES[suite]:
        spec = importlib.util.find_spec(name)
        assert spec is not None, name
        if spec.submodule_search_locations is None:
            assert spec.origin is not None, name
            yield name, Path(spec.origin)
            continue
        folder = Path(next(iter(spec.submodule_search_locations)))
        for file in sorted(folder.rglob("test_*.py")):
            if file.name not in _LEFT_OUT:
                yield ".".join((name, *file.relative_to(folder).with_suffix("").parts)), file


def listed(tests: Collection[str]) -> set[str]:
    """Of these tests those that are expected to differ where everything is captured. One that is listed without its
    parameters stands for all of them."""
    found = tomllib.loads(Path(__file__).with_name("upstream.toml").read_text())
    names = {f"{module}::{test}" for each in found.values() for module, some in each.items() for test in some}
    return {each for each in tests if each in names or each.partition("[")[0] in names}


def run_tests(arguments: Sequence[str], environ: Mapping[str, str], folder: Path) -> Outcome:
    """Run tests by their module or id in a process that may die: another goes on with the rest."""
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    argv = [
        sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", _installed(), "-p", "no:cacheprovider",
        "-p", "no:warnings", "-q", "--tb=line", "-m", "not slow", "-n", "1", "--max-worker-restart", "100",
        "--timeout", str(_TEST_S), "--timeout-method", "thread", "--junitxml", str(report), "--pyargs", *arguments,
    ]  # fmt: skip
    ended = subprocess.run(
        argv, env=dict(environ), cwd=folder, capture_output=True, text=True, check=False, timeout=_PIECE_S
    )
    if ended.returncode == _NOT_FOUND and any("[" in each for each in arguments):
        return run_tests(sorted({each.partition("[")[0] for each in arguments}), environ, folder)
    assert report.exists(), ended.stdout[-2000:] + ended.stderr[-2000:]
    assert ended.returncode in (0, 1, 5), ended.stdout[-2000:] + ended.stderr[-2000:]
    tops = {each.partition("::")[0] for each in arguments}
    passed, failed = 0, {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        trouble = [each for each in case if each.tag in ("failure", "error")]
        if trouble:
            text = f"{trouble[0].get('message', '')}".strip() or (trouble[0].text or "").strip()
            failed[_id(case, tops)] = text[:_MESSAGE]
        elif case.find("skipped") is None:
            passed += 1
    return Outcome(passed, failed)


def _installed() -> str:
    """Where the tests lie: the names of tests begin with their path below it."""
    spec = importlib.util.find_spec("numpy")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent.parent)


def _id(case: ElementTree.Element, modules: Collection[str]) -> str:
    place, name = case.get("classname", ""), case.get("name", "")
    for module in modules:
        if place == module or place.startswith(module + "."):
            return "::".join((module, *filter(None, place.removeprefix(module).split(".")), name))
    return f"{place}::{name}"  # a process that ended, or a file that could not be read


def compare(suite: str, modules: Sequence[str], threshold: int, folder: Path) -> Piece:
    """Captured first; what fails is run without capture, and what passes there is run captured once more."""
    began = time.monotonic()
    plain = {key: value for key, value in os.environ.items() if not key.startswith("SHOAL_OFFLOAD__")}
    plain |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # threads that spin take the other process's core
    captured = environment(plain, threshold=threshold, everywhere=True, compile="never", home=folder)
    found = run_tests(modules, captured, folder)
    expected = listed(found.failed) if threshold == EVERYTHING else set()
    differing = set(found.failed) - expected
    unsteady: set[str] = set()
    if differing:
        differing -= set(run_tests(sorted(differing), plain, folder).failed)
    if differing:
        unsteady = differing - set(run_tests(sorted(differing), captured, folder).failed)
    new = {each: found.failed[each] for each in sorted(differing - unsteady)}
    return Piece(
        suite, threshold, modules, versions(), found.passed, len(found.failed) - len(expected) - len(differing),
        sorted(expected), sorted(unsteady), new, round(time.monotonic() - began, 1),
    )  # fmt: skip


def versions() -> dict[str, str]:
    return {each: importlib.metadata.version(each) for each in ("numpy", "pandas", "scikit-learn")}


def read_log(path: Path) -> list[Piece]:
    return [Piece(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def report(log: Sequence[Piece]) -> str:
    """A line for each suite and threshold, then its new failures by their message."""
    lines = []
    for suite, threshold in sorted({(each.suite, each.threshold) for each in log}):
        mine = [each for each in log if (each.suite, each.threshold) == (suite, threshold)]
        new = {test: text for each in mine for test, text in each.new.items()}
        expected, plain = sum(len(each.expected) for each in mine), sum(each.plain_failures for each in mine)
        ended = sum(each.ended for each in mine)
        lines.append(
            f"{suite}, threshold {threshold}: {ended} tests in {len(mine)} pieces; {len(new)} new failures, "
            f"{expected} expected, {plain} fail without capture, {sum(len(each.unsteady) for each in mine)} unsteady"
        )
        lines += [f"  {test}: {' '.join(text.split())[:160]}" for test, text in new.items()]
        lines += [f"  unsteady: {test}" for each in mine for test in each.unsteady]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], help="all of them if none is named")
    parser.add_argument("--threshold", type=int, default=USUAL)
    parser.add_argument("--log", type=Path, default=Path("suites.jsonl"))
    parser.add_argument("--only", default="", help="modules with this in their name")
    parser.add_argument("--report", action="store_true", help="show the log, run nothing")
    given = parser.parse_args()
    if not given.report:
        done = {each.key for each in read_log(given.log)}
        for suite in given.suites or SUITES:
            for modules in pieces(suite, given.only):
                if Piece(suite, given.threshold, modules, versions(), 0, 0).key in done:
                    continue
                with tempfile.TemporaryDirectory() as folder:
                    piece = compare(suite, modules, given.threshold, Path(folder))
                with given.log.open("a") as out:
                    out.write(json.dumps(asdict(piece)) + "\n")
                sys.stdout.write(f"{time.strftime('%H:%M')} {report([piece])}\n")
                sys.stdout.flush()
    sys.stdout.write(report(read_log(given.log)) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
