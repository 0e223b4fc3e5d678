"""Jobs in planes that name their software: made once for each tenant of a plane, in the pool, and shared with none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.base.home import Home, running_server, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.core import Sandbox
from shoal.engine.local.processes import marked
from shoal.sdk import Client

from .kit import needs_images, needs_uv
from .test_jobs import (
    LEVELS,
    ended,
    image,
    log,
    need,
    project,
    ran,
    shared,
    start,
    submit,
    venv,
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


def plane(home: Home, admin: Client, name: str, sandbox: Sandbox) -> Client:
    """The admin's of a plane with the tenants red and blue."""
    if name not in {one.name for one in admin.tenants()}:
        admin.create_tenant(name, sandbox=sandbox)
    made = admin.planes.create(name, tenant=name)
    info = running_server(home)
    assert info is not None
    inside = Client(f"{info.url}{made.path}", made.token, environ={})
    for tenant in ("red", "blue"):
        inside.create_tenant(tenant)
    return inside


@pytest.fixture(scope="module", params=LEVELS)
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
