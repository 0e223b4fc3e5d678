"""Jobs find the team's tracking servers, and people the runs there."""

from __future__ import annotations

import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.base.home import Home, stop_server
from shoal.control.server import start_detached
from shoal.results.live.mlflow import find_runs
from shoal.results.tracking import Servers, mlflow_page, variables, wandb_page
from shoal.sdk import Client


class Mlflow(http.server.BaseHTTPRequestHandler):
    """As an MLflow server answers. The path's first part says how it misbehaves."""

    asked: list[Any]

    def do_GET(self) -> None:
        if self.path.startswith("/elsewhere"):
            self.send_response(302)
            self.send_header("location", "http://127.0.0.1:1/")
            self.end_headers()
        elif self.path.startswith("/large"):
            self.answer(200, b" " * (2 << 20))
        elif "experiment_name=red" in self.path:
            self.answer(200, b'{"experiment": {"experiment_id": "7"}}')
        elif self.path.startswith("/list"):
            self.answer(200, b"[]")
        else:
            self.answer(404, b"{}")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        Mlflow.asked.append(asked)
        self.answer(200, b'{"runs": [{"info": {"run_id": "abc"}}]}')

    def answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def mlflow() -> Iterator[str]:
    Mlflow.asked = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Mlflow)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_variables_name_the_job_on_both_servers() -> None:
    about = {"job": "j-1", "name": "train", "tenant": "red", "attempt": 2, "project": "digits"}
    servers = Servers("http://m:5000", "https://api.wandb.ai", "team", "http://shoal:7070/")
    found = variables(servers, **about)  # type: ignore[arg-type]
    assert json.loads(found["MLFLOW_RUN_CONTEXT"]) == {
        "shoal.job": "j-1", "shoal.tenant": "red", "shoal.attempt": "2", "mlflow.runName": "train",
        "shoal.url": "http://shoal:7070/v1/jobs/j-1",
    }  # fmt: skip
    del found["MLFLOW_RUN_CONTEXT"]
    assert found == {
        "MLFLOW_TRACKING_URI": "http://m:5000", "MLFLOW_EXPERIMENT_NAME": "digits",
        "WANDB_BASE_URL": "https://api.wandb.ai", "WANDB_PROJECT": "digits", "WANDB_NAME": "train",
        "WANDB_RUN_ID": "j-1", "WANDB_RESUME": "allow", "WANDB_ENTITY": "team",
        "WANDB_NOTES": "http://shoal:7070/v1/jobs/j-1",
    }  # fmt: skip
    plain = variables(Servers("http://m:5000", "https://api.wandb.ai"), **about)  # type: ignore[arg-type]
    assert {"WANDB_ENTITY", "WANDB_NOTES"} & plain.keys() == set()
    assert "shoal.url" not in plain["MLFLOW_RUN_CONTEXT"]
    assert mlflow_page(Servers("http://m:5000/"), "a/b", "c/d") == "http://m:5000/#/experiments/a%2Fb/runs/c%2Fd"
    assert wandb_page(servers, job="j-1", project="digits") == "https://wandb.ai/team/digits/runs/j-1"
    assert variables(Servers(), **about) == {}  # type: ignore[arg-type]


def test_an_mlflow_server_that_misbehaves_costs_the_link_only(mlflow: str) -> None:
    assert find_runs(mlflow, "red", "j-1") == ([("7", "abc")], "")
    assert find_runs(mlflow, "nothing", "j-1") == ([], "")
    for wrong, said in (("elsewhere", "leads elsewhere"), ("large", "too large"), ("list", "TypeError")):
        runs, trouble = find_runs(f"{mlflow}/{wrong}", "blue", "j-1")
        assert runs == []
        assert said in trouble or "Redirect" in trouble
    runs, trouble = find_runs("http://127.0.0.1:1", "red", "j-1")
    assert (runs, trouble.partition(":")[0]) == ([], "ConnectError")


def test_a_job_is_told_and_its_runs_are_found(tmp_path: Path, mlflow: str) -> None:
    home = Home(tmp_path / "home")
    words = ["--home", str(home.path), "--port", "0", "--slots", "2", "--set", f"results.mlflow={mlflow}"]
    start_detached(words, home)
    try:
        with Client(home=home.path, environ={}) as client:
            client.create_tenant("red", sandbox="none")
            command = ["sh", "-c", "echo $MLFLOW_TRACKING_URI $MLFLOW_EXPERIMENT_NAME $MLFLOW_RUN_CONTEXT"]
            made = {"name": "train", "command": command, "tenant": "red"}
            job = client.submit(made).id
            client.wait(job, timeout_s=60)
            said = b"".join(piece.data for piece in client.logs(job)).decode()
            assert said.startswith(f"{mlflow} red {{")
            end = time.monotonic() + 60
            while not (found := [one for one in client.events(job) if one.kind == "results.tracked"]):
                assert time.monotonic() < end
                time.sleep(0.05)
            assert found[0].data == {"pages": [f"{mlflow}/#/experiments/7/runs/abc"]}
            assert Mlflow.asked[0]["filter"] == f"tags.`shoal.job` = '{job}'"
            silent = {**made, "name": "silent", "extensions": {"results": {"tracked": False}}}
            own = {**made, "name": "own", "env": {"MLFLOW_TRACKING_URI": "http://mine"}}
            for manifest, start in ((silent, "\n"), (own, "http://mine red")):
                job = client.submit(manifest).id
                client.wait(job, timeout_s=60)
                said = b"".join(piece.data for piece in client.logs(job)).decode()
                assert said.lstrip(" ").startswith(start)
    finally:
        stop_server(home, timeout_s=20)
