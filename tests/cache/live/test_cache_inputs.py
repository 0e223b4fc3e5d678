"""Inputs with `cached: true` in jobs of a real server: links to the fast disk, in every sandbox, and nothing copied."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from shoal.contract.lifecycle import JobState
from shoal.contract.manifest import JobManifest
from shoal.control.plane import ControlPlane
from shoal.core import Sandbox
from shoal.store import Store
from tests.cache.kit import FUSE as FUSE_HERE
from tests.cache.live.test_cache_live import extension, plane, until
from tests.cache.live.test_cache_live import store as store
from tests.cache.test_s3 import KEYS
from tests.cache.test_s3 import s3 as s3

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")
FUSE = pytest.mark.skipif(not FUSE_HERE, reason="no FUSE")

LOOK = """
import hashlib, json, os
found = {}
for folder, _, names in os.walk("data"):
    for name in names:
        path = os.path.join(folder, name)
        real = os.path.realpath(path)
        kind = "source" if "/rest/" in real else "disk" if os.path.islink(path) else "copy"
        with open(path, "rb") as file:
            found[os.path.relpath(path, "data")] = [hashlib.md5(file.read()).hexdigest(), kind]
        for other in (real, os.path.dirname(real) + "/new"):
            try:
                open(other, "wb").close()
            except OSError:
                pass
            else:
                assert kind == "copy", f"what is cached can be changed at {other}"
open("data/made by the job", "w").close()
print(json.dumps(found))
"""
OBJECTS = {f"{'sub/' if number % 2 else ''}{number} é": os.urandom(100_000 + number) for number in range(4)}
OBJECTS["large"] = os.urandom(3 << 20)


@pytest.fixture
def source() -> Iterator[str]:
    """Files that every user may read."""
    with TemporaryDirectory(prefix="shoal-inputs-", dir="/tmp") as name:
        for below, data in OBJECTS.items():
            path = Path(name) / "set" / below
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        Path(name).chmod(0o755)
        yield f"{name}/set"


async def looked(made: ControlPlane, url: str, **more: Any) -> dict[str, list[str]]:
    """What a job found: MD5 and where it came from, by name."""
    manifest = JobManifest.model_validate({
        "name": "train", "command": [sys.executable, "-c", LOOK],
        "inputs": [{"from": url, "to": "data", "cached": True}], **more,
    })  # fmt: skip
    told, _ = await made.submit(manifest, tenant="ada", actor="ada")
    await until(lambda: made.job(told.id).state.terminal)
    log = (await made.logs(told.id)).data.decode()
    assert made.job(told.id).state is JobState.SUCCEEDED, f"{made.job(told.id)}\n{log}"
    await until(lambda: extension(made)._status["views"] == [])
    found: dict[str, list[str]] = json.loads(log.strip().splitlines()[-1])
    assert {name: one[0] for name, one in found.items()} == {
        name: hashlib.md5(data).hexdigest() for name, data in OBJECTS.items()
    }
    return found


def kinds(found: dict[str, list[str]]) -> dict[str, str]:
    return {name: kind for name, (_, kind) in found.items()}


SMALL = {name: "disk" for name in OBJECTS if name != "large"}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("mount", "rest"),
    [pytest.param("always", "source", marks=FUSE), pytest.param("never", "copy", marks=pytest.mark.slow)],
)
async def test_a_job_finds_links_to_what_is_cached(
    source: str, store: Store, tmp_path: Path, mount: str, rest: str
) -> None:
    async with plane(store, tmp_path, sandbox=Sandbox.USER, mount=mount, chunk=1 << 20) as made:
        assert kinds(await looked(made, source)) == {**SMALL, "large": rest}
        assert not list((tmp_path / "cache" / "views").glob("*/*"))
        assert extension(made)._status["used"]["files"] == len(SMALL) + 3


@FUSE
@pytest.mark.slow
@pytest.mark.timeout(180)
async def test_a_job_that_sees_nothing_of_the_machine_finds_them_too(s3: Any, store: Store, tmp_path: Path) -> None:
    for name, data in OBJECTS.items():
        s3.put_object(Bucket="data", Key=f"set/{name}", Body=data)
    env = {
        "AWS_ACCESS_KEY_ID": KEYS["key"], "AWS_SECRET_ACCESS_KEY": KEYS["secret"],
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{s3.port}",
    }  # fmt: skip
    async with plane(store, tmp_path, sandbox=Sandbox.BUBBLEWRAP, mount="always", chunk=1 << 20) as made:
        assert kinds(await looked(made, "s3://data/set", env=env)) == {**SMALL, "large": "source"}
