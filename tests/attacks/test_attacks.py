"""Every attack of the table from every place that a tenant's process has: only those succeed that the page names."""

from __future__ import annotations

import json
import os
import pwd
import subprocess
from collections.abc import Collection
from typing import Any

import pytest

from shoal.contract.lifecycle import JobState
from shoal.core import Sandbox
from shoal.sdk import Client
from shoal.session.commands.common import connector
from tests.session.conftest import relayed
from tests.session.talk import eventually
from tests.users.as_user import as_user

from .within import ATTACKS, Facts
from .world import HERE, LEVELS, World, member, missing, processes_of

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")


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


def judge(told: list[dict[str, Any]], level: Sandbox, allowed: Collection[str] = ()) -> int:
    """Each attack was tried, and none reached anything but where the page says so. Returns the attacker's user."""
    by_name = {one["attack"]: one for one in told if "attack" in one}
    assert by_name.keys() == {one.name for one in ATTACKS}
    wrong = {}
    for one in ATTACKS:
        found = by_name[one.name]
        assert found["tried"] or found["reached"], one.name
        if bool(found["reached"]) != (level.value in one.open_at) and one.name not in allowed:
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


def test_from_a_tenant_of_a_plane_at_another_of_it(place: World) -> None:
    """Also its victim is a tenant of the plane; the shared server's own is none the less hidden."""
    place.admin.create_tenant("team", sandbox=Sandbox.USER)
    plane = place.admin.planes.create("team", tenant="team")
    with Client(plane.url, plane.token, environ={}) as inside:
        for name in ("red", "blue"):
            inside.create_tenant(name)
        facts = place.victim(inside, "blue", 1, place.home.path / "planes" / plane.id)
        before = place.state([facts])
        token = inside.create_token("red").token
        with Client(plane.url, token, environ={}) as client:
            job = place.start(client, "within.py", asked(facts))
            eventually(lambda: client.job(job).state.terminal)
            uid = judge(place.said(client, job), Sandbox.USER)
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
