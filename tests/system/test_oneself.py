"""Users of one machine share a server without tokens: each is who the kernel says, and their jobs run as them."""

from __future__ import annotations

import io
import os
import pwd
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest

from shoal.base.home import Home, read_server, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.control.server import start_detached
from shoal.core import Conflict, Forbidden, Invalid, Sandbox
from shoal.engine.local.processes import marked
from shoal.engine.sandbox import capabilities
from shoal.sdk import Client
from shoal.session.client.connection import upgrade
from shoal.session.client.notebooks import output_of
from shoal.users import Kind, Role, RunAs
from tests.servers import kill_for_good
from tests.users.as_user import as_user

T = TypeVar("T")

ALICE, BOB, STRANGER = "games", "man", "mail"
"""Users that every Debian has, and that own nothing."""


def _there() -> bool:
    try:
        return all(pwd.getpwnam(name).pw_uid for name in (ALICE, BOB, STRANGER))
    except KeyError:
        return False


pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only a server that runs as root starts jobs as others"),
    pytest.mark.skipif(not _there(), reason="this system has no users to borrow"),
]


@dataclass
class Machine:
    home: Home
    folder: Path

    @property
    def url(self) -> str:
        return f"unix:{self.folder / 'shoal.sock'}"

    def start(self) -> None:
        words = [
            "--home",
            str(self.home.path),
            "--port",
            "0",
            "--slots",
            "4",
            "--set",
            f"socket={self.folder}/shoal.sock",
        ]
        start_detached(words, self.home)

    def admin(self) -> Client:
        return Client(home=self.home.path, environ={})

    def call(self, user: str, act: Callable[[Client], T]) -> T:
        """As this user, without any token."""

        def within() -> T:
            with Client(self.url, home="/nonexistent", environ={}) as client:
                return act(client)

        return as_user(user, within)

    def submit(
        self, user: str, script: str, name: str = "job", env: dict[str, str] | None = None, **users: str
    ) -> str:  # fmt: skip
        extensions = {"users": users} if users else {}
        manifest = {"name": name, "command": ["sh", "-c", script], "env": env or {}, "extensions": extensions}
        return self.call(user, lambda client: client.submit(manifest).id)

    def ended(self, job: str) -> Any:
        with self.admin() as client:
            until(lambda: client.job(job).state.terminal)
            return client.job(job)

    def said(self, user: str, job: str) -> list[str]:
        found = self.ended(job)
        log = self.call(user, lambda client: b"".join(piece.data for piece in client.logs(job)).decode())
        assert found.state is JobState.SUCCEEDED, (found.message, log)
        return log.splitlines()

    def run_dir(self, job: str) -> Path:
        return self.home.path / "runs" / job / "1"


