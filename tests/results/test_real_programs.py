"""Real MLflow, TensorBoard and S3: each in an environment of its own, for what they need contradicts our pins."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

import shoal
from shoal.base.home import Home, stop_server
from shoal.control.server import start_detached
from shoal.sdk import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

WAIT_S = 400.0
TRAINS = """
import mlflow
with mlflow.start_run() as run:
    mlflow.log_metric("loss", 0.25, step=1)
"""
KEEPS = """
import hashlib, os, sys
from pathlib import Path
from shoal.results.keeping.contents import contents_at, place_of, remove_place
folder, where = Path(sys.argv[1]), "s3://kept/of/artifacts"
own, inside = contents_at(where, folder), contents_at(place_of(where, "p-1"), folder)
assert list(own.listed()) == []
data = os.urandom(12 << 20)
digest = hashlib.sha256(data).hexdigest()
for contents in (own, inside):
    source = folder / "source"
    source.write_bytes(data)
    contents.put("red", digest, source)
    assert not source.exists()
assert list(own.listed()) == [("red", digest)] == list(inside.listed())
assert own.read("red", digest, 5 << 20, 1000) == data[5 << 20:][:1000]
assert own.read("red", digest, len(data) - 5, 1000) == data[-5:]
remove_place(place_of(where, "p-1"))
remove_place(place_of(where, "p-1"))
assert list(inside.listed()) == []
assert own.read("red", digest, 0, 10) == data[:10]
own.remove("red", digest)
own.remove("red", digest)
assert list(own.listed()) == []
try:
    own.read("red", digest, 0, 10)
except FileNotFoundError:
    pass
source.write_bytes(data)
try:
    contents_at("s3://no bucket/x", folder).put("red", digest, source)
except OSError as error:
    assert source.exists(), "it is not lost"
    print("refused:", error)
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With what these tests run. `SHOAL_RESULTS_ENVIRONMENT` names one that is there already."""
    if (there := os.environ.get("SHOAL_RESULTS_ENVIRONMENT")) is not None:
        return Path(there)
    uv = Path(sys.executable).parent / "uv"
    made = tmp_path_factory.mktemp("programs") / "venv"
    subprocess.run([uv, "venv", "-q", made], check=True)
    found = subprocess.run(
        [uv, "pip", "install", "-q", "--compile-bytecode", "--python", made / "bin/python",
         "mlflow", "tensorboard", "s3fs"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if found.returncode:
        pytest.skip(f"they cannot be installed here: {found.stderr[-300:]}")
    return made


def until(there: Callable[[], Any]) -> Any:
    give_up_at = time.monotonic() + WAIT_S
    while not (found := there()):
        assert time.monotonic() < give_up_at, "it never came"
        time.sleep(0.1)
    return found


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def mlflow(environment: Path, tmp_path: Path) -> Iterator[str]:
    url = f"http://127.0.0.1:{free_port()}"
    words = [environment / "bin/python", "-m", "mlflow", "server", "--host", "127.0.0.1", "--port",
             url.rpartition(":")[2], "--workers", "1", "--backend-store-uri", f"sqlite:///{tmp_path / 'mlflow.db'}",
             "--default-artifact-root", str(tmp_path / "mlruns")]  # fmt: skip
    path = f"{environment / 'bin'}:{os.environ['PATH']}"
    with subprocess.Popen(
        words, cwd=tmp_path, env={**os.environ, "PATH": path}, start_new_session=True, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as running:  # fmt: skip
        try:
            until(lambda: running.poll() is not None or _answers(f"{url}/health"))
            assert running.poll() is None
            yield url
        finally:
            os.killpg(running.pid, 9)


def _answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.HTTPError:
        return False


def test_a_run_in_mlflow_and_its_job_know_each_other(environment: Path, mlflow: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    words = ["--home", str(home.path), "--port", "0", "--slots", "2", "--set", f"results.mlflow={mlflow}",
             "--set", "results.address=https://shoal.team"]  # fmt: skip
    start_detached(words, home)
    try:
        with Client(home=home.path, environ={}) as client:
            client.create_tenant("red", sandbox="none")
            python = str(environment / "bin/python")
            job = client.submit({"name": "train", "tenant": "red", "command": [python, "-c", TRAINS]}).id
            assert client.wait(job, timeout_s=WAIT_S).state == "SUCCEEDED", b"".join(
                one.data for one in client.logs(job)
            )
            [event] = until(lambda: [one for one in client.events(job) if one.kind == "results.tracked"])
            [page] = event.data["pages"]
    finally:
        stop_server(home, timeout_s=20)
    run = page.rpartition("/")[2]
    found = httpx.get(f"{mlflow}/api/2.0/mlflow/runs/get", params={"run_id": run}).json()["run"]
    tags = {one["key"]: one["value"] for one in found["data"]["tags"]}
    assert tags["shoal.job"] == job
    assert tags["shoal.url"] == f"https://shoal.team/v1/jobs/{job}"
    assert found["info"]["run_name"] == "train"
    assert [(one["key"], one["value"]) for one in found["data"]["metrics"]] == [("loss", 0.25)]
    experiment = httpx.get(
        f"{mlflow}/api/2.0/mlflow/experiments/get", params={"experiment_id": found["info"]["experiment_id"]}
    ).json()["experiment"]
    assert experiment["name"] == "red"
    assert page.startswith(f"{mlflow}/#/experiments/{experiment['experiment_id']}/runs/")


def test_contents_in_an_object_store(environment: Path, tmp_path: Path) -> None:
    """The bucket is that of a server which speaks S3; s3fs is what fsspec takes for it."""
    boto3 = pytest.importorskip("boto3")
    moto = pytest.importorskip("moto.server")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        url = f"http://127.0.0.1:{server.get_host_and_port()[1]}"
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": "us-east-1"}
        made = boto3.client(
            "s3", endpoint_url=url, aws_access_key_id="a", aws_secret_access_key="b", region_name="us-east-1"
        )
        made.create_bucket(Bucket="kept")
        sources = str(Path(shoal.__file__).parent.parent)
        found = subprocess.run(
            [environment / "bin/python", "-c", KEEPS, tmp_path], capture_output=True, text=True, check=False,
            env={**os.environ, **keys, "AWS_ENDPOINT_URL": url, "PYTHONPATH": sources},
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
        assert "refused: " in found.stdout
        assert made.list_objects_v2(Bucket="kept").get("KeyCount", 0) == 0
    finally:
        server.stop()


def test_a_real_tensorboard_shows_what_a_job_wrote(environment: Path, tmp_path: Path) -> None:
    writes = (
        "import os; from tensorboard.summary import Writer; "
        "writer = Writer(os.environ['TENSORBOARD_LOGDIR']); writer.add_scalar('loss', 0.25, 1); writer.close()"
    )
    home, port = Home(tmp_path / "home"), free_port()
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "2"], home)
    try:
        with Client(home=home.path, environ={}) as client:
            section = {"results": {"tensorboard": "runs"}}
            command = [str(environment / "bin/python"), "-c", writes]
            job = client.submit({"name": "train", "command": command, "extensions": section}).id
            assert client.wait(job, timeout_s=WAIT_S).state == "SUCCEEDED", b"".join(
                one.data for one in client.logs(job)
            )
        words = [
            sys.executable,
            "-m",
            "shoal.cli",
            "tensorboard",
            "train",
            "--home",
            str(home.path),
            "--port",
            str(port),
        ]
        path = f"{environment / 'bin'}:{os.environ['PATH']}"
        with subprocess.Popen(words, env={**os.environ, "PATH": path}, start_new_session=True) as shown:
            try:
                url = f"http://127.0.0.1:{port}"
                until(lambda: shown.poll() is not None or _answers(url))
                tags = until(lambda: httpx.get(f"{url}/data/plugin/scalars/tags").json())
                assert list(tags) == [f"train {job}"], json.dumps(tags)
                assert list(tags[f"train {job}"]) == ["loss"]
            finally:
                os.killpg(shown.pid, 15)
    finally:
        stop_server(home, timeout_s=20)


REPORTS = """
import json, wandb
with wandb.init() as run:
    run.log({"loss": 0.25}, step=1)
    print("told", json.dumps({
        "id": run.id, "name": run.name, "project": run.project, "entity": run.entity, "notes": run.notes,
        "base": run.settings.base_url, "resumes": run.settings.resume, "folder": run.dir,
    }))
