"""The tests of the page's own parts, which Vitest runs."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"


@pytest.mark.timeout(120)
def test_the_parts_of_the_page_do_what_their_tests_say() -> None:
    if shutil.which("npm") is None or not (WEB / "node_modules").is_dir():
        pytest.skip("the web page's tools are not installed: `.ci/web` gets them, with Node.js")
    done = subprocess.run(
        ["npm", "test"], cwd=WEB, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
