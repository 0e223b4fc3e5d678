"""Jobs in planes that name their software: made once for each tenant of a plane, in the pool, and shared with none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, running_server, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.core import Conflict, NotFound, Sandbox
from shoal.engine.local.processes import marked
from shoal.sdk import Client
from shoal.session.commands.common import connector
from tests.servers import kill_for_good
from tests.session.conftest import relayed

from .kit import busybox, layer, member, needs_images, needs_uv, write_image
from .test_jobs import (
    LEVELS,
    PROJECT,
    SLOW,
    ended,
    image,
    log,
    need,
    open_up,
    project,
    ran,
    shared,
    start,
    submit,
    until,
    venv,
    write_source,
)

__all__ = ["image", "project", "shared", "venv"]


@pytest.fixture(scope="module")
def home(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("server") / "home")
    home.path.mkdir()
    start(home, shared)
    yield home
    stop_server(home, timeout_s=20)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


@pytest.fixture(scope="module")
def admin(home: Home) -> Iterator[Client]:
    with Client(home=home.path, environ={}) as client:
        yield client


def plane(home: Home, admin: Client, name: str, sandbox: Sandbox, tenant: str | None = None) -> Client:
    """The admin's of a plane with the tenants red and blue. `tenant` is that of the shared server."""
    if tenant is None:
        admin.create_tenant(name, sandbox=sandbox)
    made = admin.planes.create(name, tenant=tenant or name)
    inside = at(home, made.path, made.token)
    for each in ("red", "blue"):
        inside.create_tenant(each)
    return inside


def at(home: Home, path: str, token: str | None) -> Client:
    info = running_server(home)
    assert info is not None
    return Client(f"{info.url}{path}", token, environ={})


@pytest.fixture(scope="module", params=[pytest.param(one, marks=SLOW) if one != "user" else one for one in LEVELS])
def level(request: pytest.FixtureRequest, home: Home) -> str:
    need(request.param, home)
    return str(request.param)


@pytest.fixture(scope="module")
def vision(home: Home, admin: Client, level: str) -> Client:
    return plane(home, admin, f"vision-{level}", Sandbox(level))


@needs_uv
def test_the_environment_of_a_lock_file_is_made_once_for_each_tenant(
    home: Home, admin: Client, vision: Client, level: str, project: Path, venv: Path
) -> None:
    jobs = [submit(vision, "red", project) for _ in range(2)]
    theirs = submit(vision, "blue", project)
    for job in (*jobs, theirs):
        assert ended(vision, job).state is JobState.SUCCEEDED, (vision.job(job).message, log(vision, job))
    assert log(vision, jobs[0]) == log(vision, jobs[1]) != log(vision, theirs)
    made = {one.tenant: one for one in vision.environments.list().environments}
    assert set(made) == {"red", "blue"}
    assert made["red"].key == made["blue"].key
    assert made["red"].bytes > 0
    assert not admin.environments.list().environments, "nothing of it is the shared server's"
    person = Client(vision.locate().url, vision.create_token("blue").token, environ={})
    assert [one.tenant for one in person.environments.list().environments] == ["blue"]
    with pytest.raises(NotFound):
        person.environments.remove(made["red"].key, tenant="red")
    if level != "none":
        look = f"import os, pathlib, tiny; p = pathlib.Path({log(vision, theirs).split()[0]!r}); print(os.access(p, 0))"
        job = submit(vision, "red", project, ["python", "-c", look])
        assert (ended(vision, job).state, log(vision, job)) == (JobState.SUCCEEDED, "False\n")
    words = ["python", "-c", "import sys; print(sys.prefix)"]
    job, said = ran(vision, "red", words, {"venv": str(venv)})
    assert (job.state, said) == (JobState.SUCCEEDED, f"{venv}\n")
    said = vision.status().model_dump_json() + str([page.model_dump() for page in vision.pages().values()])
    assert str(home.path.parent) not in said, "a plane learns no folder of the shared server"


@needs_images
def test_a_job_of_a_plane_runs_in_an_image(vision: Client, level: str, image: str) -> None:
    job, said = ran(vision, "red", ["sh", "-c", "cat /hello; id -u; touch /a; echo kept > out"], {"image": image})
    assert job.state is JobState.SUCCEEDED, (job.message, said)
    greeting, uid, *rest = said.splitlines()
    assert greeting == "hello from the image"
    assert (int(uid) > 1 << 30) is (level != "none")
    assert rest == ["touch: /a: Read-only file system"]
    assert "red" in {one.tenant for one in vision.environments.list().environments if one.kind == "image"}


