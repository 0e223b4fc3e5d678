"""Jobs of a hostile tenant against the server and another tenant, for real: whatever they try must fail, and what a job
needs must work."""

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

ATTACKS = {
    "read the server's files": """
for name in ("shoal.db", "secret.key", "admin.token", "sandbox-users.json", "engine.lock", "bundles"):
    attempt(lambda: os.stat(HOME + "/" + name))
attempt(lambda: check(set(os.listdir(HOME)) - {"runs", "gangs", "checkpoints"}))
""",
    "read another tenant's files": """
for path in VICTIM_PATHS:
    attempt(lambda: os.listdir(path))
    attempt(lambda: open(path + "/secret.txt").read())
    attempt(lambda: open(path + "/model").read())
    attempt(lambda: open(path + "/log").read())
attempt(lambda: check(set(os.listdir(HOME + "/runs")) - {"attack"}))
""",
    "go by way of another process": """
for path in VICTIM_PATHS:
    for pid in (VICTIM, SUPERVISOR, SERVER):
        attempt(lambda: os.listdir(f"/proc/{pid}/root{path}"))
        attempt(lambda: os.listdir(f"/proc/{pid}/cwd/"))
""",
    "read environments and memory": """
for pid in (VICTIM, SUPERVISOR, SERVER):
    for name in ("environ", "mem", "maps"):
        attempt(lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    attempt(lambda: os.listdir(f"/proc/{pid}/fd"))
""",
    "signal": """
for pid in (VICTIM, SUPERVISOR, SERVER):
    for number in (0, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP):
        attempt(lambda: os.kill(pid, number))
""",
    "trace": """
for pid in (VICTIM, SUPERVISOR, SERVER):
    attempt(lambda: check(libc.ptrace(16, pid, 0, 0) == 0))
    attempt(lambda: check(libc.ptrace(0x4206, pid, 0, 0) == 0))
""",
    "change limits and priorities": """
for pid in (VICTIM, SUPERVISOR, SERVER):
    attempt(lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    attempt(lambda: os.sched_setaffinity(pid, {0}))
    attempt(lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)))
attempt(lambda: os.nice(-5))
""",
    "connect to another tenant's socket": """
import socket
for path in VICTIM_PATHS:
    attempt(lambda: socket.socket(socket.AF_UNIX).connect(path + "/door"))
""",
    "bind the server's port": """
import socket
listener = socket.socket()
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
attempt(lambda: (listener.bind(("127.0.0.1", PORT)), listener.listen()))
""",
    "become root": """
attempt(lambda: os.setuid(0))
attempt(lambda: os.setgroups([0]))
attempt(lambda: os.setresgid(0, 0, 0))
attempt(lambda: check(os.geteuid() == 0 or os.getgroups()))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
attempt(lambda: check(status["NoNewPrivs"].strip() != "1"))
attempt(lambda: check(int(status["CapPrm"], 16) | int(status["CapEff"], 16) | int(status["CapAmb"], 16)))
""",
    "use a setuid program": """
shutil.copy("/usr/bin/id", "id")
attempt(lambda: check(os.chown("id", 0, 0) is None))
seen = subprocess.run([SETUID, "-u"], capture_output=True, text=True).stdout.strip()
attempt(lambda: check(seen == "0"))
""",
    "undo the mounts": """
attempt(lambda: check(libc.umount2(HOME.encode(), 2) == 0))
attempt(lambda: check(libc.mount(b"none", HOME.encode(), b"tmpfs", 0, None) == 0))
attempt(lambda: os.mkdir(HOME + "/mine"))
attempt(lambda: os.chroot("."))
""",
    "rewrite the server's records": """
run = os.environ["SHOAL_RUN"]
for name in ("record", "log"):
    attempt(lambda: os.unlink(run + "/" + name))
    attempt(lambda: os.rename(run + "/" + name, run + "/other"))
attempt(lambda: open(run + "/record", "r+b"))
attempt(lambda: open(run + "/record", "rb"))
attempt(lambda: os.rename(run, run + ".old"))
attempt(lambda: os.symlink("/etc", os.path.dirname(run) + "/rank-1"))
attempt(lambda: os.symlink("go", os.path.dirname(run) + "/decision.new"))
attempt(lambda: os.rename(os.getcwd(), os.getcwd() + ".old"))
""",
    "hard links to the server's files": """
for target in ("/etc/passwd", "/etc/shadow", HOME + "/secret.key", os.environ["SHOAL_RUN"] + "/record"):
    attempt(lambda: os.link(target, "link"))
""",
    "escape the control group": """
import glob
attempt(lambda: open("/sys/fs/cgroup/cgroup.procs", "r+").write("0"))
for path in glob.glob("/sys/fs/cgroup/*/cgroup.procs") + glob.glob("/sys/fs/cgroup/cgroup.procs"):
    attempt(lambda: open(path, "w").write("0"))
""",
    "hints to the engine": """
attempt(lambda: os.open(HOME + "/engine.fifo", os.O_WRONLY | os.O_NONBLOCK))
""",
    "read another process by system calls": """
import struct
buffer = ctypes.create_string_buffer(16)
for pid in (VICTIM, SUPERVISOR, SERVER):
    far = struct.pack("qq", 0, 16)
    near = struct.pack("qq", ctypes.addressof(buffer), 16)
    attempt(lambda: check(system(PROCESS_VM_READV, pid, near, 1, far, 1, 0) >= 0 or ctypes.get_errno() == errno.EFAULT))
    attempt(lambda: check(system(KCMP, os.getpid(), pid, 0, 0, 0) >= 0))
    attempt(lambda: check(system(PIDFD_GETFD, system(PIDFD_OPEN, pid, 0), 0, 0) >= 0))
    attempt(lambda: check(system(PIDFD_SEND_SIGNAL, system(PIDFD_OPEN, pid, 0), 0, 0, 0) == 0))
    for name in ("mem", "maps", "environ", "stack", "syscall", "auxv", "io"):
        attempt(lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    attempt(lambda: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"))
    attempt(lambda: check(system(IOPRIO_SET, 1, pid, 3 << 13) == 0))
    for kind in ("mnt", "pid", "net", "ipc", "uts", "user"):
        attempt(lambda: os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY))
""",
    "ask the kernel for rights over the machine": """
import socket
attempt(lambda: check(system(BPF, 0, struct.pack("IIII", 2, 4, 4, 1).ljust(128, bytes(1)), 128) >= 0))
attempt(lambda: check(system(PERF_EVENT_OPEN, struct.pack("IIQ", 1, 128, 0).ljust(128, bytes(1)), -1, 0, -1, 0) >= 0))
for family, kind, protocol in ((socket.AF_INET, socket.SOCK_RAW, 1), (socket.AF_PACKET, socket.SOCK_RAW, 3)):
    attempt(lambda: socket.socket(family, kind, protocol))
attempt(lambda: os.mknod("disk", 0o60666, os.makedev(254, 0)))
attempt(lambda: os.mknod("memory", 0o20666, os.makedev(1, 1)))
for name in ("/dev/mem", "/dev/kmsg", "/dev/port", "/proc/kcore", "/proc/sysrq-trigger"):
    attempt(lambda: os.open(name, os.O_WRONLY))
for name in ("/proc/sys/kernel/core_pattern", "/proc/sys/kernel/hostname", "/proc/sys/vm/drop_caches"):
    attempt(lambda: os.open(name, os.O_WRONLY))
attempt(lambda: os.setxattr("id", "security.capability", bytes(20)) if open("id", "w") else None)
attempt(lambda: check(libc.mount(b"/dev/vda", b".", b"ext4", 0, None) == 0))
attempt(lambda: check(system(FSOPEN, b"tmpfs", 0) >= 0))
attempt(lambda: check(system(OPEN_TREE, -100, b"/", 1) >= 0))
""",
    "gain rights in namespaces of its own": """
def within(flags, act):
    child = os.fork()
    if child == 0:
        try:
            check(libc.unshare(flags) == 0)
            uid = os.getuid()
            open("/proc/self/setgroups", "w").write("deny")
            open("/proc/self/uid_map", "w").write(f"0 {UID} 1")
            act()
        except (OSError, ValueError):
            os._exit(0)
        os._exit(1)
    check(os.waitpid(child, 0)[1] != 0)
UID = os.getuid()
USERS, MOUNTS, PROCESSES, NETWORK = 1 << 28, 1 << 17, 1 << 29, 1 << 30
def read_key():
    open(HOME + "/secret.key").read()
def uncover():
    libc.umount2(HOME.encode(), 2)
    read_key()
def bind_over():
    os.mkdir("seen")
    libc.mount(HOME.encode(), b"seen", None, 4096 | 16384, None)
    open("seen/secret.key").read()
def overlay():
    for name in ("upper", "work", "merged"):
        os.makedirs(name, exist_ok=True)
    libc.mount(b"overlay", b"merged", b"overlay", 0, f"lowerdir={HOME},upperdir=upper,workdir=work".encode())
    open("merged/secret.key").read()
def fresh_proc():
    if os.fork() == 0:
        os.mkdir("proc")
        libc.mount(b"proc", b"proc", b"proc", 0, None)
        os._exit(0 if os.path.exists(f"proc/{SERVER}/root") else 1)
    check(os.wait()[1] == 0)
def join():
    check(libc.setns(os.open(f"/proc/{SERVER}/ns/mnt", os.O_RDONLY), 0) == 0)
for act in (read_key, uncover, bind_over, overlay, join):
    attempt(lambda: within(USERS | MOUNTS, act))
attempt(lambda: within(USERS | MOUNTS | PROCESSES, fresh_proc))
attempt(lambda: within(MOUNTS, uncover))
""",
    "connect to the server's sockets": """
import glob, socket
for path in ("engine.sock", "guard.sock", "gateway.sock", *glob.glob(HOME + "/**/*.sock", recursive=True)):
    attempt(lambda: socket.socket(socket.AF_UNIX).connect(os.path.join(HOME, path)))
""",
}

