"""Sessions of jobs in planes: with the plane's own rights, in the shared pool, and no further."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shoal.base.home import Home, running_server, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.contract.principal import TokenRole
from shoal.control.server import start_detached
from shoal.core import Conflict, Forbidden, NotFound, Overloaded, Sandbox, ShoalError, Unavailable
from shoal.engine.local.processes import marked
from shoal.engine.sandbox import capabilities
from shoal.sdk import Client
from shoal.session.client.connection import upgrade
from shoal.session.client.ports import reach
from shoal.session.commands.common import connector
from tests.servers import kill_for_good

from .conftest import Running, relayed
from .talk import eventually
from .test_notebook import FAKE
from .test_ssh import missing

SHOAL = [sys.executable, "-m", "shoal.cli"]
LEVELS = [Sandbox.NONE, Sandbox.USER, Sandbox.BUBBLEWRAP]
SERVE = """
import socket
s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1], flush=True)
while True:
    c, _ = s.accept(); data = c.recv(100); c.sendall(b"job:" + data); c.recv(1); c.close()
"""


def start(home: Home, port: int = 0) -> None:
    start_detached(
        ["--home", str(home.path), "--port", str(port), "--slots", "8", "--set", "session.open=8",
         "--set", "tenancy.sleep_after_s=1"], home,
    )  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("planes") / "home")
    start(home)
    try:
        yield home
    finally:
        stop_server(home, timeout_s=20)
        kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


@pytest.fixture(scope="module")
def admin(home: Home) -> Iterator[Client]:
    with Client(home=home.path, environ={}) as client:
        yield client


class Plane:
    """A plane, its admin and its member of tenant `red`."""

    def __init__(self, home: Home, above: Client, name: str, sandbox: Sandbox = Sandbox.NONE) -> None:
        self.level = sandbox
        above.create_tenant(name, sandbox=sandbox)
        made = above.planes.create(name, tenant=name)
        info = running_server(home)
        assert info is not None
        self.url = f"{info.url}{made.path}"
        self.admin = Client(self.url, made.token, environ={})
        self.admin.create_tenant("red")
        self.red = Running(home, self.person("red"))

    def env(self, folder: Path) -> dict[str, str]:
        """For commands of the member of `red`, whose home is this folder."""
        token = self.red.client.locate().token
        return {**os.environ, "SHOAL_URL": self.url, "SHOAL_TOKEN": str(token), "HOME": str(folder)}

    def person(self, tenant: str, role: TokenRole = TokenRole.MEMBER) -> Client:
        return Client(self.url, self.admin.create_token(tenant, role=role).token, environ={})


@pytest.fixture(scope="module")
def vision(home: Home, admin: Client) -> Plane:
    return Plane(home, admin, "vision")


@pytest.fixture(scope="module")
def job(vision: Plane) -> str:
    return vision.red.start("python3", "-c", SERVE, env={"GREETING": "good day"})


@pytest.fixture(scope="module")
def port(vision: Plane, job: str) -> int:
    eventually(lambda: vision.red.log(job).endswith(b"\n"))
    return int(vision.red.log(job))


@pytest.fixture(params=LEVELS)
def apart(request: pytest.FixtureRequest, home: Home, admin: Client) -> Plane:
    level: Sandbox = request.param
    if level is not Sandbox.NONE:
        if os.geteuid() != 0:
            pytest.skip("a sandbox needs a server that runs as root")
        missing = [one for one in capabilities(home.path) if one.name == level.capability and not one.available]
        if missing:
            pytest.skip(missing[0].detail)
    return Plane(home, admin, f"apart-{level}-{os.urandom(2).hex()}", level)


def test_a_command_a_terminal_and_a_port_of_a_job_in_a_plane(apart: Plane) -> None:
    asked = {"name": "shell", "command": ["sh"], "extensions": {"session": {}}, "env": {"GREETING": "good day"}}
    client = apart.red.client
    shell = client.submit(asked).id
    eventually(lambda: client.job(shell).state is JobState.RUNNING)
    look = "id -u; pwd; readlink /proc/self/ns/mnt"
    code, out, errors = apart.red.run(shell, "sh", "-c", f"echo $GREETING; {look}; exit 6")
    assert code == 6, errors
    greeting, uid, folder, namespace = out.decode().splitlines()
    assert greeting == "good day"
    code, seen, _ = relayed(connector(client, shell, "main", 0), f"stty -echo; {look}; exit 3\n".encode())
    assert code == 3
    assert seen.decode().split()[-3:] == [uid, folder, namespace], "the same user, folder and namespaces"
    serving = apart.red.start("python3", "-c", SERVE)
    eventually(lambda: apart.red.log(serving).endswith(b"\n"))
    made = reach(client.locate(), serving, 0, int(apart.red.log(serving)))
    made.send(b"hello")
    assert made.receive(100) == b"job:hello"
    made.close()
    client.cancel(serving)
    assert client.wait(serving, timeout_s=60).terminal


@pytest.mark.slow
def test_a_terminal_openssh_and_a_notebook_by_their_commands(apart: Plane, tmp_path: Path) -> None:
    def run(*line: str, stdin: bytes = b"") -> str:
        done = subprocess.run(line, env=env, input=stdin, capture_output=True, timeout=120)
        assert done.returncode == 0, (line, done.stderr)
        return done.stdout.decode()

    env, job = apart.env(tmp_path), apart.red.start("sleep", "600", env={"GREETING": "good day"})
    said = run(
        *SHOAL, "run", "--pty", "--cpus", "0.1", "--", "sh", "-c", "read x; test -t 1 && echo [$x]", stdin=b"hi\n"
    )
    assert "[hi]" in said
    if not missing():
        run(*SHOAL, "ssh", "--config", job)
        config = str(tmp_path / ".shoal" / "ssh" / "config")
        uid = apart.red.run(job, "id", "-u")[1].decode().strip()
        assert run("ssh", "-F", config, f"{job}.shoal", "echo $GREETING; id -u") == f"good day\n{uid}\n"
        data = tmp_path / "data"
        data.write_bytes(os.urandom(300_000))
        run("scp", "-q", "-F", config, str(data), f"{job}.shoal:there")
        run("scp", "-q", "-F", config, f"{job}.shoal:there", str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == data.read_bytes()
    if apart.level is Sandbox.NONE:
        program = tmp_path / "jupyter"
        program.write_text(FAKE.format(python=sys.executable))
        program.chmod(0o755)
        line = [*SHOAL, "notebook", str(tmp_path), "--program", str(program), "--port", "0", "--cpus", "0.1", "--json"]
        with subprocess.Popen(line, stdout=subprocess.PIPE, env=env) as shown:
            assert shown.stdout is not None
            told = json.loads(shown.stdout.readline())
            with urllib.request.urlopen(told["link"]) as answer:
                assert answer.read().decode() == str(tmp_path)
            shown.send_signal(signal.SIGINT)
            assert shown.wait(60) == 130
        eventually(lambda: apart.red.client.job(told["job"]).state is JobState.CANCELLED)
    apart.red.client.cancel(job)


def test_a_command_that_is_not_there(vision: Plane, job: str) -> None:
    code, _, errors = vision.red.run(job, "no-such-program")
    assert (code, b"no-such-program" in errors) == (127, True)
    with pytest.raises(NotFound) as told:
        reach(vision.red.client.locate(), job, 0, 1)
    assert job in str(told.value.where), "it speaks of the plane's own job"


def test_others_enter_nothing(home: Home, admin: Client, vision: Plane, job: str, port: int) -> None:
    vision.admin.create_tenant("blue")
    other = Plane(home, admin, "speech")
    theirs = other.red.start("python3", "-c", SERVE)
    above = [one.id for one in admin.jobs(limit=100).jobs]
    assert not above, "what a plane handed over is listed nowhere else"
    handed = [path.name.partition(".")[0] for path in (home.path / "gangs").iterdir()]

    def attempts(client: Client, target: str) -> Iterator[Any]:
        yield lambda: client.session.execute(target, ["id"])
        yield lambda: connector(client, target, "main", 0, 0)()
        yield lambda: reach(client.locate(), target, 0, port)
        yield lambda: client.session.end(target, "x1")

    strangers = [vision.person("blue"), other.red.client, other.admin, admin]
    for client in strangers:
        for attempt in attempts(client, job):
            with pytest.raises(NotFound):
                attempt()
        assert not client.session.list(job=job).sessions
    viewer = vision.person("red", TokenRole.VIEWER)
    for attempt in attempts(viewer, job):
        with pytest.raises(Forbidden):
            attempt()
    for client in (vision.red.client, vision.admin):
        for target in (*handed, theirs):
            for attempt in attempts(client, target):
                with pytest.raises(NotFound):
                    attempt()
        for way in (f"../{theirs}", f"..%2F{theirs}", f"../../../speech/v1/jobs/{theirs}", f"{job}/../{theirs}"):
            with pytest.raises(ShoalError) as told:
                upgrade(client.locate(), f"/v1/jobs/{way}/sessions/main/attach", "shoal-session")
            assert isinstance(told.value, NotFound | Unavailable | Forbidden), told.value
    for client in (vision.red.client, admin):
        stolen = other.red.client.locate()
        forged = type(stolen)(stolen.url, client.locate().token, stolen.socket)
        with pytest.raises(Forbidden):
            upgrade(forged, f"/v1/jobs/{theirs}/ports/{port}", "shoal-forward")
    their_port = int(other.red.log(theirs)) if other.red.log(theirs) else port
    with pytest.raises(NotFound):
        reach(vision.red.client.locate(), job, 0, their_port)
    info = running_server(home)
    assert info is not None
    with pytest.raises(NotFound):
        reach(vision.red.client.locate(), job, 0, int(info.url.rpartition(":")[2]))
    for name in ("../x", "..%2Fx", "main/../main", "x" * 40):
        with pytest.raises(ShoalError):
            upgrade(vision.red.client.locate(), f"/v1/jobs/{job}/sessions/{name}/attach", "shoal-session")


def test_all_of_a_plane_have_the_connections_of_one_tenant(vision: Plane, job: str, port: int) -> None:
    vision.admin.create_tenant("green")
    green = Running(vision.red.home, vision.person("green"))
    other = green.start("python3", "-c", SERVE)
    eventually(lambda: green.log(other).endswith(b"\n"))
    made = [reach(vision.red.client.locate(), job, 0, port) for _ in range(8)]
    with pytest.raises(Overloaded, match="all tenants together have 8"):
        reach(green.client.locate(), other, 0, int(green.log(other)))
    for one in made:
        one.close()

    def fits() -> bool:
        try:
            reach(green.client.locate(), other, 0, int(green.log(other))).close()
        except Overloaded:
            return False
        return True

    eventually(fits)


@contextlib.contextmanager
def held(plane: Plane, job: str, *line: str) -> Iterator[subprocess.Popen[bytes]]:
    """`shoal exec` of a member, once it is attached."""
    client = plane.red.client
    with tempfile.TemporaryDirectory() as own:
        process = subprocess.Popen(
            [*SHOAL, "exec", job, "--", *line], env=plane.env(Path(own)), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            eventually(lambda: process.poll() is not None or clients_of(client, job) == [1])
            yield process
        finally:
            process.kill()
            process.communicate()


def clients_of(client: Client, job: str) -> list[int | None]:
    return [one.clients for one in client.session.list(job=job).sessions]


@pytest.mark.slow
def test_a_session_survives_the_server_and_its_plane_does_not_sleep(
    home: Home, admin: Client, vision: Plane, job: str, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    blue = vision.admin.create_tenant("navy").name
    with held(vision, job, "sh", "-c", f"echo before; read x < {go}; echo after") as command:
        assert not vision.person(blue).session.list().sessions
        info = running_server(home)
        assert info is not None
        kill_for_good(home)
        start(home, int(info.url.rpartition(":")[2]))
        eventually(lambda: clients_of(vision.red.client, job) == [1])
        assert next(one.awake for one in admin.planes.list().planes if one.name == "vision"), "work keeps it awake"
        with go.open("w") as file:
            file.write("x\n")
        out, _ = command.communicate(timeout=60)
        assert (command.returncode, out) == (0, b"before\nafter\n")


@pytest.mark.slow
def test_who_is_in_a_job_is_shown_out_of_a_plane_that_is_suspended_or_deleted(home: Home, admin: Client) -> None:
    plane = Plane(home, admin, "brief")
    job = plane.red.start("python3", "-c", SERVE)
    eventually(lambda: plane.red.log(job).endswith(b"\n"))
    port = int(plane.red.log(job))
    made = reach(plane.red.client.locate(), job, 0, port)
    admin.planes.suspend("brief")
    with contextlib.suppress(OSError):
        assert made.receive(1) == b""
    with pytest.raises(Unavailable, match="suspended"):
        reach(plane.red.client.locate(), job, 0, port)
    admin.planes.resume("brief")
    made = reach(plane.red.client.locate(), job, 0, port)
    made.send(b"again")
    assert made.receive(100) == b"job:again", "what runs went on"
    with held(plane, job, "sleep", "600") as command:
        with pytest.raises(Conflict, match="not over"):
            admin.planes.delete("brief")
        admin.planes.delete("brief", force=True)
        with contextlib.suppress(OSError):
            assert made.receive(1) == b""
        _, said = command.communicate(timeout=60)
        assert command.returncode != 0
        assert b"there is no plane 'brief'" in said
    with pytest.raises(ShoalError):
        reach(plane.red.client.locate(), job, 0, port)
    eventually(lambda: not [one for one in marked(home.path) if "sleep" in _line(one.process.pid)])


def test_whose_token_is_revoked_is_shown_out(vision: Plane, job: str, port: int) -> None:
    made_token = vision.admin.create_token("red")
    person = Client(vision.url, made_token.token, environ={})
    made = reach(person.locate(), job, 0, port)
    vision.admin.revoke_token(made_token.id)
    with contextlib.suppress(OSError):
        assert made.receive(1) == b""


def _line(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return ""