def until(true: Callable[[], bool]) -> None:
    give_up = time.monotonic() + 60
    while not true():
        assert time.monotonic() < give_up
        time.sleep(0.02)


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A team of two in the tenant red, in a folder that others can enter."""
    with (
        tempfile.TemporaryDirectory(prefix="shoal-run-") as folder,
        tempfile.TemporaryDirectory(prefix="shoal-home-", dir="/var/tmp") as kept,
    ):
        Path(folder).chmod(0o755)
        home = Home(Path(kept) / "home")
        machine = Machine(home, Path(folder))
        machine.start()
        missing = [one for one in capabilities(home.path) if one.name == Sandbox.USER.capability and not one.available]
        try:
            if missing:
                pytest.skip(missing[0].detail)
            with machine.admin() as client:
                client.create_tenant("red", sandbox=Sandbox.USER)
                for name in (ALICE, BOB):
                    client.users.add(name, tenant="red")
                _load(client)
            yield machine
        finally:
            stop_server(home, timeout_s=20)
            kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


def _load(client: Client) -> None:
    """Import what clients import when it is first used: other users may not read it here."""
    client.jobs()
    client.users.whoami()
    job = client.submit({"name": "warm", "command": ["true"], "tenant": "red"}).id
    until(lambda: client.job(job).state.terminal)
    list(client.logs(job))
    client.files(job)
    with pytest.raises(Conflict):
        client.create_tenant("red")


def test_everyone_is_who_the_kernel_says(machine: Machine) -> None:
    for name in (ALICE, BOB):
        found = machine.call(name, lambda client: client.users.whoami())
        assert (found.user, found.uid) == (name, pwd.getpwnam(name).pw_uid)
        assert (found.tenant, found.role, found.run_as) == ("red", Role.MEMBER, name)
    with pytest.raises(Forbidden, match=f"the user {STRANGER} of this machine belongs to no tenant"):
        machine.call(STRANGER, lambda client: client.jobs())
    with machine.admin() as client:
        assert client.users.whoami().role is Role.ADMIN
        client.users.add(STRANGER, tenant="red", kind=Kind.GROUP, role=Role.VIEWER)
    assert machine.call(STRANGER, lambda client: client.users.whoami()).by == f"the group {STRANGER}"
    with pytest.raises(Forbidden, match="a viewer changes nothing"):
        machine.submit(STRANGER, "true")
    with machine.admin() as client:
        client.users.remove(STRANGER, kind=Kind.GROUP)


LOOK = """
id -u; id -g; id -G; umask; pwd; echo $USER $LOGNAME $HOME $SHELL; grep NoNewPrivs /proc/self/status
echo mine > $SHOAL_CHECKPOINT_DIR/model; ls -A /tmp; touch /tmp/of-$SHOAL_JOB_ID
"""


@pytest.mark.skipif(Path(sys.prefix).is_relative_to("/tmp"), reason="jobs share the /tmp that Shoal itself is in")
@pytest.mark.parametrize("level", [Sandbox.USER, Sandbox.BUBBLEWRAP])
def test_a_job_is_its_submitters_in_every_respect(machine: Machine, level: Sandbox) -> None:
    if missing := [
        one for one in capabilities(machine.home.path) if one.name == level.capability and not one.available
    ]:
        pytest.skip(missing[0].detail)
    me = pwd.getpwnam(ALICE)
    with machine.admin() as client:
        client.change_tenant("red", sandbox=level)
    try:
        job = machine.submit(ALICE, LOOK)
        uid, gid, groups, umask, cwd, names, privileges = machine.said(ALICE, job)
    finally:
        with machine.admin() as client:
            client.change_tenant("red", sandbox=Sandbox.USER)
    run_dir = machine.run_dir(job)
    assert (int(uid), int(gid), umask, cwd) == (me.pw_uid, me.pw_gid, "0077", str(run_dir))
    assert set(os.getgrouplist(ALICE, me.pw_gid)) < {int(one) for one in groups.split()}
    home = me.pw_dir if level is Sandbox.USER else str(run_dir)
    assert names == f"{ALICE} {ALICE} {home} {me.pw_shell}"
    assert privileges.split()[1] == "1"
    model = machine.home.path / "checkpoints" / job / "model"
    assert not Path(f"/tmp/of-{job}").exists()
    for path in (run_dir, model):
        assert (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o077) == (me.pw_uid, me.pw_gid, 0)


def test_it_starts_in_the_users_own_directory_with_no_more_rights_than_theirs(machine: Machine) -> None:
    own, others = machine.folder / "own", machine.folder / "others"
    for path, name in ((own, ALICE), (others, BOB)):
        path.mkdir(mode=0o700)
        os.chown(path, pwd.getpwnam(name).pw_uid, pwd.getpwnam(name).pw_gid)
    machine.said(ALICE, machine.submit(ALICE, "pwd > here", directory=str(own)))
    assert (own / "here").read_text() == f"{own}\n"
    assert (own / "here").stat().st_uid == pwd.getpwnam(ALICE).pw_uid
    refused = machine.ended(machine.submit(ALICE, "true", directory=str(others)))
    assert (refused.state, "Permission denied" in refused.message) == (JobState.FAILED, True), refused.message


def test_bubblewrap_shows_the_home_where_the_manifest_says_so_and_it_is_the_users(machine: Machine) -> None:
    level = Sandbox.BUBBLEWRAP
    if missing := [
        one for one in capabilities(machine.home.path) if one.name == level.capability and not one.available
    ]:
        pytest.skip(missing[0].detail)
    home = Path(pwd.getpwnam(BOB).pw_dir)
    with machine.admin() as client:
        client.change_tenant("red", sandbox=level)
    try:
        refused = machine.ended(machine.submit(ALICE, "true", home="read"))
        assert "home cannot be shown" in refused.message, "it is root's"
        if not home.is_dir() or home.stat().st_uid != pwd.getpwnam(BOB).pw_uid:
            pytest.skip(f"{home} is not the home of {BOB}")
        look = f"echo $HOME; ls -d {home}; touch $HOME/.shoal-test && rm $HOME/.shoal-test && echo written; true"
        assert str(home) not in machine.said(BOB, machine.submit(BOB, look))
        shown = machine.said(BOB, machine.submit(BOB, look, home="read"))
        assert shown[:2] == [str(home), str(home)]
        assert "written" not in shown
        assert machine.said(BOB, machine.submit(BOB, look, home="write"))[-1] == "written"
        assert machine.said(BOB, machine.submit(BOB, "pwd", home="read", directory="~")) == [str(home)]
    finally:
        with machine.admin() as client:
            client.change_tenant("red", sandbox=Sandbox.USER)


def test_one_user_does_not_get_at_anothers_job(machine: Machine) -> None:
    script = "echo secret | tee kept; umask 0; echo secret > open; chmod 777 .; sleep 1000"
    job = machine.submit(ALICE, script, "theirs", env={"KEY": "value"})
    assert machine.call(ALICE, lambda client: client.job(job)).manifest["env"] == {"KEY": "value"}
    assert machine.call(BOB, lambda client: client.job(job)).manifest["env"] == {}
    with machine.admin() as client:
        until(lambda: b"secret" in b"".join(piece.data for piece in client.logs(job, follow=False)))
    for attempt in (
        lambda client: list(client.logs(job, follow=False)),
        lambda client: client.files(job),
        lambda client: client.file_piece(job, "kept"),
        lambda client: client.cancel(job),
        lambda client: client.suspend(job),
        lambda client: client.cancel("theirs"),
    ):
        with pytest.raises(Forbidden, match=f"is of the user {ALICE}"):
            machine.call(BOB, attempt)
    assert job in {one.id for one in machine.call(BOB, lambda client: client.jobs()).jobs}, "the queue is for all"
    with pytest.raises(PermissionError):
        as_user(BOB, lambda: (machine.run_dir(job) / "open").read_text())
    spy = f"cat {machine.run_dir(job)}/open; ls {machine.home.path}/gangs {machine.home.path}/runs; echo done"
    seen = machine.said(BOB, machine.submit(BOB, spy))
    assert "secret" not in seen
    assert not [line for line in seen if job in line and "cannot" not in line and "No such" not in line], seen
    with machine.admin() as client:
        client.users.add(BOB, tenant="red", role=Role.LEAD)
        machine.call(BOB, lambda client: client.cancel(job))
        client.users.add(BOB, tenant="red")
    assert machine.ended(job).state is JobState.CANCELLED


def test_nothing_but_the_kernels_word_counts(machine: Machine) -> None:
    info = read_server(machine.home)
    assert info is not None
    forged = {"shoal.local_user": "0", "x-shoal-local-user": "0", "x-forwarded-user": "root", "remote-user": "root"}
    assert httpx.get(f"{info.url}/v1/jobs", headers=forged).status_code == 401
    as_user(BOB, partial(_speak, str(machine.folder / "shoal.sock"), forged))
    with pytest.raises(Invalid, match="no such field"):
        machine.submit(BOB, "id", uid="0")
    with pytest.raises(Forbidden):
        machine.call(BOB, lambda client: client.submit({"name": "x", "command": ["id"], "tenant": "default"}))
    for act in (
        lambda client: client.users.add(BOB, role=Role.ADMIN),
        lambda client: client.users.remove(ALICE),
        lambda client: client.users.get(ALICE),
        lambda client: client.users.token(ALICE),
        lambda client: client.create_token("red"),
    ):
        with pytest.raises(Forbidden):
            machine.call(BOB, act)


def _speak(path: str, headers: dict[str, str]) -> None:
    with httpx.Client(transport=httpx.HTTPTransport(uds=path)) as client:
        who = client.get("http://localhost/v1/whoami", headers=headers).json()
    assert who["user"] == BOB, who


def test_a_token_of_a_user_is_that_user_from_elsewhere_until_they_are_removed(machine: Machine) -> None:
    info = read_server(machine.home)
    assert info is not None
    made = machine.call(BOB, lambda client: client.users.token(BOB))
    job = machine.submit(ALICE, "sleep 1000", "elsewhere")
    with Client(info.url, made.token, environ={}) as remote:
        assert remote.users.whoami().user == BOB
        with pytest.raises(Forbidden):
            remote.cancel(job)
        with pytest.raises(Forbidden, match="on the server's machine"):
            remote.users.token(BOB)
        own = remote.submit({"name": "remote", "command": ["id", "-u"]}).id
        assert machine.said(BOB, own) == [str(pwd.getpwnam(BOB).pw_uid)]
        with machine.admin() as client:
            removed = client.users.remove(BOB)
            assert removed.revoked == (made.id,)
            with pytest.raises(Forbidden):
                remote.jobs()
            client.users.add(BOB, tenant="red")
            with pytest.raises(Forbidden):
                remote.jobs()
            client.cancel(job)


def test_who_could_become_root_is_refused(machine: Machine) -> None:
    with machine.admin() as client:
        with pytest.raises(Conflict, match="could run services as root"):
            client.users.add(ALICE, tenant="default")
        with pytest.raises(Invalid, match="root, whose jobs are not run"):
            client.users.add("root", tenant="red")
        with pytest.raises(Invalid, match="this machine has no user"):
            client.users.add("no-such-user", tenant="red")
        with pytest.raises(Invalid, match="this machine has no group"):
            client.users.add("no-such-group", tenant="red", kind=Kind.GROUP)


@pytest.mark.slow
def test_who_is_removed_keeps_what_runs_over_a_crash_and_starts_nothing(machine: Machine) -> None:
    runs = machine.submit(ALICE, "while [ ! -e go ]; do sleep 0.05; done; id -u", "runs")
    with machine.admin() as client:
        until(lambda: client.job(runs).state is JobState.RUNNING)
        client.suspend(waits := machine.submit(ALICE, "sleep 1000", "waits"))
        until(lambda: client.job(waits).state is JobState.SUSPENDED)
        removed = client.users.remove(ALICE)
        assert removed.unfinished == 2
    kill_for_good(machine.home)
    machine.start()
    with machine.admin() as client:
        assert client.job(runs).state is JobState.RUNNING
        with pytest.raises(Forbidden, match="belongs to no tenant"):
            machine.call(ALICE, lambda client: client.jobs())
        client.resume(waits)
        refused = machine.ended(waits)
        assert (refused.state, "belongs to no tenant" in refused.message) == (JobState.FAILED, True), refused.message
        client.users.add(ALICE, tenant="red", run_as=RunAs.SELF)
        (machine.run_dir(runs) / "go").touch()
    assert machine.said(ALICE, runs) == [str(pwd.getpwnam(ALICE).pw_uid)]


def test_only_its_user_enters_a_job(machine: Machine) -> None:
    job = machine.submit(ALICE, "exec sleep 300", "kept")
    with machine.admin() as client:
        until(lambda: client.job(job).state is JobState.RUNNING)

    def enter(client: Client) -> tuple[int, str]:
        script = "id -un; id -G | wc -w; pwd; su -c id root </dev/null; su -c id " + BOB + " </dev/null; sudo -n id"
        session = client.session.execute(job, ["sh", "-c", f"{script}; true"]).id
        path = f"/v1/jobs/{job}/sessions/{session}/attach"
        code, said = output_of(lambda: upgrade(client.locate(), path, "shoal-session", {"wait_s": 20}))
        return code, said.decode()

    code, said = machine.call(ALICE, enter)
    assert code == 0, said
    assert said.splitlines()[0] == ALICE, said
    assert said.splitlines()[2] == str(machine.run_dir(job))
    assert "uid=" not in said, "nobody becomes another by `su` in a session"
    ways: list[Callable[[Client], object]] = [
        lambda client: client.session.execute(job, ["true"]),
        lambda client: upgrade(client.locate(), f"/v1/jobs/{job}/sessions/main/attach", "shoal-session"),
        lambda client: upgrade(client.locate(), f"/v1/jobs/{job}/ports/22", "shoal-forward"),
    ]
    for way in ways:
        with pytest.raises(Forbidden, match=ALICE):
            machine.call(BOB, way)
    machine.call(ALICE, lambda client: client.cancel(job))


def test_an_environment_of_the_tenant_is_for_each_of_its_users(machine: Machine) -> None:
    def submit(client: Client) -> str:
        bundle = client.upload(_archive({"pyproject.toml": PROJECT, "uv.lock": LOCK})).bundle
        words = ["sh", "-c", f"python -c '{look}'; while [ ! -e go ]; do sleep 0.05; done"]
        return client.submit({"name": "job", "command": words, "environment": {"uv": "uv.lock"}, "bundle": bundle}).id

    def enter(job: str, client: Client) -> tuple[int, list[str]]:
        until(lambda: client.job(job).state is JobState.RUNNING)
        session = client.session.execute(job, ["python", "-c", look]).id
        path = f"/v1/jobs/{job}/sessions/{session}/attach"
        code, said = output_of(lambda: upgrade(client.locate(), path, "shoal-session", {"wait_s": 20}))
        return code, said.decode().splitlines()

    look = "import os, sys; print(os.getuid(), sys.prefix)"
    jobs = {user: machine.call(user, submit) for user in (ALICE, BOB)}
    beside = {user: machine.call(user, partial(enter, job)) for user, job in jobs.items()}
    for job in jobs.values():
        (machine.run_dir(job) / "go").touch()
    said = {user: machine.said(user, job) for user, job in jobs.items()}
    assert beside == {user: (0, lines) for user, lines in said.items()}
    assert [lines[0].split()[0] for lines in said.values()] == [str(pwd.getpwnam(user).pw_uid) for user in jobs]
    assert len({lines[0].split()[1] for lines in said.values()}) == 1


PROJECT = '[project]\nname = "demo"\nversion = "0"\nrequires-python = ">=3.11"\n'
LOCK = """version = 1
revision = 1
requires-python = ">=3.11"

[[package]]
name = "demo"
version = "0"
source = { virtual = "." }
"""


def _archive(files: dict[str, str]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    return packed.getvalue()
