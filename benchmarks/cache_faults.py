"""A fair cache under faults: random `kill -9`, a full disk and changing sources, while three tenants read.

    python benchmarks/cache_faults.py [--json] [--minutes 10] [--seed 0]

The daemon is a process of its own on a small tmpfs (where this user may mount one). It is killed every few seconds, at
any point of a fill or an eviction; a reader is killed with its file open; the disk is filled up by another hand;
objects change, vanish and come back, at a web server that sometimes answers 500 or sends too little. Three
tenants read at random, small objects and large ones of several chunks, one of them private to one tenant.

Every answer must be all of one version that the object had, or an error. What is counted at the end: wrong bytes, bytes
that a tenant had no right to, files that nothing accounts for, and moments at which the limit was passed.
"""

from __future__ import annotations

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
from pathlib import Path

from common import Row, parser, report

from shoal.cache.door import node
from shoal.cache.door.filesystem import ShoalFileSystem
from shoal.cache.store import Limits, Store

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.cache.kit import Web

LIMIT = 6 << 20
DISK = 10 << 20
NAMES = [f"/set{at % 3}/{at}" for at in range(24)]
PRIVATE = "/private/ann"
TENANTS = ("ann", "bob", "cid")


def content(name: str, version: int) -> bytes:
    """Says on every byte which version it is of. Every sixth object has several chunks of a MiB."""
    number = int(name.rsplit("/", 1)[1]) if name != PRIVATE else 1
    size = 2_500_000 if number % 6 == 0 else 1000 * (1 + number * 37 % 90)
    piece = f"{name}#{version};".encode()
    return (piece * (size // len(piece) + 1))[:size]


class Trial:
    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.chance = random.Random(seed)
        self.web = Web()
        self.versions = dict.fromkeys([*NAMES, PRIVATE], 1)
        self.counts = dict.fromkeys(
            ("reads", "errors", "wrong", "unauthorised", "refused", "over_limit", "kills", "changes", "fillings"), 0
        )
        self.worst = 0
        self.stop = threading.Event()
        self.mutex = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        for name in self.versions:
            self.web.put(name, content(name, 1))
        self.web.secret[PRIVATE] = "Bearer ann"

    def count(self, what: str) -> None:
        with self.mutex:
            self.counts[what] += 1

    def serve(self) -> None:
        command = [
            sys.executable, "-m", "shoal.cli", "cache", "serve", "--root", str(self.root / "c"), "--size", f"{LIMIT}B",
            "--keep-free", "0B", "--round", "1", "--recheck", "3", "--chunk", "1MiB",
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    # --- what goes on at the same time ---

    def read(self, tenant: str, seed: int) -> None:
        chance = random.Random(seed)
        own = {"headers": {"authorization": f"Bearer {tenant}"}}
        fs = ShoalFileSystem(
            target_protocol="http", target_options=own, cache_root=str(self.root / "c"), tenant=tenant,
            skip_instance_cache=True,
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
            head = data[: data.find(b";")]
            version = int(head.rpartition(b"#")[2] or 0) if b"#" in head else 0
            if not 0 < version <= now or data != content(name, version):
                self.count("wrong")

    def kill(self) -> None:
        while not self.stop.wait(self.chance.uniform(3.0, 10.0)):
            assert self.process is not None
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

    def change(self) -> None:
        while not self.stop.wait(0.2):
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
            blocks: dict[int, int] = {}  # by inode: a file may move to the next folder meanwhile
            for folder in ("chunks", "fills", "dying"):
                try:
                    with os.scandir(self.root / "c" / folder) as entries:
                        for entry in entries:
                            try:
                                found = entry.stat()
                                blocks[found.st_ino] = found.st_blocks * 512
                            except FileNotFoundError:
                                continue
                except FileNotFoundError:
                    continue
            taken = sum(blocks.values())
            self.worst = max(self.worst, taken)
            if taken > LIMIT:
                self.count("over_limit")

    # --- the whole ---

    def run(self, minutes: float, *, small_disk: bool) -> int:
        """Files that nothing accounts for, at the end."""
        self.serve()
        jobs = [threading.Thread(target=self.read, args=(tenant, at)) for at, tenant in enumerate(TENANTS)]
        jobs += [threading.Thread(target=one) for one in (self.kill, self.kill_readers, self.change, self.watch)]
        if small_disk:
            jobs.append(threading.Thread(target=self.fill_disk))
        for job in jobs:
            job.start()
        time.sleep(minutes * 60)
        self.stop.set()
        for job in jobs:
            job.join()
        assert self.process is not None
        self.process.terminate()
        self.process.wait()
        self.web.close()
        return self.leaked()

    def leaked(self) -> int:
        store = Store(self.root / "c", Limits(LIMIT), chunk_bytes=1 << 20)
        known = set(store.contents())
        damaged = list(store.check_contents())
        names = {path.name for path in (self.root / "c" / "chunks").iterdir()}
        left = [path for folder in ("fills", "dying") for path in (self.root / "c" / folder).iterdir()]
        inodes = {path.stat().st_ino for path in (self.root / "c" / "chunks").iterdir()}
        stray = [
            path for path in (self.root / "c" / "links").glob("*/**/*")
            if path.is_file() and path.name != "meta" and path.stat().st_ino not in inodes
        ]  # fmt: skip
        store.close()
        return len(names ^ (known - set(damaged))) + len(left) + len(stray) + len(damaged)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--minutes", type=float, default=10.0)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    warnings.simplefilter("ignore", RuntimeWarning)  # the daemon is away on purpose
    node._AGAIN_S = 0.3
    root = Path(tempfile.mkdtemp(prefix="shoal-faults-", dir="/dev/shm"))
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", root], capture_output=True, check=False
    ).returncode == 0  # fmt: skip
    trial = Trial(root, options.seed)
    try:
        leaked = trial.run(options.minutes, small_disk=mounted)
    finally:
        if mounted:
            subprocess.run(["umount", "-l", root], check=False)
        shutil.rmtree(root, ignore_errors=True)
    found = trial.counts
    rows = [Row("minutes", options.minutes, "min")]
    rows += [Row(name, found[name], "") for name in ("reads", "errors", "refused", "kills", "changes", "fillings")]
    rows += [
        Row("wrong answers", found["wrong"], "", "0", found["wrong"] == 0),
        Row("unauthorised answers", found["unauthorised"], "", "0", found["unauthorised"] == 0),
        Row("files that nothing accounts for", leaked, "", "0", leaked == 0),
        Row("looks that found the limit passed", found["over_limit"], "", "0", found["over_limit"] == 0),
        Row("most bytes seen, over the limit", trial.worst / LIMIT, "x"),
    ]
    return report("A fair cache under faults", rows, as_json=options.json)


if __name__ == "__main__":
    sys.exit(main())
