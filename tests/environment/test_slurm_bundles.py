"""Images that Slurm runs in its own bundles (`--container`), on a real Slurm. The OCI runtime that its `oci.conf` names
is a small one: it does with bubblewrap what a bundle's `config.json` says, and writes down how Slurm called it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from clusters.slurm import PrivateSlurm

from shoal.engine import Phase, RankSpec, Refused
from shoal.engine.slurm.submission import Target
from tests.engine.conformance import RunForever
from tests.engine.slurm_kit import SlurmKit, needs_slurm, slurm_kit

from .kit import BUSYBOX, WORDS

pytestmark = [
    needs_slurm, pytest.mark.slow,
    pytest.mark.skipif(not BUSYBOX.exists() or not shutil.which("bwrap"), reason="needs bubblewrap, busybox-static"),
]  # fmt: skip

IMAGE = "registry.example/team/python:3.12"

_RUNTIME = """#!{python} -IS
import json, os, signal, sys
from pathlib import Path
at, what, name, *more = Path({state!r}), *sys.argv[1:]
with (at / "calls").open("a") as calls:
    calls.write(what + " " + name + "\\n")
pid = at / name
if what == "run":
    bundle = Path(more[0])
    told = json.loads((bundle / "config.json").read_text())
    (at / (name + ".json")).write_text(json.dumps(told))
    process, root = told["process"], Path(bundle, told["root"]["path"])
    words = ["bwrap", "--die-with-parent", "--clearenv", "--unshare-ipc", "--unshare-uts"]
    words += ["--ro-bind" if told["root"].get("readonly") else "--bind", str(root), "/"]
    for one in told["mounts"]:
        place = root / one["destination"][1:]  # made if absent, as runc does
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch() if Path(one["source"]).is_file() else place.mkdir(exist_ok=True)
        if one["type"] in ("proc", "tmpfs"):
            words += ["--" + one["type"], one["destination"]]
        elif "bind" in one["type"] or "bind" in " ".join(one.get("options", [])):
            words += ["--ro-bind" if "ro" in one["options"] else "--bind", one["source"], one["destination"]]
    words += ["--dev", "/dev", "--chdir", process["cwd"]]
    for entry in process["env"]:
        words += ["--setenv", *entry.split("=", 1)]
    pid.write_text(str(os.getpid()))
    os.execvp("bwrap", [*words, *process["args"]])
elif what == "state":
    alive = pid.exists() and Path("/proc", pid.read_text()).exists()
    print(json.dumps({{"ociVersion": "1.0.2", "id": name, "status": "running" if alive else "stopped",
                      "pid": int(pid.read_text()) if alive else 0, "bundle": ""}}))
elif what == "kill":
    try:
        os.kill(int(pid.read_text()), signal.SIGTERM)
    except (OSError, ValueError):
        pass
elif what == "delete":
    pid.unlink(missing_ok=True)
