"""A plane's job in a sandbox keeps its checkpoints, gets nobody else's, and leaves no tree that stops the server."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from shoal.core import Sandbox
from shoal.engine.sandbox import capabilities

from .test_planes import Site, site

__all__ = ["site"]

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a sandbox needs a server that runs as root")

KEEPS = """
cat $SHOAL_CHECKPOINT_DIR/model
echo attempt $SHOAL_ATTEMPT >> $SHOAL_CHECKPOINT_DIR/model
if [ $SHOAL_ATTEMPT = 1 ]; then exec sleep 1000; fi
"""
DEEP = """
import os
for place in (os.environ["SHOAL_CHECKPOINT_DIR"], "."):
    os.chdir(place)
    for _ in range(1500):
        os.mkdir("abcd")
        os.chdir("abcd")
    os.chdir(os.environ["HOME"])
"""


@pytest.mark.few
@pytest.mark.parametrize("level", [Sandbox.USER, Sandbox.BUBBLEWRAP])
def test_a_preempted_job_of_a_plane_finds_its_checkpoints_again(site: Site, tmp_path: Path, level: Sandbox) -> None:
    missing = [one for one in capabilities(site.home.path) if one.name == level.capability and not one.available]
    if missing:
        pytest.skip(missing[0].detail)
    site.shared("tenant", "create", "vision", "--sandbox", level.value)
    plane = json.loads(site.shared("plane", "create", "vision", "--tenant", "vision", "--json"))

    def submit(name: str, code: int = 0, **fields: Any) -> str:
        path = tmp_path / f"{name}.json"
        path.write_text(
            json.dumps({"name": name, "resources": {"accelerators": "cpu:4", "memory": "256MiB"}, **fields})
        )
        said = site.at(plane, "submit", str(path), *([] if code else ["--json"]), code=code)
        return said if code else str(json.loads(said)["id"])

    def state(job: str) -> str:
        return str(json.loads(site.at(plane, "show", job, "--json"))["state"]).lower()

    keeps = submit("keeps", command=["sh", "-c", KEEPS])
    folder = site.home.path / "planes" / plane["id"]
    model = folder / "checkpoints" / keeps / "model"
    until(lambda: model.exists() and state(keeps) == "running")
    assert model.stat().st_uid > 1 << 30
    first = submit("first", command=["true"], priority_class="guaranteed")
    until(lambda: state(first) == "succeeded")
    until(lambda: state(keeps) == "succeeded")
    assert model.read_text() == "attempt 1\nattempt 2\n"
    assert "attempt 1" in site.at(plane, "logs", keeps)

    for stolen in (model.parent, f"{site.home.path}/checkpoints/", site.home.path / "planes" / "other"):
        refused = submit("thief", 2, command=["true"], checkpoint={"directory": str(stolen)})
        assert "lies in the server's home" in refused

    deep = submit("deep", command=["python", "-c", DEEP])
    until(lambda: state(deep) in ("succeeded", "failed"))
    assert state(deep) == "succeeded", site.at(plane, "logs", deep)
    site.at(plane, "gc")
    site.shared("plane", "delete", "vision")
    until(lambda: list(folder.parent.glob(f"*{plane['id']}")) == [])  # nor what waits for its removal


def until(true: Any) -> None:
    end = time.monotonic() + 40
    while not true():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.1)
