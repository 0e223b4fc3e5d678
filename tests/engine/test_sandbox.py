"""What a job in a sandbox needs works, also beside what a hostile one does. `tests/attacks` has the attacks."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tarfile
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from shoal.base.processes import start_ticks
from shoal.core import NotFound, Sandbox
from shoal.engine import Gang, LaunchFailed, Limits, Phase
from shoal.engine.sandbox import grant_tree
from tests.engine.local_kit import LocalKit, local_kit

LEVELS = [Sandbox.USER, Sandbox.BUBBLEWRAP]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")


@pytest_asyncio.fixture
async def kit(tmp_path: Path) -> AsyncIterator[LocalKit]:
    async with local_kit(tmp_path) as kit:
        yield kit


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest, kit: LocalKit) -> Sandbox:
    """Each level that this machine can give; what is missing is said."""
    found = next(one for one in kit.engine.capabilities() if one.name == request.param.capability)
    if not found.available:
        pytest.skip(found.detail)
    return Sandbox(request.param)


def gang(kit: LocalKit, name: str, source: str, level: Sandbox, *, tenant: str = "red", **more: object) -> Gang:
    """A job of a tenant as the control plane lays it out."""
    made = kit.python(name, source, tenant=tenant, sandbox=level, **more)
    checkpoints = kit.home / "checkpoints" / name
    env = {"SHOAL_CHECKPOINT_DIR": str(checkpoints), **made.env}
    return replace(made, run_dir=kit.home / "runs" / name / "1", checkpoints=checkpoints, env=env)


async def said(kit: LocalKit, wanted: Gang) -> str:
    """The job's log, once it has ended well."""
    await kit.engine.launch(wanted)
    status = await kit.settle(wanted.name)
    log = (await kit.engine.read(wanted.name, 0, "log", 0)).data.decode()
    assert status.ranks[0].exit is not None
    assert status.ranks[0].exit.code == 0, log
    return log


VICTIM = """
import os, signal, socket, time
os.umask(0)  # careless: the sandbox must hold whatever modes a job gives its files
open("secret.txt", "w").write("blue secret")
open(os.environ["SHOAL_CHECKPOINT_DIR"] + "/model", "w").write("blue model")
server = socket.socket(socket.AF_UNIX)
server.bind("door")
server.listen()
open(os.environ["SHOAL_RUN"] + "/in-effect", "w").close()
while True:
    time.sleep(60)
"""

# --- what a job needs ---

NEEDS = """
import os, sys, tempfile
assert os.getcwd() == os.environ["HOME"], os.getcwd()
run = os.environ["SHOAL_RUN"]
open("result", "w").write("mine")
open(os.environ["SHOAL_CHECKPOINT_DIR"] + "/model", "a").write("step;")
open(run + "/metrics.jsonl", "w").write('{"loss": 1}\\n')
draft = run + "/x.ring.draft"
open(draft, "w").close()
os.rename(draft, run + "/1.ring")
assert tempfile.gettempdir() == os.environ["TMPDIR"] != os.getcwd()
open("/dev/stderr", "a").write("told by name\\n")
print(os.getuid(), open(os.environ["SHOAL_CHECKPOINT_DIR"] + "/model").read(), open("given").read())
"""


async def test_what_a_job_needs_works_and_attempts_share_checkpoints(
    kit: LocalKit, level: Sandbox, tmp_path: Path
) -> None:
    given = tmp_path / "given"
    given.write_text("from the bundle")
    (kit.home / "bundles").mkdir(mode=0o700)
    archive = kit.home / "bundles" / "abc"
    with tarfile.open(archive, "w") as file:
        file.add(given, "given")
    archive.chmod(0o600)
    first = replace(gang(kit, "job", NEEDS, level), bundle=archive)
    log = await said(kit, first)
    uid = int(next(word for word in log.split() if word.isdigit()))
    assert "told by name" in log
    assert "from the bundle" in log
    assert uid >= 0x7000_0000
    assert (first.run_dir / "given").stat().st_uid == uid
    assert (await kit.engine.read("job", 0, "metrics", 0)).data == b'{"loss": 1}\n'
    assert (await kit.engine.read("job", 0, "file:result", 0)).data == b"mine"
    assert (kit.home / "checkpoints" / "job" / "model").read_text() == "step;"
    other = await said(kit, gang(kit, "other", "import os; print(os.getuid())", level, tenant="blue"))
    again = await said(kit, gang(kit, "again", "import os; print(os.getuid())", level))
    assert int(again) == uid != int(other)


