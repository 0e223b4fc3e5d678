"""Requests made up from the server's own description: none may break it, and each answer is as described."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, response_schema_conformance

from shoal.base.home import Home, read_server, stop_server
from shoal.control.server import start_detached
from shoal.sdk import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

CHECKS = [not_a_server_error, response_schema_conformance, content_type_conformance]
ENDLESS = {"/v1/web/stream"}
"""Streams that no answer ends."""
NOWHERE = {"accelerators": {"type": "no-such-type", "count": 1}}
"""No job that is made up may ever run: who knows what it would do."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("fuzz") / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "1"], home)
    with Client(home=home.path, environ={}) as client:
        done = client.submit({"name": "done", "command": ["python3", "-c", "print('loss=0.5')"]})
        client.wait(done.id)
        client.submit({"name": "waits", "command": ["true"], "resources": NOWHERE})
    yield home
    with Client(home=home.path, environ={}) as client:
        for service in client.services.list(limit=1000).services:
            client.services.undeploy(service.id)
            client.services.wait_stopped(service.id, timeout_s=30)
    stop_server(home, timeout_s=20)
    log = home.log_file.read_text()
    assert "Traceback" not in log
    assert "Warning" not in log


@pytest.fixture(scope="module")
def api(home: Home) -> Any:
    info = read_server(home)
    assert info is not None
    return schemathesis.openapi.from_url(f"{info.url}/openapi.json")


def test_no_request_breaks_the_server(api: Any, home: Home) -> None:
    headers = {"Authorization": f"Bearer {home.token_file.read_text().strip()}"}
    failures: dict[str, str] = {}
    tried = 0
    for found in api.get_all_operations():
        operation = found.ok()
        if operation.path in ENDLESS:
            continue

        @settings(
            max_examples=150, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
        )
        @given(operation.as_strategy())
        def ask(case: schemathesis.Case) -> None:
            nonlocal tried
            tried += 1
            tame(case)
            case.call_and_validate(checks=CHECKS, headers=headers)

        try:
            ask()
        except Exception as error:  # each operation is tried, whatever the others did
            failures[operation.label] = str(error)
    assert not failures, "\n".join(f"{label}: {text}" for label, text in failures.items())
    assert tried > 2000


def tame(case: schemathesis.Case) -> None:
    """Keep the request from following a stream, waiting long or running anything, and often aim it at a real job."""
    case.query = {name: value for name, value in (case.query or {}).items() if name not in ("follow", "wait_s")}
    if isinstance(case.body, dict) and case.path in ("/v1/jobs", "/v1/services"):
        case.body = {**case.body, "resources": NOWHERE}
    ref = (case.path_parameters or {}).get("ref")
    if ref is not None and len(str(ref)) % 3:
        case.path_parameters["ref"] = ("done", "waits")[len(str(ref)) % 3 - 1]