"""

_LOOK = """
import json, os, pathlib
print(json.dumps({
    "marker": pathlib.Path("/marker").read_text(), "uid": os.getuid(), "cwd": os.getcwd(), "word": os.environ["WORD"],
    "rank": os.environ["RANK"], "world": os.environ["WORLD_SIZE"], "etc": os.path.exists("/etc/hostname"),
}))
pathlib.Path(f"out-{os.environ['RANK']}").write_text("kept")
"""


class Site:
    """A Slurm with a runtime of bundles, and a folder of those."""

    def __init__(self, cluster: PrivateSlurm, state: Path) -> None:
        self.cluster, self.state = cluster, state
        self.bundles = state / "bundles"
        runtime = state / "runtime"
        runtime.write_text(_RUNTIME.format(python=os.path.realpath(sys.executable), state=str(state)))
        runtime.chmod(0o755)
        name = "%n.%u.%j.%s.%t"
        (cluster.root / "oci.conf").write_text(
            f'RunTimeQuery="{runtime} state {name}"\nRunTimeRun="{runtime} run {name} %b"\n'
            f'RunTimeKill="{runtime} kill {name}"\nRunTimeDelete="{runtime} delete {name}"\n'
        )

    def add(self, image: str, *shared: Path) -> None:
        """An image with a shell and a file of its own; Python and the `shared` folders are mounts."""
        root = self.bundles / image / "rootfs"
        (root / "bin").mkdir(parents=True)
        shutil.copy(BUSYBOX, root / "bin" / "busybox")
        for word in WORDS:
            (root / "bin" / word).symlink_to("busybox")
        (root / "marker").write_text(image)
        found = ["/usr", "/lib", "/lib64", sys.base_prefix, *map(str, shared)]
        mounts = [{"destination": one, "source": one, "type": "bind", "options": ["rbind"]} for one in found]
        for one in (*found, "/proc", "/dev", "/tmp"):
            (root / one[1:]).mkdir(parents=True, exist_ok=True)
        (self.bundles / image / "config.json").write_text(json.dumps({
            "ociVersion": "1.0.2", "root": {"path": "rootfs", "readonly": True}, "hostname": "c",
            "process": {"user": {"uid": 0, "gid": 0}, "args": ["sh"], "env": ["PATH=/bin:/usr/bin"], "cwd": "/"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc", "options": []}, *mounts], "linux": {},
        }))  # fmt: skip

    def calls(self, what: str) -> list[str]:
        lines = (self.state / "calls").read_text().splitlines()
        return [name for word, name in map(str.split, lines) if word == what]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with PrivateSlurm((4, 4)) as cluster:
        yield Site(cluster, tmp_path_factory.mktemp("site"))


@pytest.fixture
async def kit(tmp_path: Path, site: Site) -> AsyncIterator[SlurmKit]:
    site.add(f"{IMAGE}-{tmp_path.name}", tmp_path)
    async with slurm_kit(tmp_path, site.cluster, target=Target(bundles=str(site.bundles))) as kit:
        yield kit


@pytest.mark.parametrize("ranks", [1, 2])
async def test_a_job_runs_in_its_bundle(kit: SlurmKit, site: Site, ranks: int) -> None:
    image = f"{IMAGE}-{kit.root.name}"
    gang = kit.python("a.1.run", _LOOK, ranks=ranks, image=image, env={"WORD": 'it\'s "one" word'})
    gang = replace(gang, ranks=tuple(RankSpec(rank, f"n{rank + 1}") for rank in range(ranks)))
    await kit.engine.launch(gang)
    status = await kit.settle("a.1.run")
    assert [rank.phase for rank in status.ranks] == [Phase.ENDED] * ranks
    for rank in range(ranks):
        (line,) = (await kit.log("a.1.run", rank)).splitlines()
        assert json.loads(line) == {
            "marker": image, "uid": os.getuid(), "cwd": str(gang.run_dir), "word": "it's \"one\" word",
            "rank": str(rank), "world": str(ranks), "etc": False,
        }  # fmt: skip
        assert (gang.run_dir / f"out-{rank}").stat().st_uid == os.getuid()
    await kit.engine.forget("a.1.run")


async def test_it_is_ended_in_its_bundle(kit: SlurmKit, site: Site) -> None:
    gang = kit.gang("a.1.run", RunForever(), image=f"{IMAGE}-{kit.root.name}")
    await kit.engine.launch(gang)
    await kit.in_effect("a.1.run")
    await kit.engine.stop("a.1.run")
    status = await kit.settle("a.1.run")
    assert status.ended
    assert kit.processes() == []


async def test_two_ranks_on_one_machine_are_refused(kit: SlurmKit) -> None:
    with pytest.raises(Refused, match="2 ranks of it would share a machine"):
        await kit.engine.launch(kit.python("a.1.run", "", ranks=2, image=f"{IMAGE}-{kit.root.name}"))
