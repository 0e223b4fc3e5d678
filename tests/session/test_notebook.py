"""`shoal notebook`, with a program that does what JupyterLab promises: it takes a token, and says where it listens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.contract.lifecycle import JobState
from shoal.session.client import notebooks

from .conftest import Running
from .talk import eventually

FAKE = """#!{python}
import http.server, json, os, pathlib, sys
class H(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_): pass
    def do_GET(self):
        good = self.path.endswith("token=" + os.environ["JUPYTER_TOKEN"])
        self.send_response(200 if good else 403); self.end_headers(); self.wfile.write(os.getcwd().encode())
s = http.server.HTTPServer(("127.0.0.1", 0), H)
d = pathlib.Path(os.environ["JUPYTER_RUNTIME_DIR"]); d.mkdir()
(d / "jpserver-1.json").write_text(json.dumps(dict(port=s.server_port, token=os.environ["JUPYTER_TOKEN"])))
s.serve_forever()
"""


def test_a_notebook_is_reached_by_its_link_and_ends_with_its_person(server: Running, tmp_path: Path) -> None:
    program = tmp_path / "jupyter"
    program.write_text(FAKE.format(python=sys.executable))
    program.chmod(0o755)
    with subprocess.Popen(
        [
            sys.executable, "-m", "shoal.cli", "notebook", str(tmp_path), "--program", str(program), "--port", "0",
            "--cpus", "0.1", "--home", str(server.home.path), "--json",
        ],
        stdout=subprocess.PIPE,
    ) as shown:  # fmt: skip
        assert shown.stdout is not None
        told = json.loads(shown.stdout.readline())
        with urllib.request.urlopen(told["link"]) as answer:
            assert answer.read().decode() == str(tmp_path)
        token = told["link"].rpartition("=")[2]
        assert len(token) == 48
        assert token not in json.dumps(server.client.job(told["job"]).manifest)
        assert token.encode() not in server.log(told["job"])
        shown.send_signal(signal.SIGINT)
        assert shown.wait(60) == 130
    eventually(lambda: server.client.job(told["job"]).state is JobState.CANCELLED)


def test_without_jupyter_it_says_what_to_do(server: Running) -> None:
    done = subprocess.run(
        [
            sys.executable, "-m", "shoal.cli", "notebook", "--program", "no-such-jupyter", "--cpus", "0.1", "--home",
            str(server.home.path),
        ],
        capture_output=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 4
    assert b"not found" in done.stderr
    assert b"--program" in done.stderr


@given(st.binary(max_size=30) | st.builds(lambda port, token: json.dumps({"port": port, "token": token}).encode(),
       st.integers(), st.text(max_size=9)))  # fmt: skip
def test_what_a_job_writes_in_the_place_of_jupyters_file_is_not_believed(said: bytes) -> None:
    found = notebooks.read(said)
    assert found is None or (0 < found.port < 65536 and found.token.isalnum())


@pytest.mark.parametrize("said", [b'{"port": 8888, "token": "a\\u001b[2J"}', b'{"port": 0, "token": "a"}', b"[]", b"3"])
def test_a_link_has_no_control_sequences(said: bytes) -> None:
    assert notebooks.read(said) is None
