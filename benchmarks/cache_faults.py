"""A fair cache under faults: random `kill -9`, a full disk and changing sources, while three tenants read.

    python benchmarks/cache_faults.py [--json] [--minutes 10] [--seed 0]

The daemon is a process of its own on a small tmpfs (where this user may mount one). It is killed every few seconds, at
any point of a fill or an eviction; a reader is killed with its file open; the disk is filled up by another hand;
objects change, vanish and come back, at a web server that sometimes answers 500 or sends too little. Three
tenants read at random, small objects and large ones of several chunks, one of them private to one tenant. As root, jobs
of two more tenants, users of their own, read a set of files that change by the links of their views, with a FUSE mount
for the rest and without; some are killed, and every view is released.

Every answer must be all of one version that the object had, or an error. What is counted at the end: wrong bytes, bytes
that a tenant had no right to, files, views and mounts that nothing accounts for, and moments at which the limit was
passed.
"""

from __future__ import annotations

import argparse
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import suppress
from pathlib import Path

from common import Row, parser, report

from shoal.cache.daemon import Connection, admin_token, token_of
from shoal.cache.daemon.protocol import view_of
from shoal.cache.door import node
from shoal.cache.door.filesystem import ShoalFileSystem
from shoal.cache.store import Limits, Store
from shoal.core import ShoalError

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.cache.kit import Web

LIMIT = 6 << 20
DISK = 10 << 20
NAMES = [f"/set{at % 3}/{at}" for at in range(24)]
PRIVATE = "/private/ann"
TENANTS = ("ann", "bob", "cid")
SECRET = b"0123456789abcdef"
JOBS = {"dan": 64001, "eve": 64002}
"""Tenants of jobs, and their users; the first has a private file."""
FILES = [f"file/{at}" for at in range(10)]
OWN = "own/1"


def version_of(name: str, data: bytes) -> int:
    """Which version of the object this is all of; 0 where it is of none."""
    head = data[: data.find(b";")]
    found = head.rpartition(b"#")[2]
    version = int(found) if found.isdigit() else 0
    return version if version and data == content(name, version) else 0


