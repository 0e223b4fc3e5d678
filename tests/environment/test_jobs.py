"""Jobs of a real server that name their software, with and without a sandbox."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shoal.base.home import Home, stop_server
from shoal.base.processes import kill_until_none
from shoal.contract.lifecycle import JobState
from shoal.control.server import start_detached
from shoal.core import Conflict, NotFound, Sandbox
from shoal.engine.local.processes import marked
from shoal.engine.sandbox import capabilities
from shoal.sdk import Client
from shoal.sdk.models import JobDetail
from tests.servers import kill_for_good

from .kit import busybox, folder, layer, member, needs_images, needs_uv, write_image

SLOW = pytest.mark.slow
LEVELS = ["none", "user", "bubblewrap"]


@pytest.fixture(scope="module")
def shared() -> Iterator[Path]:
    """A folder that every user may read."""
    with TemporaryDirectory(prefix="shoal-environment-", dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def start(home: Home, shared: Path) -> None:
    settings = f'{{"shown": ["{shared}"], "find_links": "{shared}/wheels", "offline": true, "files": 12000}}'
    (home.path / "config.yaml").write_text(f"environment: {settings}\n")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "4"], home)


@pytest.fixture(scope="module")
def home(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    home = Home(tmp_path_factory.mktemp("server") / "home")
    home.path.mkdir()
    start(home, shared)
    with Client(home=home.path, environ={}) as client:
        found = {one.name: one.available for one in capabilities(home.path)}
        for level in Sandbox:
            if level is Sandbox.NONE or found.get(level.capability):
                client.create_tenant(level.value, sandbox=level)
    yield home
    stop_server(home, timeout_s=20)
    kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)


@pytest.fixture
def client(home: Home) -> Iterator[Client]:
    with Client(home=home.path, environ={}) as client:
        yield client


def need(level: str, home: Home) -> None:
    if level != "none" and os.geteuid() != 0:
        pytest.skip("a sandbox needs a server that runs as root")
    missing = [one.detail for one in capabilities(home.path) if one.name == f"sandbox-{level}" and not one.available]
    if missing:
        pytest.skip(missing[0])


def ran(
    client: Client, tenant: str, command: list[str], environment: dict[str, Any], **more: Any
) -> tuple[JobDetail, str]:
    made = {"name": "job", "command": command, "tenant": tenant, "environment": environment, **more}
    job = client.submit(made).id
    client.wait(job, timeout_s=60)
    return client.job(job), log(client, job)


def log(client: Client, job: str) -> str:
    return b"".join(piece.data for piece in client.logs(job)).decode()


def until(true: Callable[[], object]) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


# --- what is on the machine ---


@pytest.fixture(scope="module")
def venv(shared: Path) -> Path:
    path = shared / "venv"
    subprocess.run(["/usr/bin/env", "python3", "-m", "venv", "--without-pip", path], check=True)
    return path


@pytest.mark.parametrize("level", LEVELS)
def test_a_job_runs_in_a_virtual_environment(client: Client, home: Home, level: str, venv: Path) -> None:
    need(level, home)
    words = ["python", "-c", "import os, sys; print(sys.prefix, os.environ['VIRTUAL_ENV'])"]
    job, said = ran(client, level, words, {"venv": str(venv)})
    assert (job.state, said) == (JobState.SUCCEEDED, f"{venv} {venv}\n")


def test_an_environment_that_is_not_there_fails_the_job_in_words(client: Client, home: Home) -> None:
    need("bubblewrap", home)
    job, said = ran(client, "bubblewrap", ["python"], {"venv": "/root/venv"})
    assert (job.state, job.message) == (JobState.FAILED, "the process left with exit code 126")
    assert "the environment /root/venv has no bin/python that user" in said
    assert "The sandbox bubblewrap shows what the setting environment.shown names" in said


# --- a lock file ---

LOCK = """version = 1
revision = 1
requires-python = ">=3.11"

[[package]]
name = "demo"
version = "0"
source = {{ virtual = "." }}
dependencies = [{{ name = "tiny" }}]

[package.metadata]
requires-dist = [{{ name = "tiny" }}]

