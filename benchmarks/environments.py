"""Time that a prepared environment adds to a job, from submission to end, against the same job without one.

A real server; the first job of each kind makes its environment and is not counted. Then jobs whose command does nothing
take turns, so that what else the machine does meets all alike. The lock file is that of a project without packages, and
the image has one layer with a static busybox: neither matters for the second job. An image that is not pinned is asked
for its digest again by each job; one that is pinned, as `shoal run` does it, is not.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import Row, median, parser, report, server

sys.path.insert(0, str(Path(__file__).parents[1]))

from shoal.contract import bundle
from shoal.core import Sandbox
from shoal.sdk import Client
from tests.environment.kit import busybox, layer, write_image

BARS_MS = {"uv": 10.0, "image": 30.0}
PROJECT = '[project]\nname = "demo"\nversion = "0"\nrequires-python = ">=3.11"\n'
LOCK = """version = 1
revision = 1
requires-python = ">=3.11"

[[package]]
name = "demo"
version = "0"
source = { virtual = "." }
"""


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--rounds", type=int, default=40)
    options = arguments.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="shoal-environments-", dir="/tmp") as name, server(slots=4) as one:
        files = Path(name)
        files.chmod(0o755)
        (files / "pyproject.toml").write_text(PROJECT)
        (files / "uv.lock").write_text(LOCK)
        digest = write_image(files / "image", [layer(busybox())], env=["PATH=/bin"])
        for path in [files / "image", *(files / "image").rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        with Client(home=one.home, environ={}) as client:
            found = {each["name"]: each["available"] for each in client.status().capabilities}
            for level in (Sandbox.NONE, Sandbox.USER):
                if level is Sandbox.NONE or found.get(level.capability):
                    client.create_tenant(level.value, sandbox=level)
                    rows += measure(client, level.value, files, digest, options.rounds)
    return report("the second job of an environment", rows, as_json=options.json)


def measure(client: Client, tenant: str, files: Path, digest: str, rounds: int) -> list[Row]:
    sent = client.upload(bundle.pack(files, ["pyproject.toml", "uv.lock"]), tenant=tenant).bundle
    image = f"oci:{files}/image"
    kinds: dict[str, dict[str, Any]] = {
        "none": {"bundle": sent},
        "uv": {"bundle": sent, "environment": {"uv": "uv.lock"}},
        "plain": {},
        "image": {"environment": {"image": f"{image}@sha256:{digest}"}},
        "image, not pinned": {"environment": {"image": image}},
    }
    rows, times = [], dict[str, list[float]]()
    for name, more in kinds.items():
        rows.append(Row(f"sandbox {tenant}: first job, {name}", run(client, tenant, more) * 1e3, "ms"))
        times[name] = []
    for _ in range(rounds):
        for name, more in kinds.items():
            times[name].append(run(client, tenant, more))
    for name, against in (("uv", "none"), ("image", "plain"), ("image, not pinned", "plain")):
        base = median(times[against]) * 1e3
        added, bar = median(times[name]) * 1e3 - base, BARS_MS.get(name)
        met = None if bar is None else added <= bar
        rows.append(Row(f"sandbox {tenant}: without, p50 (baseline of {name})", base, "ms"))
        rows.append(Row(f"sandbox {tenant}: added by {name}, p50", added, "ms", f"<= {bar:g}" if bar else "", met))
    return rows


def run(client: Client, tenant: str, more: dict[str, Any]) -> float:
    """Seconds from the submission of a job to its end."""
    began = time.perf_counter()
    job = client.submit({"name": "nothing", "command": ["true"], "tenant": tenant, **more})
    ended = client.wait(job.id, timeout_s=60)
    took = time.perf_counter() - began
    assert ended.state == "SUCCEEDED", ended
    return took


if __name__ == "__main__":
    raise SystemExit(main())
