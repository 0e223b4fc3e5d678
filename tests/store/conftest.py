"""Every test here runs on both databases. PostgreSQL is a private server from the system's packages."""

from __future__ import annotations

import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.records import (
    AttemptRecord,
    Change,
    JobRecord,
    NewEvent,
    RankPlacement,
    TenantRecord,
)
from shoal.core import PriorityClass, Quota, Resources
from shoal.store import Store, open_store


def _server_programs() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[4]))
    return found[-1].parent if found else None


def _as_server_user() -> list[str]:
    """PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", "--pdeathsig=QUIT"]


def _quiet_port() -> int:
    """One that is free now, and is never given to somebody who asks the system for any."""
    lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(lowest // 2, lowest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@dataclass(frozen=True)
class Server:
    directory: Path
    port: int

    def url(self, name: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{name}"

    def run(self, statement: str) -> None:
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Server]:
    programs = _server_programs()
    if programs is None:
        pytest.skip("PostgreSQL is not installed (apt install postgresql)")
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            pytest.skip("PostgreSQL will not run as root, and there is no user named postgres")
    directory = Path(tempfile.mkdtemp(prefix="shoal-pg-", dir="/tmp"))
    if os.geteuid() == 0:
        os.chown(directory, owner.pw_uid, owner.pw_gid)
    data = directory / "data"
    subprocess.run(
        [*_as_server_user(), programs / "initdb", "-D", data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8"],
        check=True,
        stdout=subprocess.DEVNULL,
        cwd=directory,
    )
    port = _quiet_port()
    server = subprocess.Popen(
        [
            *_as_server_user(),
            programs / "postgres",
            *("-D", data, "-p", str(port), "-k", directory, "-h", "127.0.0.1"),
            *("-c", "fsync=off", "-c", "max_connections=60", "-c", "shared_buffers=32MB"),
        ],
        cwd=directory,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        ready = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
        while subprocess.run(ready, check=False).returncode != 0:
            if server.poll() is not None:
                pytest.fail(f"PostgreSQL ended with {server.returncode} instead of starting")
        yield Server(directory, port)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """An empty database of each kind."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'shoal.db'}"
        return
    server: Server = request.getfixturevalue("postgresql")
    yield server.url("postgres")
    # To make and drop a database takes the server a fifth of a second.
    server.run(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()"
    )
    server.run("DROP SCHEMA public CASCADE; CREATE SCHEMA public")


@pytest.fixture
def opened(url: str) -> Iterator[Callable[..., Store]]:
    """Opens stores on the test's database and closes them in the end."""
    stores: list[Store] = []

    def open_one(**options: object) -> Store:
        store = open_store(url, **options)  # type: ignore[arg-type]
        stores.append(store)
        return store

    yield open_one
    for store in reversed(stores):
        store.close()


@pytest.fixture
def store(opened: Callable[..., Store]) -> Store:
    return opened()


# --- records ---


@dataclass(frozen=True)
class Make:
    """Records with what a test does not care about filled in."""

    def job(self, job_id: str, **fields: Any) -> JobRecord:
        given: dict[str, Any] = {
            "id": job_id,
            "tenant": "red",
            "name": f"train-{job_id}",
            "state": JobState.QUEUED,
            "version": 1,
            "manifest": '{"name":"train"}',
            "resources": Resources({"a100": 2}, 4000, 8 << 30),
            "ranks": 1,
            "priority_class": PriorityClass.GUARANTEED,
            "priority": 3,
            "submitted_at": 100.0,
            "updated_at": 100.0,
            "fingerprint": "f" * 64,
            "ended_at": 200.0 if JobState(fields.get("state", JobState.QUEUED)).terminal else None,
        }
        return JobRecord(**{**given, **fields})

    def event(self, kind: str = "job.noted", **fields: Any) -> NewEvent:
        return NewEvent(**{"at": 100.0, "kind": kind, "actor": "tester", **fields})

    def change(self, before: JobRecord, *path: JobState, attempt: AttemptRecord | None = None, **fields: Any) -> Change:
        """Along the path, one version up, with an event for each step."""
        states = (before.state, *path)
        events = tuple(
            self.event("job.state", tenant=before.tenant, job_id=before.id, old_state=old, new_state=new)
            for old, new in pairwise(states)
        )
        if states[-1].terminal:
            fields.setdefault("ended_at", 200.0)
        after = before.evolve(state=states[-1], version=before.version + 1, **fields)
        return Change(before, after, events, attempt)

    def attempt(self, job_id: str, number: int = 1, **fields: Any) -> AttemptRecord:
        places = (RankPlacement(0, "node-1", ("gpu-0", "gpu-1")), RankPlacement(1, "node-2"))
        return AttemptRecord(
            **{"job_id": job_id, "number": number, "epoch": 1, "placement": places, "created_at": 101.0, **fields}
        )

    def tenant(self, name: str, **fields: Any) -> TenantRecord:
        return TenantRecord(**{"name": name, "weight": 1.0, "quota": Quota(), "created_at": 100.0, **fields})


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()