HARMLESS = ("read the server's files", "gain rights in namespaces of its own")
"""As root as well: these change nothing."""

_HEAD = """
import ctypes, errno, os, resource, shutil, signal, struct, subprocess, sys
PROCESS_VM_READV, KCMP, BPF, PERF_EVENT_OPEN, IOPRIO_SET = (
    (270, 272, 280, 241, 30) if os.uname().machine == "aarch64" else (310, 312, 321, 298, 251)
)
PIDFD_SEND_SIGNAL, OPEN_TREE, FSOPEN, PIDFD_OPEN, PIDFD_GETFD = 424, 428, 430, 434, 438
libc = ctypes.CDLL(None, use_errno=True)
tried = 0
def system(*given):
    ctypes.set_errno(0)
    return libc.syscall(*given)
def check(reached):
    if not reached:
        raise PermissionError
def attempt(act):
    global tried
    tried += 1
    try:
        act()
    except (OSError, ValueError):
        return
    import inspect
    print("REACHED", inspect.currentframe().f_back.f_lineno, flush=True)
"""


@pytest.mark.parametrize("attack", ATTACKS)
async def test_attack_fails(kit: LocalKit, level: Sandbox, attack: str, tmp_path: Path) -> None:
    for name in ("shoal.db", "secret.key", "admin.token"):
        (kit.home / name).write_text("the server's")  # readable to all: the way to it must be closed
    setuid = Path("/usr/local/bin") / f"shoal-test-id-{os.getpid()}"
    setuid.write_bytes(Path("/usr/bin/id").read_bytes())
    try:
        setuid.chmod(0o4755)
        listener = socket.create_server(("127.0.0.1", 0))
        victim = await kit.engine.launch(gang(kit, "victim", VICTIM, level, tenant="blue"))
        await kit.in_effect("victim")
        pid = victim.ranks[0].pid
        assert pid is not None
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        known = {
            "HOME": str(kit.home), "PORT": listener.getsockname()[1], "SETUID": str(setuid),
            "VICTIM": pid, "SUPERVISOR": parent, "SERVER": os.getpid(),
            "VICTIM_PATHS": [
                str(kit.home / "runs/victim/1"), str(kit.rank_dir("victim")), str(kit.home / "checkpoints/victim"),
            ],
        }  # fmt: skip
        facts = "".join(f"{name} = {value!r}\n" for name, value in known.items())
        log = await said(kit, gang(kit, "attack", f"{_HEAD}{facts}{ATTACKS[attack]}print('tried', tried)", level))
        assert "REACHED" not in log, log
        assert "tried" in log
        assert "tried 0" not in log
        listener.close()
        status = await kit.engine.status("victim")
        assert status is not None
        assert status.phase is Phase.RUNNING
    finally:
        setuid.unlink()


@pytest.mark.parametrize("attack", HARMLESS)
async def test_attacks_reach_their_aims_without_a_sandbox(kit: LocalKit, attack: str) -> None:
    """The suite would notice a sandbox that does nothing."""
    (kit.home / "secret.key").write_text("the server's")
    facts = f"HOME = {str(kit.home)!r}\nSERVER = {os.getpid()}\n"
    log = await said(kit, gang(kit, "attack", _HEAD + facts + ATTACKS[attack], Sandbox.NONE))
    assert log.count("REACHED") >= 3


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
