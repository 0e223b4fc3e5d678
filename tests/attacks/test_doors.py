"""What a tenant says to the server: variables for programs with rights, places in manifests, requests of the API."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.principal import TokenRole
from shoal.core import Invalid, Sandbox, ShoalError
from shoal.sdk import Client
from shoal.session.client.ports import reach
from shoal.session.commands.common import connector
from tests.session.conftest import relayed
from tests.session.talk import eventually

from .within import Facts
from .world import HERE, LEVELS, SMALL, World, member, missing

pytestmark = [
    pytest.mark.cold,
    pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root"),
]


# --- the environment of programs with rights ---


@pytest.fixture(scope="module")
def heard() -> Iterator[tuple[str, socket.socket]]:
    """A library that tells who loads it, where all may load it, and where it is heard."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc")
    library = Path("/usr/local/lib") / f"shoal-test-{os.getpid()}.so"
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as made:
        made.bind(("127.0.0.1", 0))
        made.setblocking(False)
        port = f"-DPORT={made.getsockname()[1]}"
        subprocess.run(["gcc", "-shared", "-fPIC", "-w", port, "-o", library, HERE / "helper.c"], check=True)
        try:
            yield str(library), made
        finally:
            library.unlink()


def url_port(place: World) -> int:
    return int(place.admin.locate().url.rpartition(":")[2])


def said_by(made: socket.socket) -> list[tuple[int, str]]:
    found = []
    while True:
        try:
            uid, _, line = made.recv(300).rstrip(b"\0").decode(errors="replace").partition(" ")
        except BlockingIOError:
            return found
        found.append((int(uid), line))


@pytest.mark.parametrize("level", LEVELS)
def test_no_program_with_rights_loads_what_a_tenant_names(
    place: World, heard: tuple[str, socket.socket], level: Sandbox
) -> None:
    """Neither the job's nor an additional command's, nor what fetches and stores data, nor what makes environments."""
    if why := missing(place.home.path, level):
        pytest.skip(why)
    library, made = heard
    chosen = {"LD_PRELOAD": library, "LD_AUDIT": library, "BASH_ENV": library, "PYTHONSTARTUP": library,
              "LD_LIBRARY_PATH": ".", "GCONV_PATH": ".", "PATH": "/usr/bin:/bin:."}  # fmt: skip
    with member(place, f"red-{level}") as client:
        client.set_secret("library", library)
        job = client.submit(
            {"name": "loads", "command": ["sleep", "600"], "env": chosen, "secrets": {"LD_DEBUG_OUTPUT": "library"},
             "resources": SMALL, "inputs": [{"from": "/etc/hostname", "to": "given"}], "outputs": [{"from": "given"}],
             "grace": 1}
        ).id  # fmt: skip
        eventually(lambda: client.job(job).state is JobState.RUNNING or client.job(job).state.terminal)
        for asked in (
            {"command": ["true"]},
            {"command": ["true"], "env": chosen},
            {"command": ["true"], "terminal": True},
        ):
            session = client.session.execute(
                job, asked["command"], env=asked.get("env"), terminal=asked.get("terminal", False)
            )
            code, _, _ = relayed(connector(client, job, session.id, 0), b"")
            assert code == 0
        client.cancel(job)
        eventually(lambda: client.job(job).state.terminal)
        ends = client.submit({"name": "ends", "command": ["true"], "env": chosen, "resources": SMALL,
                              "outputs": [{"from": "x"}]}).id  # fmt: skip
        eventually(lambda: client.job(ends).state.terminal)
    found = said_by(made)
    assert {uid for uid, _ in found if uid < 1 << 30} == set(), [line for uid, line in found if uid < 1 << 30]
    assert sum("sleep" in line for _, line in found) >= 1, "the job's own program loads it"


@pytest.mark.parametrize("level", LEVELS)
def test_who_enters_a_jobs_own_namespaces_has_no_rights_when_a_program_is_loaded(
    place: World, heard: tuple[str, socket.socket], level: Sandbox
) -> None:
    """A command in such a job is refused, or it has the tenant's rights."""
    if why := missing(place.home.path, level):
        pytest.skip(why)
    library, made = heard
    with member(place, f"red-{level}") as client:
        job = place.start(client, "namespaces.py", library)
        eventually(lambda: client.job(job).state.terminal or b"ready" in client.log_piece(job).data)
        if client.job(job).state.terminal:
            pytest.skip(client.log_piece(job).data.decode())
        said_by(made)
        for line in (["true"], ["/bin/sh", "-c", "id -u"], ["python3", "-c", ""]):
            session = client.session.execute(job, line)
            with contextlib.suppress(ShoalError):
                relayed(connector(client, job, session.id, 0), b"")
        with contextlib.suppress(ShoalError):
            reach(client.locate(), job, 0, url_port(place))
        client.cancel(job)
        eventually(lambda: client.job(job).state.terminal)
    assert {uid for uid, _ in said_by(made) if uid < 1 << 30} == set()