[[package]]
name = "tiny"
version = "1.0"
source = {{ registry = "{wheels}" }}
wheels = [{{ path = "tiny-1.0-py3-none-any.whl" }}]
"""
PROJECT = '[project]\nname = "demo"\nversion = "{version}"\nrequires-python = ">=3.11"\ndependencies = ["tiny"]\n'


def write_wheel(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / "tiny-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny.py", "WORD = 'from the wheel'\n")
        info = "tiny-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", f"tiny.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    path.chmod(0o644)
    folder.chmod(0o755)


@pytest.fixture
def project(shared: Path, tmp_path: Path) -> Path:
    write_wheel(shared / "wheels")
    (tmp_path / "pyproject.toml").write_text(PROJECT.format(version=0))
    (tmp_path / "uv.lock").write_text(LOCK.format(wheels=shared / "wheels"))
    return tmp_path


FILES = ["pyproject.toml", "uv.lock"]
IMPORT = ["python", "-c", "import sys, tiny; print(sys.prefix, tiny.WORD)"]


def submit(client: Client, tenant: str, project: Path, command: list[str] = IMPORT, **more: Any) -> str:
    made = {"name": "job", "command": command, "tenant": tenant, "environment": {"uv": "uv.lock"}, "files": FILES}
    return client.submit({**made, **more}, base=project).id


def ended(client: Client, job: str) -> JobDetail:
    client.wait(job, timeout_s=90)
    return client.job(job)


@needs_uv
@pytest.mark.parametrize("level", ["none", "user", pytest.param("bubblewrap", marks=SLOW)])
def test_the_environment_of_a_lock_file_is_made_once(client: Client, home: Home, level: str, project: Path) -> None:
    need(level, home)
    jobs = [submit(client, level, project) for _ in range(3)]
    for job in jobs:
        assert ended(client, job).state is JobState.SUCCEEDED, (client.job(job).message, log(client, job))
    said = {log(client, job) for job in jobs}
    made = [one for one in client.environments.list(tenant=level).environments if one.kind == "uv"]
    assert (len(said), len(made)) == (1, 1)
    (words,) = said
    assert words.endswith("from the wheel\n")
    assert made[0].key in words
    assert made[0].bytes > 0
    ready = [event for event in client.events(jobs[-1]) if event.kind == "environment.ready"]
    assert [event.data["key"] for event in ready] == [made[0].key]


@needs_uv
def test_what_is_made_for_one_tenant_is_hidden_from_others_and_read_only(
    client: Client, home: Home, project: Path
) -> None:
    need("user", home)
    look = f"""
import os, sys, tiny
print(sorted(os.listdir({str(home.path / "environment")!r})))
for path in (tiny.__file__, sys.prefix + "/new", sys.prefix + "/../../../cache/new"):
    try:
        open(path, "a").close()
    except OSError as error:
        print(error.strerror)
