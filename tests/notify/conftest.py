"""One real server, a mail server and a webhook's receiver, for the tests that only look at what is told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shoal.base.home import Home, stop_server
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.sdk import Client

from .kit import PASSWORD, MailServer, Receiver, mail_server, receiver


@dataclass
class Site:
    home: Path
    mail: MailServer

    def client(self, token: str | None = None) -> Any:
        return Client(home=self.home, token=token, environ={}, patience_s=30)

    def shoal(self, *words: str, code: int = 0, stdin: str | None = None) -> Result:
        home = ["--home", str(self.home)]
        whole = [words[0], *home, *words[1:]] if words[0] in ("run", "sbatch") else [*words, *home]
        result = CliRunner().invoke(app, whole, input=stdin)
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        assert result.exit_code == code, (words, result.stdout, result.stderr)
        return result

    def json(self, *words: str, **options: Any) -> Any:
        return json.loads(self.shoal(*words, "--json", **options).stdout)


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    (folder / "password").write_text(PASSWORD)
    home = Home(folder / "home")
    with mail_server(folder) as mail:
        settings = {
            "inward": "127.0.0.0/8", "smtp_host": "127.0.0.1", "smtp_port": mail.port, "smtp_user": "shoal",
            "smtp_password_file": folder / "password", "authorities_file": mail.authorities, "timeout": "2s",
            "sender": "shoal@example.org", "mail_domains": "example.org", "retry": "500ms",
        }  # fmt: skip
        words = [word for name, value in settings.items() for word in ("--set", f"notify.{name}={value}")]
        start_detached(["--home", str(home.path), "--port", "0", "--slots", "4", *words], home)
        try:
            yield Site(home.path, mail)
        finally:
            stop_server(home, timeout_s=30)


@pytest.fixture
def hook() -> Iterator[Receiver]:
    with receiver() as made:
        yield made