# --- places that a manifest names ---

PLACES: dict[str, dict[str, Any]] = {
    "checkpoints of another": {"checkpoint": {"directory": "{victim}"}},
    "all checkpoints": {"checkpoint": {"directory": "{home}/checkpoints/"}},
    "the home": {"checkpoint": {"directory": "{home}/../home"}},
    "by a link": {"checkpoint": {"directory": "{link}/checkpoints"}},
    "an input": {"inputs": [{"from": "{home}/admin.token", "to": "x"}]},
    "an input by a link": {"inputs": [{"from": "{link}/admin.token", "to": "x"}]},
    "an input as a URL": {"inputs": [{"from": "file://{home}/admin.token", "to": "x"}]},
    "an input through an archive": {"inputs": [{"from": "zip://x::{home}/shoal.db", "to": "x"}]},
    "an input through a cache": {"inputs": [{"from": "simplecache::file://{home}/secret.key", "to": "x"}]},
    "an output": {"outputs": [{"from": "x", "to": "{home}/admin.token"}]},
    "an output as a URL": {"outputs": [{"from": "x", "to": "local://{home}/runs/x"}]},
    "an input's name": {"inputs": [{"from": "/etc/hostname", "to": "../../../x"}]},
    "an input's absolute name": {"inputs": [{"from": "/etc/hostname", "to": "{home}/x"}]},
    "an output of others": {"outputs": [{"from": "../../{job}/1/secret.txt"}]},
    "an absolute output": {"outputs": [{"from": "{home}/admin.token"}]},
    "a bundle of another": {"bundle": "sha256:" + "0" * 64},
    "another tenant": {"tenant": "blue"},
    "the server's variables": {"env": {"SHOAL_CHECKPOINT_DIR": "{home}/checkpoints"}},
    "the server's run directory": {"env": {"SHOAL_RUN": "{home}"}},
    "a lock file elsewhere": {"environment": {"uv": "{home}/uv.lock"}},
    "a lock file above": {"environment": {"uv": "../uv.lock"}},
    "a relative environment": {"environment": {"venv": "../../.."}},
    "a conda environment by option": {"environment": {"conda": "--prefix=/"}},
    "an image by option": {"environment": {"image": "--insecure"}},
    "an image above": {"environment": {"image": "oci:/srv/../root/x"}},
    "the machine in an image": {"environment": {"image": "oci:/x", "mounts": ["../.."]}},
    "another user": {"extensions": {"users": {"user": "root"}}},
}
"""What is refused at submission, and by which field: nothing of it starts."""

LATER: dict[str, dict[str, Any]] = {
    "a secret of another": {"secrets": {"X": "of-blue"}},
    "a directory of users": {"extensions": {"users": {"directory": "{home}"}}},
    "an environment of root": {"environment": {"venv": "{home}"}},
    "an image of root": {"environment": {"image": "oci:{canary}"}},
    "an archive of root": {"environment": {"image": "docker-archive:{home}/shoal.db"}},
    "an input of root": {"inputs": [{"from": "{canary}", "to": "x"}]},
    "an input of users": {"inputs": [{"from": "/etc/shadow", "to": "x"}]},
    "an output to root": {"outputs": [{"from": "x", "to": "{canary}"}]},
    "an output to the system": {"outputs": [{"from": "x", "to": "/etc/shoal-mine"}]},
    "checkpoints of root": {"checkpoint": {"directory": "{canary}"}},
    "an input at the server": {"inputs": [{"from": "http://127.0.0.1:{port}/v1/jobs", "to": "x"}]},
}
"""What fails with the tenant's rights when it is tried."""

SHOWS = "echo mine > x; cat x; ls -la {canary} $SHOAL_CHECKPOINT_DIR; cat $SHOAL_CHECKPOINT_DIR"


@pytest.fixture(scope="module")
def names(place: World, facts: Facts) -> dict[str, str]:
    link = place.outside / "link"
    link.symlink_to(place.home.path)
    victim = next(path for path in facts.victim_paths if "checkpoints" in path)
    return {"home": facts.home, "victim": victim, "link": str(link), "job": Path(victim).name, "canary": facts.canary,
            "port": str(facts.port)}  # fmt: skip


def filled(fields: Any, names: dict[str, str]) -> Any:
    text = json.dumps(fields)
    for name, value in names.items():
        text = text.replace(f"{{{name}}}", value)
    return json.loads(text)


