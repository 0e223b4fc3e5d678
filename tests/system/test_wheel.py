"""What `pip install` brings works without the sources: a server, a job, the native parts."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

from shoal.web.site import Site

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_built_wheel_runs_a_job(tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", tmp_path, ROOT], check=True)
    (wheel,) = tmp_path.glob("shoal-*.whl")
    if Site().built:
        assert "shoal/web/_site/index.html" in zipfile.ZipFile(wheel).namelist()
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    programs = tmp_path / "venv" / "bin"
    subprocess.run(
        [programs / "pip", "--disable-pip-version-check", "--quiet", "install", "-c", ROOT / "constraints.txt",
         f"{wheel}[control,serve,measure]"], check=True,
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="shoal-wheel-") as home:  # short: sockets have little room for their path
        env = {
            "HOME": home, "PATH": f"{programs}:{os.environ['PATH']}", "SHOAL_PORT": "0", "SHOAL_SERVE__PORT": "0",
            "SHOAL_SERVE__GRPC_PORT": "0",
        }  # fmt: skip
        (Path(home) / "job.yaml").write_text("name: hello\ncommand: [echo, from the wheel]\n")

        def shoal(*words: str) -> str:
            done = subprocess.run(
                [programs / "shoal", *words],
                cwd=home,
                env=env,
                check=True,
                text=True,
                stdout=subprocess.PIPE,
                timeout=120,
            )
            return done.stdout

        assert shoal("--version").startswith("shoal ")
        for command in ("guard", "schedule", "measure", "serve"):  # the components' commands came along
            assert command in shoal("--help")
        shoal("up", "--detach")
        try:
            assert "from the wheel" in shoal("run", "job.yaml")
            assert "guard" in shoal("status", "--json")
        finally:
            shoal("down")
