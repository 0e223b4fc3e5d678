"""The command line against one real server, started the way a newcomer would."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shoal.cli.app import app


@dataclass
class Shell:
    home: Path

    def __call__(
        self, *words: str, code: int = 0, stdin: str | None = None, env: dict[str, str] | None = None
    ) -> Result:
        """Run a command against this home and check its exit code."""
        result = CliRunner().invoke(app, [*words, "--home", str(self.home)], input=stdin, env=env or {})
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (words, result.stdout, result.stderr)
        return result

    def json(self, *words: str, **options: Any) -> Any:
        return json.loads(self(*words, "--json", **options).stdout)

    def at_rest(self) -> bool:
        """Whether nothing runs, or is about to."""
        states = {job["state"] for job in self.json("jobs", "--all", "--limit", "1000")["jobs"]}
        return states <= {"SUCCEEDED", "FAILED", "CANCELLED", "SUSPENDED"}


def eventually(true: Callable[[], bool], within_s: float = 60.0) -> None:
    end = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


@pytest.fixture(scope="session")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    shell = Shell(tmp_path_factory.mktemp("home"))
    shell("up", "--port", "0", "--slots", "2", "--detach")
    yield shell
    left = [service["name"] for service in shell.json("services")["services"]]
    if left:
        shell("undeploy", *left, "--wait")
    shell("down")


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[..., str]:
    """Write a manifest that runs this Python code; returns its path."""

    def write(code: str = "print('hello')", name: str = "job", **fields: Any) -> str:
        path = tmp_path / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "command": ["python3", "-u", "-c", code], **fields}))
        return str(path)

    return write
