"""A real server with a victim, tenants that attack it, and what must be as before when they have."""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from shoal.base.home import Home, read_server, stop_server
from shoal.base.processes import kill_until_none
from shoal.control.server import start_detached
from shoal.core import Sandbox
from shoal.engine.local.processes import marked
from shoal.engine.sandbox import capabilities
from shoal.sdk import Client
from tests.session.talk import eventually

from .within import Facts

HERE = Path(__file__).parent
LEVELS = (Sandbox.USER, Sandbox.BUBBLEWRAP)
SMALL = {"cpus": 0.1, "memory": "256MiB"}


@dataclass
class World:
    home: Home
    outside: Path
    admin: Client
    marks: str
    known: dict[int, dict[str, Any]] = field(default_factory=dict)

    # --- jobs ---

    def start(self, client: Client, program: str, *words: str, tenant: str | None = None, **fields: Any) -> str:
        """A job of one of this folder's programs."""
        asked = {
            "name": Path(program).stem, "command": ["python3", program, *words], "resources": SMALL,
            "files": [program], **fields,
        }  # fmt: skip
        return str(client.submit(asked, tenant=tenant, base=HERE).id)

    def said(self, client: Client, job: str) -> list[dict[str, Any]]:
        """The lines that are told as JSON."""
        lines = b"".join(piece.data for piece in client.logs(job)).decode().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def victim(self, client: Client, tenant: str, number: int, folder: Path) -> Facts:
        """Start one, and tell what attackers know of it. `folder` is the home that its runs lie in."""
        job = self.start(client, "victim.py", f"{self.marks}-{number}", str(self._key(number)), tenant=tenant)
        eventually(lambda: client.job(job).state.terminal or b"}" in client.log_piece(job).data)
        (told,) = (json.loads(line) for line in client.log_piece(job).data.splitlines() if line.startswith(b"{"))
        here = read_server(self.home)
        assert here is not None
        pid = outside(told["pid"], told["uid"])
        self.known[pid] = told
        gangs = [path for path in (self.home.path / "gangs").iterdir() if path.name.startswith(job)]
        run = (Path("/proc") / str(pid) / "cwd").readlink()
        return Facts(
            str(self.home.path), int(here.url.rpartition(":")[2]), str(self.outside / "door" / "shoal.sock"), pid,
            parent(pid), here.pid, told["uid"],
            [str(run), *(str(path / "rank-0") for path in gangs), str(folder / "checkpoints" / job)],
            told["port"], f"{self.marks}-{number}", self._key(number), str(self.setuid),
            str(self.outside / "of-root" / "canary"),
        )  # fmt: skip

    def _key(self, number: int) -> int:
        return 0x5A0A0000 + os.getpid() % 0x1000 * 16 + 2 * number

    @property
    def setuid(self) -> Path:
        return Path("/usr/local/bin") / f"shoal-test-id-{os.getpid()}"

    # --- what must not change ---

    def state(self, facts: Sequence[Facts]) -> dict[str, object]:
        """Of files that attackers have no part in, of the victims' processes, and of the server's."""
        seen: dict[str, object] = {}
        fixed = [self.home.path / name for name in ("admin.token", "secret.key")]
        fixed += [Path("/etc/passwd"), Path("/etc/shadow"), self.setuid, self.outside / "of-root" / "canary"]
        for one in facts:
            fixed += [Path(path) / name for path in one.victim_paths for name in ("secret.txt", "model")]
        for path in fixed:
            if path.is_file():
                found = path.stat()
                seen[str(path)] = (found.st_mode, found.st_uid, hashlib.sha256(path.read_bytes()).hexdigest())
        folders = [self.home.path, self.outside, self.outside / "door"]
        for folder in (*folders, *(Path(path) for one in facts for path in one.victim_paths)):
            found = folder.lstat()
            seen[str(folder)] = (found.st_mode, found.st_uid, found.st_gid)
        for name in ("", "runs", "gangs", "checkpoints", "planes", "bundles", "serve", "serve/replicas"):
            there = self.home.path / name
            names = [each.name for each in there.iterdir()] if there.is_dir() else []
            seen[f"made in {name}"] = [each for each in names if each in {"mine", "link"} or each.endswith(".old")]
        for name in ("runs", "gangs", "checkpoints"):
            found = (self.home.path / name).stat()
            seen[name] = (found.st_mode, found.st_uid)
        seen["preload"] = Path("/etc/ld.so.preload").exists()
        for one in facts:
            for pid in one.others:
                status = Path(f"/proc/{pid}/status").read_text()
                seen[f"process {pid}"] = (
                    os.getpriority(os.PRIO_PROCESS, pid), os.sched_getaffinity(pid), os.sched_getscheduler(pid),
                    Path(f"/proc/{pid}/oom_score_adj").read_text(), Path(f"/proc/{pid}/limits").read_text(),
                    "T (stopped)" in status, "TracerPid:\t0" in status,
                )  # fmt: skip
        return seen