"""


@pytest.fixture(scope="module")
def reporter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python with the client of Weights & Biases. `SHOAL_WANDB_ENVIRONMENT` names an environment that has it."""
    if (there := os.environ.get("SHOAL_WANDB_ENVIRONMENT")) is not None:
        return Path(there)
    uv = Path(sys.executable).parent / "uv"
    made = tmp_path_factory.mktemp("wandb") / "venv"
    subprocess.run([uv, "venv", "-q", made], check=True)
    line = [uv, "pip", "install", "-q", "--python", made / "bin/python", "wandb"]
    found = subprocess.run(line, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"it cannot be installed here: {found.stderr[-300:]}")
    return made


def test_a_run_of_weights_and_biases_is_its_job(reporter: Path, tmp_path: Path) -> None:
    """Its client as it is, offline: nobody may run its server here. Each attempt of a job is the same run."""
    home = Home(tmp_path / "home")
    words = ["--home", str(home.path), "--port", "0", "--slots", "2", "--set", "results.wandb=https://wandb.example",
             "--set", "results.wandb_entity=people", "--set", "results.address=https://shoal.team"]  # fmt: skip
    start_detached(words, home)
    try:
        with Client(home=home.path, environ={}) as client:
            client.create_tenant("red", sandbox="none")
            job = client.submit({
                "name": "train", "tenant": "red", "command": [str(reporter / "bin/python"), "-c", REPORTS],
                "env": {"WANDB_MODE": "offline"},
            }).id  # fmt: skip
            ended = client.wait(job, timeout_s=WAIT_S)
            log = b"".join(one.data for one in client.logs(job)).decode()
            assert ended.state == "SUCCEEDED", log
            [event] = until(lambda: [one for one in client.events(job) if one.kind == "results.tracked"])
    finally:
        stop_server(home, timeout_s=20)
    told = json.loads(next(line for line in log.splitlines() if line.startswith("told ")).removeprefix("told "))
    folder = Path(told.pop("folder"))
    assert told == {
        "id": job, "name": "train", "project": "red", "entity": "people", "base": "https://wandb.example",
        "notes": f"https://shoal.team/v1/jobs/{job}", "resumes": "allow",
    }  # fmt: skip
    assert list(folder.parent.glob(f"run-{job}.wandb"))
    assert event.data["pages"] == [f"https://wandb.example/people/red/runs/{job}"]