"""
    assert ended(client, submit(client, "bubblewrap", project)).state is JobState.SUCCEEDED
    job = submit(client, "user", project, ["python", "-c", look])
    ended(client, job)
    assert log(client, job) == "['user']\n" + "Read-only file system\n" * 3


@needs_uv
def test_a_lock_file_that_cannot_be_made_is_the_users_fault(client: Client, project: Path) -> None:
    (project / "uv.lock").write_text("not = a lock")
    job = ended(client, submit(client, "none", project))
    assert (job.state, job.attempt) == (JobState.FAILED, 1)
    assert "uv failed: " in job.message
    made = {"name": "job", "command": ["true"], "tenant": "none", "environment": {"uv": "uv.lock"}}
    job = ended(client, client.submit(made).id)
    assert "the job has no files, and so no lock file" in job.message


@needs_uv
def test_a_lock_file_that_names_a_path_outside_reads_it_with_the_jobs_rights_only(
    client: Client, home: Home, project: Path, tmp_path: Path
) -> None:
    need("user", home)
    secret = tmp_path / "secret"
    write_wheel(secret)
    (secret / "tiny-1.0-py3-none-any.whl").chmod(0o600)
    secret.chmod(0o700)
    (project / "uv.lock").write_text(LOCK.format(wheels=secret))
    (project / "pyproject.toml").write_text(PROJECT.format(version=7))
    job = ended(client, submit(client, "user", project))
    assert job.state is JobState.FAILED
    assert "uv failed: " in job.message, job.message


@needs_uv
@pytest.mark.slow
def test_what_is_not_used_is_removed_and_made_again(client: Client, home: Home, project: Path) -> None:
    (project / "pyproject.toml").write_text(PROJECT.format(version=3))
    before = {one.key for one in client.environments.list(tenant="none").environments}
    running = submit(client, "none", project, ["sleep", "1000"])
    until(lambda: client.job(running).state is JobState.RUNNING)
    (key,) = {one.key for one in client.environments.list(tenant="none").environments} - before
    with pytest.raises(Conflict, match="is what a job runs with"):
        client.environments.remove(key, tenant="none")
    client.cancel(running)
    client.wait(running, timeout_s=30)
    until(lambda: not next(one for one in client.environments.list().environments if one.key == key).used)
    with pytest.raises(NotFound):
        client.environments.remove(key, tenant="user")
    assert [one.key for one in client.environments.remove(key[:20], tenant="none").environments] == [key]
    assert not (home.path / "environment" / "none.server" / "uv" / key).exists()
    assert ended(client, submit(client, "none", project)).state is JobState.SUCCEEDED


# --- an image ---


@pytest.fixture(scope="module")
def image(shared: Path) -> str:
    greeting = member("hello", b"hello from the image\n", mode=0o644)
    write_image(
        shared / "image", [layer(busybox()), layer([greeting, folder("srv", 0o700)])], env=["PATH=/bin", "WORD=w"]
    )
    open_up(shared / "image")
    return f"oci:{shared}/image"


def open_up(path: Path) -> None:
    for one in [path, *path.rglob("*")]:
        one.chmod(0o755 if one.is_dir() else 0o644)


LOOK = """
cat /hello; echo $WORD $LD_PRELOAD; id -u; pwd
test -e /usr && echo /usr
touch /a /bin/a; echo kept > out; cat in
"""


@needs_images
@pytest.mark.parametrize("level", ["none", pytest.param("user", marks=SLOW), "bubblewrap"])
def test_a_job_runs_in_an_image(client: Client, home: Home, level: str, image: str, tmp_path: Path) -> None:
    need(level, home)
    (tmp_path / "in").write_text("data\n")
    words = ["sh", "-c", LOOK]
    made = {"name": "job", "command": words, "tenant": level, "environment": {"image": image}, "files": ["in"]}
    asked = client.submit({**made, "outputs": ["out"]}, base=tmp_path).id
    job, said = ended(client, asked), log(client, asked)
    assert job.state is JobState.SUCCEEDED, (job.message, said)
    lines = said.splitlines()
    assert lines[:2] == ["hello from the image", "w"]
    assert (int(lines[2]) > 1 << 30) is (level != "none")
    assert lines[3] == str(home.path / "runs" / job.id / "1")
    assert sorted(lines[4:6]) == ["touch: /a: Read-only file system", "touch: /bin/a: Read-only file system"]
    assert lines[6:] == ["data"]
    made = [one for one in client.environments.list(tenant=level).environments if one.source == image]
    assert len(made) == 1


@needs_images
def test_a_signal_and_an_exit_code_pass_through(client: Client, image: str) -> None:
    job, _ = ran(client, "none", ["sh", "-c", "exit 7"], {"image": image})
    assert job.message == "the process left with exit code 7"
    words = ["sh", "-c", "trap 'echo asked to go; exit 0' TERM; echo ready; while :; do sleep 0.1; done"]
    made = {"name": "job", "command": words, "tenant": "none", "environment": {"image": image}}
    asked = client.submit(made).id
    until(lambda: b"ready" in client.log_piece(asked).data)
    client.cancel(asked)
    assert ended(client, asked).state is JobState.CANCELLED
    assert log(client, asked) == "ready\nasked to go\n"
    job, _ = ran(client, "none", ["sh", "-c", "kill -9 $$"], {"image": image})
    assert "signal 9" in job.message or "SIGKILL" in job.message, job.message


@needs_images
def test_a_digest_that_was_pinned_must_be_the_images(client: Client, image: str) -> None:
    job, _ = ran(client, "none", ["true"], {"image": f"{image}@sha256:{'0' * 64}"})
    assert (job.state, job.attempt) == (JobState.FAILED, 1)
    assert f"and sha256:{'0' * 64} was asked for" in job.message


DEVICES = [
    member("dev/sda", kind=b"4", mode=0o666), member("disk", kind=b"4", mode=0o666),
    member("su", b"#!/bin/sh\nid -u\n", mode=0o6755),
]  # fmt: skip
LINKS = [
    member("abs", kind=b"2", link="/etc/shadow"), member("etc", kind=b"2", link="/root"),
    member("up", kind=b"2", link="../../../../../../etc"), member("up/pwned", b"x"), member("../../pwned", b"x"),
    member("hard", kind=b"1", link="../../../../etc/passwd"),
]  # fmt: skip


@needs_images
def test_devices_and_setuid_files_of_an_image_are_nothing(client: Client, home: Home, shared: Path) -> None:
    need("user", home)
    write_image(shared / "devices", [layer([*busybox(), *DEVICES])], env=["PATH=/bin"])
    open_up(shared / "devices")
    words = ["sh", "-c", "test -b /disk && echo a device; cat /disk; id -u; /su; ls /dev"]
    _, said = ran(client, "user", words, {"image": f"oci:{shared}/devices"})
    lines = said.split()
    assert lines[0] == lines[1] != "0"
    assert not {"a", "sda"} & set(lines)


@needs_images
@pytest.mark.slow
@pytest.mark.parametrize(
    "evil", [LINKS[:1], LINKS[1:2], LINKS[2:4], LINKS[4:5], LINKS[5:]], ids=lambda one: one[-1][0].name
)
def test_links_of_an_image_lead_nowhere(client: Client, home: Home, shared: Path, evil: list[Any]) -> None:
    need("user", home)
    name = f"links-{LINKS.index(evil[0])}"
    write_image(shared / name, [layer([*busybox(), *evil])], env=["PATH=/bin"])
    open_up(shared / name)
    job, said = ran(
        client,
        "user",
        ["sh", "-c", "cat /abs; ls /etc /; test -e /etc/shadow && echo hit"],
        {"image": f"oci:{shared}/{name}"},
    )
    assert "hit" not in said
    assert "root:" not in said
    assert not [path for path in (Path("/etc/pwned"), shared / "pwned", home.path / "pwned") if path.exists()]
    assert job.state in (JobState.SUCCEEDED, JobState.FAILED)


@needs_images
def test_an_image_with_too_many_files_is_not_unpacked(client: Client, home: Home, shared: Path) -> None:
    write_image(shared / "many", [layer([member(f"{number}") for number in range(12_001)])])
    open_up(shared / "many")
    job, _ = ran(client, "none", ["true"], {"image": f"oci:{shared}/many"})
    assert job.message == "environment.image: the image has more than 12000 files: environment.files"
    assert not list((home.path / "environment" / "none.server" / "builds").iterdir())


@needs_images
@pytest.mark.slow
def test_a_million_files_are_refused_before_one_of_them_is_written(client: Client, home: Home, shared: Path) -> None:
    write_image(shared / "million", [million()])
    open_up(shared / "million")
    job, _ = ran(client, "none", ["true"], {"image": f"oci:{shared}/million"})
    assert job.message == "environment.image: the image has more than 12000 files: environment.files"
    assert not list((home.path / "environment" / "none.server" / "builds").iterdir())


def million() -> bytes:
    """A layer with so many empty files: one header over and over, with other names and so other sums."""
    made, _ = member("0" * 7)
    head = bytearray(made.tobuf(tarfile.USTAR_FORMAT))
    total = int(head[148:154], 8)
    packed = io.BytesIO()
    with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=1, mtime=0) as archive:
        for first in range(0, 1_000_000, 10_000):
            chunk = bytearray()
            for number in range(first, first + 10_000):
                name = b"%07d" % number
                head[:7], head[148:154] = name, b"%06o" % (total + sum(name) - 7 * 48)
                chunk += head
            archive.write(chunk)
        archive.write(bytes(1024))
    return packed.getvalue()


DEBIAN = os.environ.get("SHOAL_TEST_DEBIAN", "")
"""The root directory of a Debian that debootstrap made before; else the test makes one, which takes minutes."""


@needs_images
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("debootstrap"), reason="needs debootstrap, and root")
def test_a_job_runs_in_a_debian(client: Client, home: Home, shared: Path, tmp_path: Path) -> None:
    root = Path(DEBIAN) if DEBIAN else tmp_path / "debian"
    if not DEBIAN:
        made = subprocess.run(
            ["debootstrap", "--variant=minbase", "stable", root, "http://deb.debian.org/debian"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if made.returncode:
            pytest.skip(f"debootstrap: {made.stdout[-300:]}")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=1) as archive:
        archive.add(root, ".")
    write_image(shared / "debian", [packed.getvalue()], env=["PATH=/usr/bin:/bin"])
    open_up(shared / "debian")
    words = [
        "bash", "-c",
        "dpkg-query -W -f '${Status}\n' bash; perl -e 'print $>, qq(\n)'; ls -l /bin/su | cut -c1-10; su -c id; true",
    ]  # fmt: skip
    need("user", home)
    job, said = ran(client, "user", words, {"image": f"oci:{shared}/debian"}, resources={"memory": "2GiB"})
    assert job.state is JobState.SUCCEEDED, (job.message, said)
    status, uid, mode, *su = said.splitlines()
    assert (status, mode) == ("install ok installed", "-rwsr-xr-x"), said
    assert int(uid) > 1 << 30
    assert not any("uid=0" in line for line in su), said


@needs_images
@pytest.mark.slow
def test_what_was_not_used_for_longest_makes_room(shared: Path, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    start_detached(["--home", str(home.path), "--port", "0", "--slots", "1", "--set", "environment.size=6MiB"], home)
    try:
        with Client(home=home.path, environ={}) as client:
            client.create_tenant("none", sandbox="none")
            images = [f"oci:{shared}/room-{number}" for number in range(3)]
            for number, image in enumerate(images):
                write_image(Path(image.removeprefix("oci:")), [layer(busybox()), layer([member(f"{number}", b"x")])])
                job, _ = ran(client, "none", ["/bin/true"], {"image": image})
                assert job.state is JobState.SUCCEEDED, job.message
                until(lambda: not any(one.used for one in client.environments.list().environments))
            kept = client.environments.list().environments
            assert [one.source for one in kept] == [images[2], images[1]]
            there = {path.name for path in (home.path / "environment" / "none.server" / "image").iterdir()}
            assert there == {one.key for one in kept}
            write_image(shared / "bomb", [layer([*busybox(), member("zeros", bytes(20 << 20))])])
            job, _ = ran(client, "none", ["/bin/true"], {"image": f"oci:{shared}/bomb"})
            assert f"the image unpacks to more than {6 << 20} bytes" in job.message
    finally:
        stop_server(home, timeout_s=20)


# --- foreign code, and a server that dies ---

BACKEND = """
import os, time, zipfile

