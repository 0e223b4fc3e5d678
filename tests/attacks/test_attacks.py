"""Every attack of the table from every place that a tenant's process has: only those succeed that the page names."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
import tarfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest

from shoal.contract.lifecycle import JobState
from shoal.core import Sandbox
from shoal.sdk import Client
from shoal.session.commands.common import connector
from tests.environment.kit import folder, layer, needs_images, write_image
from tests.environment.kit import member as member_of
from tests.session.conftest import relayed
from tests.session.talk import eventually
from tests.users.as_user import as_user

from .within import ATTACKS, Facts
from .world import HERE, LEVELS, SMALL, World, member, missing, processes_of

pytestmark = [
    pytest.mark.cold,
    pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root"),
]


@pytest.fixture(scope="module", params=LEVELS)
def level(request: pytest.FixtureRequest, place: World) -> Sandbox:
    found: Sandbox = request.param
    if why := missing(place.home.path, found):
        pytest.skip(why)
    return found


def test_the_table_reaches_its_aims_where_nothing_keeps_it_from_them(place: World, facts: Facts) -> None:
    """So the suite would notice a sandbox that does nothing. With root's rights, only what changes nothing is tried."""
    harmless = [one.name for one in ATTACKS if one.harmless]
    job = place.start(place.admin, "within.py", json.dumps({"facts": facts._asdict(), "only": harmless}))
    eventually(lambda: place.admin.job(job).state.terminal)
    told = {one["attack"]: one["reached"] for one in place.said(place.admin, job) if "attack" in one}
    assert [name for name in harmless if not told[name]] == []


def judge(told: list[dict[str, Any]], level: Sandbox, allowed: Collection[str] = (), *, closer: bool = False) -> int:
    """Each attack was tried, and none reached anything but where the page says so. In a place that is `closer` than
    the level, such as an image, also these may fail. Returns the attacker's user."""
    by_name = {one["attack"]: one for one in told if "attack" in one}
    assert by_name.keys() == {one.name for one in ATTACKS}
    wrong = {}
    for one in ATTACKS:
        found = by_name[one.name]
        assert found["tried"] or found["reached"], one.name
        as_told = bool(found["reached"]) == (level.value in one.open_at) or (closer and not found["reached"])
        if not as_told and one.name not in allowed:
            wrong[one.name] = found["reached"] or "nothing was reached, and the page says it can be"
    assert wrong == {}
    return int(told[-1]["end"])


def asked(facts: Facts) -> str:
    return json.dumps({"facts": facts._asdict()})


def test_the_page_names_what_succeeds_by_design_and_nothing_is_called_possible_that_is_stopped() -> None:
    page = (HERE.parent.parent / "docs" / "how-to" / "isolate-tenants.md").read_text()
    rows = [line.strip("|").split("|") for line in page.partition("## What is not")[2].splitlines() if line[:1] == "|"]
    for one in ATTACKS:
        if not one.open_at:
            continue
        ((_, *cells),) = [row for row in rows if one.told in row[0]]
        for level, cell in zip(LEVELS, cells, strict=True):
            assert ("stopped" not in cell.partition(";")[0]) == (level.value in one.open_at), (one.name, cell)


def test_from_a_job_and_from_a_command_in_it(place: World, facts: Facts, level: Sandbox) -> None:
    before = place.state([facts])
    with member(place, f"red-{level}") as client:
        job = place.start(client, "within.py", asked(facts))
        eventually(lambda: client.job(job).state.terminal)
        uid = judge(place.said(client, job), level)
        assert client.job(job).state is JobState.SUCCEEDED
        assert uid > 1 << 30
        eventually(lambda: processes_of(uid) == [])
        assert place.state([facts]) == before
        waits = str(client.submit({"name": "waits", "command": ["sleep", "600"], "files": ["within.py"]}, base=HERE).id)
        eventually(lambda: client.job(waits).state is JobState.RUNNING)
        session = client.session.execute(waits, ["python3", "within.py", asked(facts)])
        code, out, errors = relayed(connector(client, waits, session.id, 0), b"")
        assert code == 0, errors
        assert judge([json.loads(line) for line in out.splitlines()], level) == uid
        assert place.state([facts]) == before
        client.cancel(waits)
        eventually(lambda: client.job(waits).state.terminal)
        assert processes_of(uid) == []


@pytest.mark.few
@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_from_a_job_in_an_environment(place: World, facts: Facts, number: int) -> None:
    level = LEVELS[number]
    if why := missing(place.home.path, level):
        pytest.skip(why)
    venv = place.outside / "shown" / "venv"
    if not venv.exists():
        subprocess.run(["/usr/bin/env", "python3", "-m", "venv", "--without-pip", venv], check=True)
    before = place.state([facts])
    with member(place, f"red-{level}") as client:
        job = place.start(client, "within.py", asked(facts), environment={"venv": str(venv)})
        eventually(lambda: client.job(job).state.terminal)
        uid = judge(place.said(client, job), level)
    eventually(lambda: processes_of(uid) == [])
    assert place.state([facts]) == before


IMAGE = {"bin": "usr/bin", "lib": "usr/lib", "lib64": "usr/lib64", "sbin": "usr/sbin"}