def content(name: str, version: int) -> bytes:
    """Says on every byte which version it is of. Every sixth object has several chunks of a MiB."""
    number = int(name.rsplit("/", 1)[1]) if name != PRIVATE else 1
    size = 2_500_000 if number % 6 == 0 else 1000 * (1 + number * 37 % 90)
    piece = f"{name}#{version};".encode()
    return (piece * (size // len(piece) + 1))[:size]


class Trial:
    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.source = root.with_name(f"{root.name}-source")
        self.live: dict[str, str] = {}
        """The attempt of each tenant that runs now."""
        self.chance = random.Random(seed)
        self.web = Web()
        self.versions = dict.fromkeys([*NAMES, PRIVATE], 1)
        self.counts = dict.fromkeys(
            ("reads", "errors", "wrong", "unauthorised", "refused", "over_limit", "kills", "changes", "fillings",
             "jobs", "shown", "mounted", "view_reads", "view_errors"), 0
        )  # fmt: skip
        self.worst = 0
        self.stop = threading.Event()
        self.mutex = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        for name in self.versions:
            self.web.put(name, content(name, 1))
        self.web.secret[PRIVATE] = "Bearer ann"
        for name in (*FILES, OWN):
            self.versions[name] = 0
            self.write(name)
        os.chown(self.source / OWN, JOBS["dan"], -1)
        (self.source / OWN).chmod(0o600)
        (root / "secret").write_bytes(SECRET)

    def write(self, name: str) -> None:
        """The next version of a file, in one step."""
        self.versions[name] += 1
        path, beside = self.source / name, self.source / "new"
        path.parent.mkdir(parents=True, exist_ok=True)
        for folder in (self.source, path.parent):
            folder.chmod(0o755)
        beside.write_bytes(content(name, self.versions[name]))
        beside.chmod(0o644)
        beside.replace(path)

    def count(self, what: str) -> None:
        with self.mutex:
            self.counts[what] += 1

    def serve(self) -> None:
        command = [
            sys.executable, "-m", "shoal.cli", "cache", "serve", "--root", str(self.root / "c"), "--size", f"{LIMIT}B",
            "--keep-free", "0B", "--round", "1", "--recheck", "3", "--chunk", "1MiB", "--wait", "1",
            "--secret-file", str(self.root / "secret"), "--mount", self.chance.choice(("always", "never")),
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    # --- what goes on at the same time ---

    def read(self, tenant: str, seed: int) -> None:
        chance = random.Random(seed)
        own = {"headers": {"authorization": f"Bearer {tenant}"}}
        fs = ShoalFileSystem(
            target_protocol="http", target_options=own, cache_root=str(self.root / "c"), tenant=tenant,
            token=token_of(SECRET, tenant), skip_instance_cache=True,
        )  # fmt: skip
        while not self.stop.is_set():
            name = PRIVATE if chance.random() < 0.1 else chance.choice(NAMES)
            try:
                data = fs.cat_file(self.web.url + name)
            except PermissionError:
                self.count("refused")
                continue
            except OSError:
                self.count("errors")
                continue
            self.count("reads")
            if name == PRIVATE and tenant != "ann":
                self.count("unauthorised")
            now = self.versions[name]
            if not 0 < version_of(name, data) <= now:
                self.count("wrong")

    def kill(self) -> None:
        while not self.stop.is_set():
            assert self.process is not None
            while self.process.poll() is None and self.admin() is None and not self.stop.wait(0.1):
                pass  # on a busy machine it takes long to start
            if self.stop.wait(self.chance.uniform(0.0, 8.0)):
                return
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.count("kills")
            self.serve()

    def kill_readers(self) -> None:
        """A process that opens cached files and is killed with them open."""
        script = (
            "import glob, sys, time\n"
            "held = []\n"
            "while True:\n"
            "    for path in glob.glob(sys.argv[1] + '/links/bob/*')[:5]:\n"
            "        try: held.append(open(path, 'rb'))\n"
            "        except OSError: pass\n"
            "    time.sleep(0.2)\n"
        )
        while not self.stop.is_set():
            reader = subprocess.Popen([sys.executable, "-c", script, self.root / "c"])
            self.stop.wait(2.0)
            reader.kill()
            reader.wait()

    def run_jobs(self, tenant: str, seed: int) -> None:
        """One attempt after the other, each with a view; a third of them is killed."""
        chance, number = random.Random(seed), 0
        while not self.stop.is_set():
            number += 1
            self.live[tenant] = view = f"{tenant}-{number}.1"
            words = [sys.executable, __file__, "--job", str(self.root / "c"), str(self.source), tenant, view]
            job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            self.count("jobs")
            if chance.random() < 0.3:
                self.stop.wait(chance.uniform(1.0, 6.0))
                job.kill()
            told = job.communicate()[0]
            if job.returncode == 0:
                found = json.loads(told)
                newer = sum(version > self.versions[name] for name, version in found.pop("newest").items())
                with self.mutex:
                    self.counts["wrong"] += newer
                    for what, count in found.items():
                        self.counts[what] += count
            del self.live[tenant]
            self.release()

    def admin(self) -> Connection | None:
        try:
            return Connection(self.root / "c", "", admin_token(self.root / "c"))
        except (ShoalError, OSError):
            return None

    def release(self) -> bool:
        """As a server does in each round, of the views whose attempts are over. Whether the daemon was there."""
        admin = self.admin()
        if admin is None:
            return False
        try:
            live = set(self.live.values())
            for one in admin.ask("status")["views"]:
                if one["view"] not in live:
                    admin.ask("release", tenant=one["tenant"], view=one["view"])
        except (ShoalError, OSError):
            return False
        return True

    def change(self) -> None:
        while not self.stop.wait(0.2):
            if self.chance.random() < 0.3:
                self.write(self.chance.choice(FILES))
            name = self.chance.choice(NAMES)
            what = self.chance.random()
            if what < 0.5:
                self.versions[name] += 1  # before it can be read
                self.web.put(name, content(name, self.versions[name]))
                self.count("changes")
            elif what < 0.6:
                self.web.objects.pop(name, None)
            elif what < 0.8:
                self.web.put(name, content(name, self.versions[name]))
            else:
                self.web.behaviour = {self.chance.choice(NAMES): self.chance.choice(["500", "short", "503"])}

    def fill_disk(self) -> None:
        """Another hand takes all of the disk for a second."""
        while not self.stop.wait(self.chance.uniform(5.0, 10.0)):
            path = self.root / "other"
            try:
                with path.open("wb") as file:
                    while True:
                        file.write(bytes(1 << 16))
                        file.flush()
            except OSError:
                self.count("fillings")
            self.stop.wait(1.0)
            path.unlink(missing_ok=True)

    def watch(self) -> None:
        while not self.stop.wait(0.02):
            blocks = self.blocks()
            if sum(blocks.values()) > LIMIT:  # a file that went during the look was perhaps gone before others came
                blocks = {inode: count for inode, count in self.blocks().items() if inode in blocks}
            taken = sum(blocks.values())
            self.worst = max(self.worst, taken)
            if taken > LIMIT:
                self.count("over_limit")

    def blocks(self) -> dict[int, int]:
        """The bytes that each file takes, by inode: one may move to the next folder meanwhile."""
        found: dict[int, int] = {}
        views = glob.glob(str(self.root / "c/views/*/*/*/files/file"))  # noqa: PTH207 some vanish meanwhile
        for folder in ("chunks", "fills", "dying", *views):
            with suppress(FileNotFoundError), os.scandir(self.root / "c" / folder) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        told = entry.stat(follow_symlinks=False)
                        found[told.st_ino] = told.st_blocks * 512
        return found

    # --- the whole ---

    def run(self, minutes: float, *, small_disk: bool) -> dict[str, list[str]]:
        """What nothing accounts for at the end, by kind."""
        self.serve()
        jobs = [threading.Thread(target=self.read, args=(tenant, at)) for at, tenant in enumerate(TENANTS)]
        jobs += [threading.Thread(target=one) for one in (self.kill, self.kill_readers, self.change, self.watch)]
        if os.geteuid() == 0:
            jobs += [threading.Thread(target=self.run_jobs, args=(one, uid)) for one, uid in JOBS.items()]
        if small_disk:
            jobs.append(threading.Thread(target=self.fill_disk))
        for job in jobs:
            job.start()
        time.sleep(minutes * 60)
        self.stop.set()
        for job in jobs:
            job.join()
        assert self.process is not None
        ends, rounds = time.monotonic() + 60, 0
        while rounds < 5 and time.monotonic() < ends:  # a killed job's view may still be on its way
            rounds += self.release()
            time.sleep(1.0)
            if self.process.poll() is not None:  # its disk was full as it started: a server tries again
                self.serve()
        self.process.terminate()
        self.process.wait()
        self.web.close()
        return self.leaked()

    def leaked(self) -> dict[str, list[str]]:
        """What nothing accounts for at the end, by kind."""
        cache = self.root / "c"
        store = Store(cache, Limits(LIMIT), chunk_bytes=1 << 20)
        known, damaged = set(store.contents()), list(store.check_contents())
        kept = list((cache / "chunks").iterdir())
        left = [path for folder in ("fills", "dying") for path in (cache / folder).iterdir()]
        inodes = {path.stat().st_ino for path in kept}
        links = [
            path for path in (cache / "links").glob("*/**/*")
            if path.is_file() and path.name != "meta" and path.stat().st_ino not in inodes
        ]  # fmt: skip
        store.close()
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return {
            "chunks": sorted({path.name for path in kept} ^ (known - set(damaged))),
            "damaged chunks": [str(one) for one in damaged],
            "fills": [str(path.relative_to(cache)) for path in left],
            "links": [str(path.relative_to(cache)) for path in links],
            "views": [str(path.relative_to(cache)) for path in (cache / "views").glob("*/*/*")],
            "mounts": [where for where in mounts if where.startswith(f"{cache}/views")],
        }


def job(root: Path, source: Path, tenant: str, view: str) -> None:
    """A job as its tenant's user: what its view shows is read for some seconds, and counted."""
    os.setgroups([])
    os.setresgid(*[JOBS[tenant]] * 3)
    os.setresuid(*[JOBS[tenant]] * 3)
    counts = dict.fromkeys(("shown", "mounted", "view_reads", "view_errors", "wrong", "unauthorised"), 0)
    newest: dict[str, int] = {}
    chance = random.Random(view)
    ends = time.monotonic() + 8
    told = None
    while told is None and time.monotonic() < ends:
        try:
            reader = Connection(root, tenant, token_of(SECRET, tenant))
            told = reader.ask("show", url=f"file://{source}", view=view_of(SECRET, tenant, view))
        except (ShoalError, OSError):
            time.sleep(0.2)
    if told is not None and told["files"] is not None:
        counts["shown"], counts["mounted"] = 1, int(told["mounted"])
        ends = time.monotonic() + chance.uniform(2.0, 6.0)
        while time.monotonic() < ends:
            name = chance.choice([*FILES, OWN])
            try:
                data = Path(told["files"], name).read_bytes()
            except OSError:  # without a mount, of what is not there
                counts["view_errors"] += 1
                time.sleep(0.01)
                continue
            counts["view_reads"] += 1
            version = version_of(name, data)
            newest[name] = max(version, newest.get(name, 0))
            counts["wrong"] += not version
            counts["unauthorised"] += name == OWN and tenant != "dan"
    print(json.dumps({**counts, "newest": newest}))


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--job", nargs=4, help=argparse.SUPPRESS)
    options = arguments.parse_args()
    if options.job:
        job(Path(options.job[0]), Path(options.job[1]), *options.job[2:])
        return 0
    warnings.simplefilter("ignore", RuntimeWarning)  # the daemon is away on purpose
    node._AGAIN_S = 0.3
    root = Path(tempfile.mkdtemp(prefix="shoal-faults-", dir="/dev/shm"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", root], capture_output=True, check=False
    ).returncode == 0  # fmt: skip
    root.chmod(0o755)
    trial = Trial(root, options.seed)
    try:
        leaked = trial.run(options.minutes, small_disk=mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", root], check=False)
        for path in (root, trial.source):
            shutil.rmtree(path, ignore_errors=True)
    for kind, paths in leaked.items():
        for one in paths[:20]:
            print(f"{kind}: {one}", file=sys.stderr)
    found = trial.counts
    rows = [Row("minutes", options.minutes, "min")]
    rows += [Row(name, found[name], "") for name in ("reads", "errors", "refused", "kills", "changes", "fillings")]
    names = ("jobs", "shown", "mounted", "view_reads", "view_errors")
    rows += [Row(name.replace("_", " "), found[name], "") for name in names]
    rows += [
        Row("wrong answers", found["wrong"], "", "0", found["wrong"] == 0),
        Row("unauthorised answers", found["unauthorised"], "", "0", found["unauthorised"] == 0),
        *(Row(f"{kind} that nothing accounts for", len(found), "", "0", not found) for kind, found in leaked.items()),
        Row("looks that found the limit passed", found["over_limit"], "", "0", found["over_limit"] == 0),
        Row("most bytes seen, over the limit", trial.worst / LIMIT, "x"),
    ]
    return report("A fair cache under faults", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
