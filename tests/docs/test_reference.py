"""Pages and pictures that come from the code say what the code says."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


def tool(name: str) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name.replace("/", "_"), ROOT / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


reference, pictures = tool("docs/tools/reference"), tool("docs/tools/pictures")
common = tool("benchmarks/common")


@pytest.mark.parametrize(
    ("page", "known"),
    [
        ("reference/commands.md", ["## shoal submit", "### shoal guard run", "`--slo-p99", "## shoal up"]),
        ("reference/settings.md", ["`schedule.round_s`", "`SHOAL_GUARD__ENABLED`", "`7070`"]),
        ("reference/manifest-fields.md", ["| `max_runtime` |", "`guaranteed` or `best-effort`", "### Service: Model"]),
        ("reference/operations.md", ["### POST /v1/jobs", "### POST /v1/services", "### GET /v1/jobs/{ref}/explain"]),
        ("reference/openapi.json", ['"/v1/jobs"', '"JobManifest"']),
        (
            "reference/metrics.md",
            ["`shoal_jobs`", "`shoal_serve_requests`", "`shoal_guard_slowdown`", "`shoal_services`"],
        ),
        ("reference/events.md", ["`job.submitted`", "| `SUSPENDED` | `CANCELLED`, `QUEUED` |"]),
        ("reference/errors.md", ["`U103-out-of-memory`", "| 3 | `not-found` | `NotFound` |"]),
        ("decisions/index.md", ["0001-foundations.md"]),
    ],
)
def test_a_reference_page_has_what_the_code_has(page: str, known: list[str]) -> None:
    made = reference.PAGES[page]()
    assert [text for text in known if text not in made] == []


def test_every_reference_page_is_checked() -> None:
    checked = {
        "commands",
        "settings",
        "manifest-fields",
        "operations",
        "openapi",
        "metrics",
        "events",
        "errors",
        "index",
    }
    assert {Path(page).stem for page in reference.PAGES} == checked


def test_results_of_benchmarks_become_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks/speed.py", "--runs", "3", "--json"])
    assert reference.measured(tmp_path) == ""
    written = io.StringIO()
    with contextlib.redirect_stdout(written):
        common.report("Speed", [common.Row("jobs", 12.5, "/s", "at least 20", ok=False)], as_json=True)
    (tmp_path / "speed.json").write_text(written.getvalue())
    made = reference.measured(tmp_path)
    assert "| jobs | 12.5 /s | at least 20 | **no** |" in made
    assert "`python benchmarks/speed.py --runs 3`" in made
    assert common.machine()["commit"] in made


@pytest.mark.parametrize("name", sorted(pictures.PICTURES))
def test_pictures_are_what_their_source_draws(name: str) -> None:
    committed = (ROOT / "docs" / "pictures" / f"{name}.svg").read_text()
    assert committed == pictures.PICTURES[name]().svg(), "run: python docs/tools/pictures.py"


def test_text_that_does_not_fit_its_box_is_refused() -> None:
    with pytest.raises(ValueError, match="needs"):
        pictures.Picture(100, 100, "x").box(0, 0, 40, 40, "far too long a text")