@needs_images
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_from_the_inside_of_an_image(place: World, facts: Facts, number: int) -> None:
    """The image is the attacker's, and brings links; the machine's programs are mounted into it. What it has at the
    path of the server's home is made for this job alone, so it may write there."""
    level = LEVELS[number]
    if why := missing(place.home.path, level):
        pytest.skip(why)
    path = place.outside / "shown" / "image"
    hostile = [
        folder("srv"), member_of("srv/home", kind=tarfile.SYMTYPE, link=facts.home),
        member_of("srv/canary", kind=tarfile.SYMTYPE, link=facts.canary),
        member_of("srv/root", mode=0o4755, data=b"#!/bin/sh\nid\n"),
    ]  # fmt: skip
    links = [member_of(name, kind=tarfile.SYMTYPE, link=to) for name, to in IMAGE.items()]
    write_image(path, [layer([*(folder(name) for name in ("usr", "etc", "tmp", "proc", "dev")), *links, *hostile])])
    for one in (path, *path.rglob("*")):
        one.chmod(0o755 if one.is_dir() else 0o644)
    before = place.state([facts])
    with member(place, f"red-{level}") as client:
        job = place.start(client, "within.py", asked(facts), environment={"image": f"oci:{path}", "mounts": ["/usr"]})
        eventually(lambda: client.job(job).state.terminal)
        assert client.job(job).state is JobState.SUCCEEDED, client.job(job).message
        uid = judge(place.said(client, job), level, {"change the server's home"}, closer=True)
    eventually(lambda: processes_of(uid) == [])
    assert place.state([facts]) == before


MODEL = """
import json, pathlib, subprocess, sys
here = pathlib.Path(__file__).parent
subprocess.Popen(["python3", here / "within.py", (here / "facts.json").read_text()])
def same(arrays):
    return {"y": arrays["x"]}
"""


@pytest.mark.few
@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_from_a_replica_of_a_service(place: World, facts: Facts, number: int, tmp_path: Path) -> None:
    level = LEVELS[number]
    if why := missing(place.home.path, level):
        pytest.skip(why)
    (tmp_path / "model.py").write_text(MODEL)
    (tmp_path / "within.py").write_text((HERE / "within.py").read_text())
    (tmp_path / "facts.json").write_text(asked(facts))
    tensor = {"datatype": "FP32", "shape": [-1, 2]}
    before = place.state([facts])
    with member(place, f"red-{level}") as client:
        service = client.services.deploy(
            {
                "name": f"evil-{level}", "files": ["model.py", "within.py", "facts.json"], "resources": SMALL,
                "models": [{
                    "name": "same", "source": "model:same",
                    "inputs": [{"name": "x", **tensor}], "outputs": [{"name": "y", **tensor}],
                }],
            },
            base=tmp_path,
        )  # fmt: skip
        client.services.wait_ready(service.id, timeout_s=60)
        replica = client.job(f"evil-{level}-0-1").id
        eventually(lambda: any("end" in one for one in place.said(client, replica)))
        uid = judge([one for one in place.said(client, replica) if "attack" in one or "end" in one], level)
        assert client.services.get(service.id).state == "READY"
        client.services.undeploy(service.id)
        client.services.wait_stopped(service.id, timeout_s=60)
    eventually(lambda: processes_of(uid) == [])
    assert place.state([facts]) == before


@pytest.mark.few
@pytest.mark.usefixtures("facts")
@pytest.mark.parametrize("number", range(len(LEVELS)))
def test_from_a_tenant_of_a_plane_at_another_of_it(place: World, number: int) -> None:
    """Also its victim is a tenant of the plane; the shared server's own is none the less hidden."""
    level = LEVELS[number]
    if why := missing(place.home.path, level):
        pytest.skip(why)
    place.admin.create_tenant(f"team-{level}", sandbox=level)
    plane = place.admin.planes.create(f"team-{level}", tenant=f"team-{level}")
    with Client(plane.url, plane.token, environ={}) as inside:
        for name in ("red", "blue"):
            inside.create_tenant(name)
        facts = place.victim(inside, "blue", 1 + number, place.home.path / "planes" / plane.id)
        before = place.state([facts])
        token = inside.create_token("red").token
        with Client(plane.url, token, environ={}) as client:
            job = place.start(client, "within.py", asked(facts))
            eventually(lambda: client.job(job).state.terminal)
            uid = judge(place.said(client, job), level)
        assert uid not in (0, facts.victim_uid)
        eventually(lambda: processes_of(uid) == [])
        assert place.state([facts]) == before


def test_from_a_job_of_a_user_of_the_machine(place: World, facts: Facts) -> None:
    try:
        user = pwd.getpwnam("games")
    except KeyError:
        pytest.skip("this system has no user to borrow")
    place.admin.create_tenant("people", sandbox=Sandbox.USER)
    place.admin.users.add("games", tenant="people")
    before = place.state([facts])

    def submitted() -> str:
        with Client(f"unix:{facts.door}", home="/nonexistent", environ={}) as client:
            return place.start(client, "within.py", asked(facts))

    job = as_user("games", submitted)
    eventually(lambda: place.admin.job(job).state.terminal)
    told = place.said(place.admin, job)
    assert told[-1]["end"] == user.pw_uid
    allowed = {"the server's socket for users of the machine"}  # it is one of them
    judge(told, Sandbox.USER, allowed)
    assert place.state([facts]) == before