@needs_uv
@SLOW
def test_planes_of_one_tenant_share_nothing(home: Home, admin: Client, project: Path) -> None:
    need("user", home)
    one = plane(home, admin, "one", Sandbox.USER)
    two = plane(home, admin, "two", Sandbox.USER, tenant="one")
    first, second = submit(one, "red", project), submit(two, "red", project)
    for client, job in ((one, first), (two, second)):
        assert ended(client, job).state is JobState.SUCCEEDED, client.job(job).message
    prefix = log(one, first).split()[0]
    assert log(two, second).split()[0] != prefix
    look = f"import os, tiny; print(os.access({prefix!r}, 0), os.getuid())"
    here = "import os, tiny; print(os.getuid())"
    job, own = submit(two, "red", project, ["python", "-c", look]), submit(one, "red", project, ["python", "-c", here])
    assert ended(two, job).state is ended(one, own).state is JobState.SUCCEEDED
    there, uid = log(two, job).split()
    assert there == "False"
    assert uid != log(one, own).strip(), "each has a user of its own"
    inside = submit(one, "red", project, ["sleep", "600"])
    until(lambda: one.job(inside).state is JobState.RUNNING)
    session = one.session.execute(inside, ["python", "-c", "import sys, tiny; print(sys.prefix)"])
    assert relayed(connector(one, inside, session.id, 0)) == (0, f"{prefix}\n".encode(), b"")
    one.cancel(inside)
    with pytest.raises(NotFound):
        two.environments.remove("0" * 8)
    until(lambda: not any(each.used for each in two.environments.list().environments))
    assert len(two.environments.remove(two.environments.list().environments[0].key).environments) == 1
    assert [each.tenant for each in one.environments.list().environments] == ["red"]


@needs_uv
@SLOW
def test_a_build_goes_on_while_the_server_is_killed_and_ends_with_its_plane(
    home: Home, shared: Path, project: Path
) -> None:
    need("user", home)
    notes, go = write_source(shared / "source", project)
    with Client(home=home.path, environ={}) as admin:
        plane(home, admin, "killed", Sandbox.USER)
        token = admin.planes.token("killed").token
        job = submit(at(home, "/planes/killed", token), "red", project)
        until(notes.exists)
    kill_for_good(home)
    start(home, shared)
    with Client(home=home.path, environ={}) as admin:
        client = at(home, "/planes/killed", token)
        go.touch()
        done = ended(client, job)
        assert (done.state, done.attempt) == (JobState.SUCCEEDED, 1), done.message
        assert len(notes.read_text().split()) == 1, "it was made once"
        go.unlink()
        notes.unlink()
        (project / "pyproject.toml").write_text(PROJECT.format(version=9))
        submit(client, "blue", project)
        until(notes.exists)
        (made,) = [one.id for one in admin.planes.list().planes if one.name == "killed"]
        with pytest.raises(Conflict, match="not over"):
            admin.planes.delete("killed")
        admin.planes.delete("killed", force=True)
        go.touch()
        until(lambda: not [one for one in (home.path / "planes").iterdir() if made in one.name])
        until(lambda: not marked(home.path))


@needs_images
@SLOW
def test_all_tenants_of_a_plane_have_one_allowance(home: Home, shared: Path) -> None:
    with Client(home=home.path, environ={}) as admin:
        client = plane(home, admin, "full", Sandbox.NONE)
        (made,) = [one.id for one in admin.planes.list().planes if one.name == "full"]
        others = home.path / "planes" / made / "environment" / "red.server" / "cache"
        others.mkdir(parents=True)
        for number in range(11_900):
            (others / f"{number}").touch()
        write_image(shared / "many", [layer([*busybox(), *(member(f"{number}") for number in range(100))])])
        open_up(shared / "many")
        job, _ = ran(client, "blue", ["/bin/true"], {"image": f"oci:{shared}/many"})
        assert job.state is JobState.FAILED
        assert "files: environment.files" in job.message
        for number in range(1000):
            (others / f"{number}").unlink()
        job, _ = ran(client, "blue", ["/bin/true"], {"image": f"oci:{shared}/many"})
        assert job.state is JobState.SUCCEEDED, job.message