async def test_checkpoints_of_another_level_are_handed_over(kit: LocalKit, level: Sandbox) -> None:
    save = "import os; open(os.environ['SHOAL_CHECKPOINT_DIR'] + '/model', 'a').write('step;')"
    (kit.home / "checkpoints" / "job").mkdir(parents=True)
    await said(kit, gang(kit, "job", save, Sandbox.NONE))
    await kit.engine.forget("job")
    await said(kit, gang(kit, "job", save, level))
    assert (kit.home / "checkpoints" / "job" / "model").read_text() == "step;step;"


COOPERATES = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))
run = os.environ["SHOAL_RUN"]
if COOPERATES:
    open(run + "/cooperative", "w").close()
open(run + "/in-effect", "w").close()
while not os.path.exists(run + "/notice"):
    time.sleep(0.01)
open(run + "/notice").read()
sys.exit(0)
"""


@pytest.mark.parametrize(("cooperates", "code"), [(True, 0), (False, 9)])
async def test_stop_reaches_the_job_also_after_the_server_was_replaced(
    kit: LocalKit, level: Sandbox, cooperates: bool, code: int
) -> None:
    await kit.engine.launch(gang(kit, "job", f"COOPERATES = {cooperates}\n{COOPERATES}", level))
    await kit.in_effect("job")
    await kit.restart()
    status = await kit.engine.status("job")
    assert status is not None
    assert status.phase is Phase.RUNNING
    await kit.engine.stop("job", grace_s=20)
    ended = await kit.settle("job")
    assert ended.ranks[0].exit is not None
    assert ended.ranks[0].exit.code == code
    assert ended.ranks[0].exit.stopped


LEAVES_A_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.environ.clear()
        open("daemon", "w").write(str(os.getpid()))
        time.sleep(100)
    os._exit(0)
while not os.path.exists("daemon") or not open("daemon").read():
    time.sleep(0.01)
"""


async def test_no_daemon_is_left_behind(kit: LocalKit, level: Sandbox) -> None:
    left = gang(kit, "job", LEAVES_A_DAEMON, level)
    await said(kit, left)
    uid = left.run_dir.stat().st_uid
    assert [entry for entry in Path("/proc").iterdir() if entry.name.isdigit() and _owner(entry) == uid] == []


async def test_a_killed_supervisor_takes_its_sandboxed_rank_along(kit: LocalKit, level: Sandbox) -> None:
    status = await kit.engine.launch(gang(kit, "job", VICTIM, level))
    await kit.in_effect("job")
    pid = status.ranks[0].pid
    assert pid is not None
    supervisor = kit.engine._registry.gangs["job"].ranks[0].supervisor
    assert supervisor is not None
    os.kill(supervisor.pid, signal.SIGKILL)
    ended = await kit.settle("job")
    assert ended.ranks[0].exit is not None
    assert ended.ranks[0].exit.lost
    assert start_ticks(pid) is None


MISCHIEF = """
import os
run = os.environ["SHOAL_RUN"]
for name in ("1.ring", "cooperative", "notice"):
    os.makedirs(run + "/" + name + "/inside")
os.symlink("/nowhere", run + "/dangling")
os.symlink(BYSTANDER, run + "/metrics.jsonl")
os.symlink(BYSTANDER, "folder")
os.symlink(BYSTANDER, os.environ["SHOAL_CHECKPOINT_DIR"] + "/latest")
"""


async def test_removing_what_a_job_left_removes_nothing_else(kit: LocalKit, level: Sandbox, tmp_path: Path) -> None:
    bystander = tmp_path / "bystander"
    bystander.mkdir()
    (bystander / "kept").write_text("kept")
    job = gang(kit, "job", f"BYSTANDER = {str(bystander)!r}\n{MISCHIEF}", level)
    await said(kit, job)
    await kit.engine.forget("job")
    with pytest.raises(NotFound):
        await kit.engine.read("job", 0, "file:folder/kept", 0)
    assert (await kit.engine.read("job", 0, "metrics", 0)).data == b""
    await kit.engine.erase("job")
    for path in (job.run_dir, kit.home / "checkpoints" / "job"):
        shutil.rmtree(path)
    assert (bystander / "kept").read_text() == "kept"
    assert not (kit.home / "gangs" / "job").exists()


