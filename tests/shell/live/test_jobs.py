"""Jobs that name sites, on a server as users start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from shoal.shell.agent.client import stop
from tests.shell.conftest import FILES, SSH, World

SHOAL = str(Path(sys.executable).with_name("shoal"))


def shoal(home: Path, *words: str, code: int | None = 0) -> str:
    environ = {**os.environ, "SHOAL_HOME": str(home)}
    done = subprocess.run([SHOAL, *words], capture_output=True, text=True, env=environ, timeout=100, check=False)
    assert code is None or done.returncode == code, done.stdout + done.stderr
    return done.stdout


def until(found: Callable[[], Any], what: Callable[[], str]) -> Any:
    end = time.monotonic() + 90
    while not (value := found()):
        assert time.monotonic() < end, what()
        time.sleep(0.3)
    return value


@contextmanager
def served(world: World, tmp_path: Path, **sections: Any) -> Iterator[Path]:
    """A server with the site `store` and one that is not for the tenant; its home."""
    home = world.base / "server"
    wrapper = tmp_path / "bin"
    wrapper.mkdir()
    (wrapper / "ssh").write_text(f'#!/bin/sh\nexec {sys.executable} {SSH} "$@"\n')
    (wrapper / "ssh").chmod(0o755)
    os.environ["PATH"] = f"{wrapper}:{os.environ['PATH']}"
    home.mkdir()
    (home / "config.yaml").write_text(json.dumps({**sections, "shell": {"sites": {
        "store": {"host": "store", "mounts": {str(world.mnt): str(world.base / "srv")}},
        "closed": {"host": "closed", "mounts": {"/mnt/closed": "/srv"}, "tenants": ["nobody"]},
    }}}))  # fmt: skip
    try:
        shoal(home, "up", "--detach", "--port", "0")
        yield home
    finally:
        shoal(home, "down", code=None)
        os.environ["PATH"] = os.environ["PATH"].partition(":")[2]
        stop(home / "shell-agents" / "default")


def submit(home: Path, folder: Path, name: str, script: str, site: str, **more: Any) -> None:
    made = {"name": name, "command": ["bash", "-c", script], "extensions": {"shell": {"sites": [site]}}, **more}
    path = folder / f"{name}.json"
    path.write_text(json.dumps(made))
    shoal(home, "submit", str(path))


@pytest.mark.slow
def test_commands_of_a_job_run_on_its_sites(own_world: World, tmp_path: Path) -> None:
    with served(own_world, tmp_path) as home:
        script = f"grep -c alpha {own_world.mnt}/a.txt; env | grep -c SHOAL_SHELL; true"
        for name, site in (("prep", "store"), ("held", "closed")):
            submit(home, tmp_path, name, script, site)
        until(lambda: '"SUCCEEDED"' in shoal(home, "show", "prep", "--json"), lambda: shoal(home, "show", "prep"))
        assert shoal(home, "logs", "prep") == "3000\n0\n"
        assert "that tenant default may use" in shoal(home, "explain", "held")
        status = json.loads(shoal(home, "status", "--json"))
        assert "shell" in json.dumps(status)
        log = home / "shell-agents" / "default" / "shell" / "runs"
        assert any('"where": "store"' in one.read_text() for one in log.glob("*.jsonl"))


@pytest.mark.slow
def test_what_commands_read_on_a_site_is_demand_for_what_the_cache_knows(own_world: World, tmp_path: Path) -> None:
    cache = {"enabled": True, "root": str(tmp_path / "cache"), "size": "8MiB", "keep_free": "1MiB", "round": "1s"}
    with served(own_world, tmp_path, cache=cache) as home:
        inputs = [{"from": f"file://{own_world.mnt}/dir", "to": "data", "cached": True}]
        script = f"cd {own_world.mnt}; grep -c gamma dir/c.txt; sort a.txt | tail -1; touch {tmp_path}/read; " + (
            f"until [ -e {tmp_path}/end ]; do sleep 0.2; done"
        )
        submit(home, tmp_path, "prep", script, "store", inputs=inputs)

        def read() -> list[int]:
            told = json.loads(shoal(home, "cache", "status", "--root", str(tmp_path / "cache"), "--json"))
            return [one["read_bytes"] for one in told["tenants"] if one["read_bytes"]]

        until((tmp_path / "read").exists, lambda: shoal(home, "show", "prep"))
        assert until(read, lambda: shoal(home, "status")) == [len(FILES["dir/c.txt"])], "of the set, and nothing else"
        (tmp_path / "end").touch()