@pytest.mark.few
@pytest.mark.parametrize("level", LEVELS)
def test_places_of_others_in_a_manifest_are_refused_or_fail(
    place: World, facts: Facts, names: dict[str, str], level: Sandbox
) -> None:
    if why := missing(place.home.path, level):
        pytest.skip(why)
    before = place.state([facts])
    known = place.home.token_file.read_bytes().strip(), b"of root", b"root:"
    with member(place, f"red-{level}") as client:
        accepted = []
        for what, fields in PLACES.items():
            try:
                client.submit(
                    {"name": "asks", "command": ["true"], "resources": SMALL, **filled(fields, names)}, base=HERE
                )
            except ShoalError:
                continue
            accepted.append(what)
        assert accepted == []
        jobs = {}
        for what, fields in LATER.items():
            command = ["sh", "-c", filled(SHOWS, names)]
            asked = {"name": "tries", "command": command, "resources": SMALL, **filled(fields, names)}
            try:
                jobs[what] = client.submit(asked, base=HERE).id
            except Invalid:
                continue
        for what, job in jobs.items():
            eventually(lambda: client.job(job).state.terminal)
            log = b"".join(piece.data for piece in client.logs(job))
            assert not any(secret in log for secret in known), (what, log)
            if what != "checkpoints of root":
                assert client.job(job).state is JobState.FAILED, (what, log)
    assert place.state([facts]) == before
    assert not Path("/etc/shoal-mine").exists()


# --- requests ---

NOT_TRIED = {"/v1/web/stream", "/v1/web/oidc/start", "/v1/web/oidc/callback", "/openapi.json"}
OWN = {"/v1/manifests/check", "/v1/service-manifests/check", "/v1/web/session", "/v1/web/link"}
"""What a member may ask for without any effect on others."""
CHANGES = ("post", "put", "patch", "delete")
BODY = {"name": "blue", "tenant": "blue", "label": "x", "role": "admin", "replicas": 0}
QUERIES = ("", "tenant=blue&everyone=true&force=true")


def requests(routes: dict[str, Any], named: dict[str, str], *, whole: bool) -> Iterator[tuple[str, str, str, Any]]:
    """Method, route, path with query, and body: of all routes with the names of another's things."""
    for route, operations in routes.items():
        for method in operations:
            if route in NOT_TRIED or method not in ("get", *CHANGES):
                continue
            for name in (named["name"], "blue") if "{name}" in route else ("",):
                path = route
                for key, value in {**named, "name": name}.items():
                    path = path.replace(f"{{{key}}}", value)
                for query in QUERIES if whole else QUERIES[1:]:
                    yield method, route, f"{path}?{query}", BODY if method in CHANGES[:3] else None


def test_no_request_of_a_member_reaches_another_tenant_or_the_server(place: World, facts: Facts) -> None:
    """Every route of the description, with the names of another tenant's things, by members and viewers of a tenant and
    of a plane. What is answered well names nothing of the other; what changes something is never answered well."""
    admin = place.admin
    url = admin.locate().url
    job = next(Path(path).name for path in facts.victim_paths if "checkpoints" in path)
    admin.set_secret("of-blue", "s3cret-of-blue", tenant="blue")
    secret = admin.create_token("blue", label="label-of-blue")
    admin.create_tenant("plane-of-blue", sandbox=Sandbox.USER)
    plane = admin.planes.create("of-blue", tenant="plane-of-blue")
    other = admin.planes.create("of-red", tenant="plane-of-blue")
    with Client(other.url, other.token, environ={}) as inside:
        inside.create_tenant("red")
        within = inside.create_token("red").token
    roles = (TokenRole.MEMBER, TokenRole.VIEWER)
    tokens = {role.value: admin.create_token("red-user", role=role).token for role in roles}
    tokens |= {"of a plane": within, "admin of a plane": other.token}
    named = {
        "ref": job, "job_id": job, "name": "of-blue", "token_id": secret.id, "session": "main", "component": "tenancy",
        "port": str(facts.victim_port), "kind": "user", "key": "0" * 64, "delivery_id": "1",
    }  # fmt: skip
    marks = [job, "s3cret", "label-of-blue", secret.token, plane.token, facts.marks]
    routes = httpx.get(f"{url}/openapi.json").json()["paths"]
    before, jobs = place.state([facts]), [one.id for one in admin.jobs(tenant="blue").jobs]
    wrong, asked = [], 0
    with httpx.Client(base_url=url, timeout=20) as http:
        for role, token in tokens.items():
            headers = {"Authorization": f"Bearer {token}", "X-Remote-User": "root", "X-Forwarded-For": "127.0.0.1"}
            for method, route, path, body in requests(routes, named, whole=role == "member"):
                asked += 1
                answer = http.request(method, path, json=body, headers=headers)
                told = any(mark in answer.text for mark in marks if mark not in path)
                changed = answer.is_success and method in CHANGES and route not in OWN
                if answer.status_code >= 500 or told or changed:
                    wrong.append((role, method, path, answer.status_code, answer.text[:200]))
    assert wrong == []
    assert asked > 400
    assert place.state([facts]) == before
    assert [one.id for one in admin.jobs(tenant="blue").jobs] == jobs
    assert [one.name for one in admin.secrets(tenant="blue")] == ["of-blue"]
