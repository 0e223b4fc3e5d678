"""The tests of the page's own parts, which Vitest runs."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

WEB = Path(__file__).parents[2] / "web"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the page's sources, with the tools that are installed."""
    if shutil.which("npm") is None or not (WEB / "node_modules").is_dir():
        pytest.skip("the web page's tools are not installed: `.ci/web` gets them, with Node.js")
    made = tmp_path / "web"
    shutil.copytree(WEB, made, ignore=shutil.ignore_patterns("node_modules", "tests"))
    (made / "node_modules").symlink_to(WEB / "node_modules")
    return made


def check(sources: Path) -> subprocess.CompletedProcess[str]:
    """The part of the build that generates the client and holds the page against it."""
    return subprocess.run(
        ["npm", "run", "check"], cwd=sources, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_defect_in_the_shape_of_the_api_breaks_the_build(sources: Path) -> None:
    build = json.loads((sources / "package.json").read_text())["scripts"]["build"]
    assert build.startswith("npm run types && tsc --noEmit && ")
    done = check(sources)
    assert done.returncode == 0, done.stdout
    file = sources / "src/api/schema.json"
    whole = json.loads(file.read_text())

    def job(schema: dict[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = schema["components"]["schemas"]["JobView"]["properties"]
        return found

    def renamed(schema: dict[str, Any]) -> None:
        job(schema)["status"] = job(schema).pop("state")

    def another_type(schema: dict[str, Any]) -> None:
        job(schema)["name"] = {"type": "array", "items": {"type": "integer"}}

    def gone(schema: dict[str, Any]) -> None:
        del schema["paths"]["/v1/jobs/{ref}/cancel"]

    for defect in (renamed, another_type, gone):
        planted = copy.deepcopy(whole)
        defect(planted)
        file.write_text(json.dumps(planted))
        done = check(sources)
        assert done.returncode != 0, f"{defect.__name__} is not noticed"
        assert "error TS" in done.stdout, done.stdout


@pytest.mark.timeout(120)
def test_the_parts_of_the_page_do_what_their_tests_say() -> None:
    if shutil.which("npm") is None or not (WEB / "node_modules").is_dir():
        pytest.skip("the web page's tools are not installed: `.ci/web` gets them, with Node.js")
    done = subprocess.run(
        ["npm", "test"], cwd=WEB, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