async def test_a_bundle_is_unpacked_with_no_more_than_the_tenants_rights(
    kit: LocalKit, level: Sandbox, tmp_path: Path
) -> None:
    """A job's earlier phase may leave a link where the bundle's directory will go."""
    target = tmp_path / "target"
    target.mkdir()
    plant = gang(kit, "job", f"import os; os.symlink({str(target)!r}, 'pkg')", level)
    await said(kit, plant)
    inside = tmp_path / "evil"
    inside.write_text("evil")
    archive = tmp_path / "bundle.tar"
    with tarfile.open(archive, "w") as file:
        file.add(inside, "pkg/evil")
    with pytest.raises(LaunchFailed):
        await kit.engine.launch(replace(plant, name="next", bundle=archive))
    assert list(target.iterdir()) == []


REACHES = """
import socket
inside = socket.create_server(("127.0.0.1", 0))
socket.create_connection(inside.getsockname()).close()
try:
    socket.create_connection(("127.0.0.1", {port}), timeout=5).close()
    print("reached")
except OSError as error:
    print("refused")
print(*sorted(name for _, name in socket.if_nameindex()))
"""


async def test_a_job_without_network_reaches_only_itself(kit: LocalKit, level: Sandbox) -> None:
    if level is not Sandbox.BUBBLEWRAP:
        pytest.skip("only bubblewrap keeps a job from the network")
    with socket.create_server(("127.0.0.1", 0)) as server:
        source = REACHES.format(port=server.getsockname()[1])
        assert "reached" in await said(kit, gang(kit, "usual", source, level))
        assert await said(kit, gang(kit, "apart", source, level, network=False)) == "refused\nlo\n"


def test_a_directory_that_is_a_link_is_not_given_away(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o755)
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        grant_tree(tmp_path / "link", 0x7000_0000)
    assert target.stat().st_uid == 0


async def test_a_variable_gives_nobody_anothers_checkpoints(kit: LocalKit, level: Sandbox, tmp_path: Path) -> None:
    """Whatever it names: another job's, those of all, or by a link of an earlier job any directory."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    (private / "file").touch(mode=0o600)
    await said(
        kit, gang(kit, "first", "import os; os.symlink('/', os.environ['SHOAL_CHECKPOINT_DIR'] + '/link')", level)
    )
    home = kit.home / "checkpoints"
    before = {path: _owner(path) for path in (home, home / "first", private, private / "file")}
    for number, named in enumerate((home / "first", f"{home}/", f"{home}/first/link{private}")):
        source = "import os\ntry: print(os.listdir(os.environ['SHOAL_CHECKPOINT_DIR']))\nexcept OSError: print('no')"
        thief = gang(kit, f"thief{number}", source, level, tenant="blue")
        seen = await said(kit, replace(thief, env={**thief.env, "SHOAL_CHECKPOINT_DIR": str(named)}))
        assert "first" not in seen
        assert "file" not in seen
        assert "link" not in seen
    assert {path: _owner(path) for path in before} == before


@pytest.mark.parametrize("deep", [True, False])
async def test_files_too_deep_for_a_path_or_without_a_name_count(kit: LocalKit, level: Sandbox, deep: bool) -> None:
    source = """
import os, time
for _ in range(DEPTH):
    os.mkdir("abcd")
    os.chdir("abcd")
file = open("file", "wb")
if not DEPTH:
    os.unlink("file")
file.write(b"x" * (12 << 20))
file.flush()
time.sleep(60)
""".replace("DEPTH", "1500" if deep else "0")
    await kit.engine.launch(gang(kit, "hog", source, level, limits=Limits(disk_bytes=10 << 20)))
    end = (await kit.settle("hog")).ranks[0].exit
    assert end is not None
    assert end.limit == "disk"


def _owner(entry: Path) -> int | None:
    try:
        return entry.stat().st_uid
    except OSError:
        return None
