"""What the page shows is told by commands too."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from shoal.base.home import Home, stop_server
from shoal.cli.app import app
from shoal.control.server import start_detached
from shoal.core import Forbidden, NotFound
from shoal.sdk import Client


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("shown") / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "2", "--set", "results.files=77"], home)
    try:
        yield home
    finally:
        stop_server(home, timeout_s=20)


def said(home: Home, *words: str) -> str:
    found = CliRunner().invoke(app, [*words, "--home", str(home.path)])
    assert found.exit_code == 0, found.output
    return found.output


def test_settings_and_doctor_of_the_server(home: Home) -> None:
    told = {one["name"]: one["value"] for one in json.loads(said(home, "settings", "--server", "--json"))}
    assert told["results.files"] == 77
    here = {one["name"]: one["value"] for one in json.loads(said(home, "settings", "--json"))}
    assert here["results.files"] != 77, "without --server it tells what a server would be started with here"
    assert "results.files" in said(home, "settings", "--server")
    assert json.loads(said(home, "doctor", "--server", "--json"))["jobs_can_start"] is True
    assert said(home, "doctor", "--server")


@pytest.mark.parametrize("kind", ["job", "service"])
def test_the_schema_that_the_server_checks_by(home: Home, kind: str) -> None:
    told = json.loads(said(home, "manifest", "schema", "--kind", kind, "--server"))
    assert told == json.loads(said(home, "manifest", "schema", "--kind", kind))
    with Client(home=home.path, environ={}) as client:
        assert told == (client if kind == "job" else client.services).manifest_schema()
    nowhere = CliRunner().invoke(app, ["manifest", "schema", "--server", "--url", "http://127.0.0.1:1"])
    assert nowhere.exit_code != 0
    assert "{" not in nowhere.stdout, "no other schema is shown in its place"


def test_shares_and_histories(home: Home) -> None:
    with Client(home=home.path, environ={}) as client:
        client.create_tenant("red", sandbox="none")
        assert json.loads(said(home, "shares", "--json")).keys() == {"tenants"}
        assert said(home, "shares")
        assert client.web.shares(tenant="red").tenants.get("red", []) == []
        token = client.create_token("red").token
        with Client(client.locate().url, token, environ={}) as member:
            with pytest.raises(Forbidden):
                member.settings()
            with pytest.raises(Forbidden):
                member.doctor()
            with pytest.raises(NotFound):
                member.services.history("nothing")
    refused = CliRunner().invoke(app, ["services", "--history", "--home", str(home.path)])
    assert "which service is not said" in refused.output
    refused = CliRunner().invoke(app, ["services", "nothing", "--history", "--home", str(home.path)])
    assert refused.exit_code != 0