def build_wheel(where, settings=None, metadata=None):
    with open({notes!r}, "a") as file:
        print(os.getuid(), file=file)
    while not os.path.exists({go!r}):
        time.sleep(0.05)
    info = "tiny-1.0.dist-info"
    with zipfile.ZipFile(os.path.join(where, "tiny-1.0-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("tiny.py", "WORD = 'built'")
        wheel.writestr(info + "/METADATA", "Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n")
        wheel.writestr(info + "/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(info + "/RECORD", "")
    return "tiny-1.0-py3-none-any.whl"
"""


def write_source(folder: Path, project: Path) -> tuple[Path, Path]:
    """A package that the project's lock file has built, by a script that says who it is in one file, and waits for the
    other."""
    folder.mkdir()
    folder.chmod(0o777)
    notes, go = folder / "notes", folder / "go"
    parts = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "be"\nbackend-path = ["."]\n',
        "be.py": BACKEND.format(notes=str(notes), go=str(go)),
        "PKG-INFO": "Metadata-Version: 2.2\nName: tiny\nVersion: 1.0\n",
    }
    with tarfile.open(folder / "tiny-1.0.tar.gz", "w:gz") as archive:
        for name, text in parts.items():
            archive.addfile(*sdist_member(f"tiny-1.0/{name}", text.encode()))
    (folder / "tiny-1.0.tar.gz").chmod(0o644)
    lock = LOCK.format(wheels=folder).replace('wheels = [{ path = "tiny-1.0-py3-none-any.whl" }]', SDIST)
    (project / "uv.lock").write_text(lock)
    return notes, go


@needs_uv
@pytest.mark.slow
@pytest.mark.parametrize("level", ["none", "user"])
def test_a_build_script_runs_once_with_the_tenants_rights_while_the_server_is_killed(
    home: Home, project: Path, shared: Path, level: str
) -> None:
    need(level, home)
    notes, go = write_source(shared / f"source-{level}", project)
    with Client(home=home.path, environ={}) as client:
        jobs = [submit(client, level, project) for _ in range(2)]
        until(notes.exists)
    kill_for_good(home)
    start(home, shared)
    with Client(home=home.path, environ={}) as client:
        go.touch()
        for job in jobs:
            done = ended(client, job)
            assert (done.state, done.attempt) == (JobState.SUCCEEDED, 1), done.message
            assert log(client, job).endswith("built\n")
    (uid,) = notes.read_text().split()
    assert (int(uid) == os.getuid()) is (level == "none")
    assert not [one for one in marked(home.path) if "environment" in one.gang]


SDIST = 'sdist = { path = "tiny-1.0.tar.gz" }'


def sdist_member(name: str, data: bytes) -> tuple[tarfile.TarInfo, io.BytesIO]:
    made = tarfile.TarInfo(name)
    made.size = len(data)
    return made, io.BytesIO(data)
