"""The libraries' own tests, captured: none fails that passes without capture, but for those that are listed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from tests.offload.suites import EVERYTHING, SUITES, USUAL, compare, pieces

_RUNS = [("numpy", EVERYTHING), *((suite, USUAL) for suite in SUITES)]
_MOST_EXPECTED = 0.01


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize(("suite", "threshold"), _RUNS)
def test_no_test_of_the_library_fails_that_passes_without_capture(suite: str, threshold: int, tmp_path: Path) -> None:
    pytest.importorskip(SUITES[suite][0].partition(".")[0])
    found = [compare(suite, modules, threshold, tmp_path) for modules in pieces(suite)]
    assert [test for piece in found for test in piece.new] == []
    assert sum(len(piece.expected) for piece in found) <= _MOST_EXPECTED * sum(piece.ended for piece in found)


def test_only_tests_of_numpy_are_listed_each_of_them_once() -> None:
    found = tomllib.loads(Path(__file__).with_name("upstream.toml").read_text())
    tests = [(module, test) for each in found.values() for module, some in each.items() for test in some]
    assert len(tests) == len(set(tests))
    assert {module.partition(".")[0] for module, _ in tests} == {"numpy"}
