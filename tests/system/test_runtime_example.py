"""The example runtime, installed as a stranger would: its model is served, and no file of Shoal changes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "runtime"


def test_a_runtime_from_outside_is_found_by_suffix_takes_its_options_and_serves(tmp_path: Path) -> None:
    source = shutil.copytree(EXAMPLE, tmp_path / "source")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target"]
    subprocess.run([*pip, str(tmp_path / "installed"), str(source)], check=True)
    assert len((EXAMPLE / "shoal_table.py").read_text().splitlines()) < 60
    (tmp_path / "prices.csv").write_text("apple,1.5\npear,2\n")
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "installed"), "NO_COLOR": "1"}
    serve = [sys.executable, "-m", "shoal.cli", "serve", "prices.csv", "--option", "default=-1", "--max-batch", "8"]
    with subprocess.Popen(
        [*serve, "--port", "0", "--grpc-port", "0", "--json"], cwd=tmp_path, env=environ, stdout=subprocess.PIPE,
        text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            url = json.loads(process.stdout.readline())["http"]
            tensor = {"name": "key", "datatype": "BYTES", "shape": [3], "data": ["pear", "apple", "plum"]}
            body = json.dumps({"inputs": [tensor]}).encode()
            with urllib.request.urlopen(f"{url}/v2/models/prices/infer", body, timeout=30) as answer:
                found = json.loads(answer.read())
            with urllib.request.urlopen(f"{url}/v2/models/prices", timeout=30) as answer:
                assert json.loads(answer.read())["platform"] == "csv_table"
        finally:
            process.terminate()
    assert found["outputs"][0]["data"] == [2.0, 1.5, -1.0]