def member(place: World, tenant: str) -> Client:
    token = place.admin.create_token(tenant).token
    return Client(place.admin.locate().url, token, environ={})


def outside(pid: int, uid: int) -> int:
    """The machine's number of a user's process that has this one in its own namespace."""
    for found in processes_of(uid):
        with contextlib.suppress(OSError):
            status = Path(f"/proc/{found}/status").read_text()
            if status.partition("NSpid:")[2].partition("\n")[0].split()[-1:] == [str(pid)]:
                return found
    return pid


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def processes_of(uid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and entry.stat().st_uid == uid:
                found.append(int(entry.name))
    return found


def missing(home: Path, level: Sandbox) -> str:
    """Why this machine cannot give the level."""
    return next((one.detail for one in capabilities(home) if one.name == level.capability and not one.available), "")


@contextlib.contextmanager
def world(folder: Path) -> Iterator[World]:
    outside = Path(tempfile.mkdtemp(prefix="shoal-attacks-", dir="/srv" if Path("/srv").is_dir() else "/opt"))
    outside.chmod(0o755)
    (outside / "door").mkdir(mode=0o755)
    (outside / "of-root").mkdir(mode=0o700)
    (outside / "of-root" / "canary").write_text("of root")
    home = Home(folder / "home")
    home.path.parent.chmod(0o755)
    (outside / "shown").mkdir(mode=0o755)
    home.path.mkdir()
    home.config_file.write_text(f'environment: {{"shown": ["{outside}/shown"]}}\n')
    words = ["--home", str(home.path), "--port", "0", "--slots", "4", "--set", f"socket={outside}/door/shoal.sock"]
    start_detached(words, home)
    try:
        with Client(home=home.path, environ={}) as admin:
            made = World(home, outside, admin, f"shoal-{os.getpid()}")
            shutil.copy("/usr/bin/id", made.setuid)
            made.setuid.chmod(0o4755)
            try:
                yield made
            finally:
                made.setuid.unlink()
                for number in range(4):
                    _remove_left(made, number)
    finally:
        stop_server(home, timeout_s=20)
        kill_until_none(lambda: [each.process for each in marked(home.path)], timeout_s=20)
        shutil.rmtree(outside)


def _remove_left(made: World, number: int) -> None:
    """What no end of a process removes."""
    libc, rt, key = ctypes.CDLL(None), ctypes.CDLL("librt.so.1"), made._key(number)
    for one in (key, key + 1):
        for get, remove in (("shmget", "shmctl"), ("msgget", "msgctl")):
            found = getattr(libc, get)(one, 0, 0)
            if found >= 0:
                getattr(libc, remove)(found, 0, None)
        if (found := libc.semget(one, 0, 0)) >= 0:
            libc.semctl(found, 0, 0)
    for name in ("open", "closed"):
        rt.mq_unlink(f"/{name}-{made.marks}-{number}".encode())
        for place in ("/dev/shm", "/tmp"):
            Path(f"{place}/{name}-{made.marks}-{number}").unlink(missing_ok=True)
