"""Images that a program of the job's machine runs: podman for real where it is, apptainer by a stand-in of that name
that records how it is called. Where podman's own runtime refuses the machine, it is a stand-in too."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from shoal.contract.lifecycle import JobState
from shoal.core import Capability, Invalid, SystemClock
from shoal.engine import Gang, RankSpec, Refused
from shoal.engine.slurm.cluster import SlurmCluster
from shoal.engine.slurm.commands import Commands
from shoal.engine.slurm.submission import Target, arguments, script
from shoal.environment.activate import in_runtime
from shoal.environment.live.extension import Environments
from shoal.environment.reference import read_image
from shoal.environment.settings import EnvironmentSection

from .kit import BUSYBOX, busybox, layer, member, write_image
from .test_engines import on, submit

IMAGE = "docker.io/library/python:3.12"
CALLED = '#!/bin/sh\nfor word; do echo "$word"; done > called\n'


@pytest.fixture
def place(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """A run directory, and the environment of a rank there."""
    for name in ("run", "rank", "bin"):
        (tmp_path / name).mkdir()
    path = f"{tmp_path}/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return tmp_path, {"PATH": path, "SHOAL_RUN": str(tmp_path / "rank"), "HOME": str(tmp_path), "WORD": "job's"}


def entered(
    place: tuple[Path, dict[str, str]], runtime: str, image: str, command: Sequence[str], **more: Any
) -> subprocess.CompletedProcess[str]:
    folder, env = place
    words = [*in_runtime(runtime, read_image(image), **more), *command]
    return subprocess.run(words, cwd=folder / "run", env=env, capture_output=True, text=True, check=False)


def test_apptainer_is_told_of_what_the_job_has(place: tuple[Path, dict[str, str]]) -> None:
    folder, env = place
    (folder / "bin" / "apptainer").write_text(CALLED)
    (folder / "bin" / "apptainer").chmod(0o755)
    env["CUDA_VISIBLE_DEVICES"] = "0"
    env["SHOAL_CHECKPOINT_DIR"] = str(folder)
    assert entered(place, "apptainer", IMAGE, ["train", "a b"], paths=["/data"], workdir="/srv").returncode == 0
    run, rank = folder / "run", folder / "rank"
    assert (run / "called").read_text().splitlines() == [
        "exec", "--no-home", "--nv", "--bind", f"{run}", "--bind", f"{rank}", "--bind", f"{folder}", "--pwd", f"{run}",
        "--bind", "/data", "--pwd", "/srv", f"docker://{IMAGE}", "train", "a b",
    ]  # fmt: skip


def test_podman_is_told_of_what_the_job_has(place: tuple[Path, dict[str, str]]) -> None:
    folder, env = place
    (folder / "bin" / "podman").write_text(CALLED)
    (folder / "bin" / "podman").chmod(0o755)
    env["CUDA_VISIBLE_DEVICES"] = ""
    done = entered(place, "podman", f"{IMAGE}@sha256:{'0' * 64}", ["train"], paths=["/data"], given=["B", "A"])
    assert done.returncode == 0, done.stderr
    called = (folder / "run" / "called").read_text().splitlines()
    run, rank, image = folder / "run", folder / "rank", f"docker.io/library/python@sha256:{'0' * 64}"
    assert called[:4] == ["run", "--rm", "--interactive", "--network=host"]
    assert {"--cap-drop=all", "--security-opt=no-new-privileges", "--read-only", "--cgroups=disabled"} <= set(called)
    assert ("--userns=keep-id" in called) is (os.getuid() != 0)
    assert f"{os.getuid()}:{os.getgid()}" in called
    assert "--device" not in called
    assert called[-14:] == [
        "--volume", f"{run}:{run}", "--volume", f"{rank}:{rank}", "--workdir", f"{run}",
        "--volume", "/data:/data", "--env", "A", "--env", "B", image, "train",
    ]  # fmt: skip


@pytest.mark.parametrize("runtime", ["apptainer", "podman"])
def test_a_machine_without_it_says_so(place: tuple[Path, dict[str, str]], runtime: str) -> None:
    folder, env = place
    env["PATH"] = str(folder / "bin")
    (folder / "bin" / "hostname").symlink_to("/bin/hostname")
    done = entered(place, runtime, IMAGE, ["true"])
    assert (done.returncode, f"shoal: {runtime} is not installed on" in done.stderr) == (126, True)


@pytest.fixture
def podman(place: tuple[Path, dict[str, str]]) -> tuple[Path, dict[str, str]]:
    folder, env = place
    if shutil.which("podman") is None or not BUSYBOX.exists():
        pytest.skip("needs podman, and busybox-static")
    (folder / "storage.conf").write_text(
        f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/runroot"\n'
    )
    env["CONTAINERS_STORAGE_CONF"] = str(folder / "storage.conf")
    hello = member("hello", b"from the image\n", mode=0o644)
    write_image(folder / "image", [layer([*busybox(), hello])], env=["PATH=/bin", "WORD=image's", "OWN=image's"])
    tried = entered(place, "podman", f"oci:{folder}/image", ["true"])
    if tried.returncode:
        pytest.skip(f"podman runs nothing here: {tried.stderr[-300:]}")
    return place


LOOK = 'cat /hello; echo "$WORD $OWN"; id -u; pwd; touch /a 2>/dev/null || echo read-only; echo kept > out; exit 7'


@pytest.mark.slow
def test_podman_runs_it_as_the_job_is(podman: tuple[Path, dict[str, str]]) -> None:
    folder, env = podman
    image = f"oci:{folder}/image"
    done = entered(podman, "podman", image, ["sh", "-c", LOOK], given=["WORD"])
    wanted = ["from the image", "job's image's", str(os.getuid()), str(folder / "run"), "read-only"]
    assert (done.returncode, done.stdout.splitlines()) == (7, wanted), done.stderr
    found = (folder / "run" / "out").stat()
    assert (found.st_uid, found.st_size) == (os.getuid(), 5)
    script = "trap 'echo asked; exit 3' TERM; touch ready; while :; do sleep 0.05; done"
    words = [*in_runtime("podman", read_image(image)), "sh", "-c", script]
    running = subprocess.Popen(words, cwd=folder / "run", env=env, stdout=subprocess.PIPE, text=True)
    while not (folder / "run" / "ready").exists():
        assert running.poll() is None
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    assert (running.communicate()[0], running.returncode) == ("asked\n", 3)


class _PodmanSection(EnvironmentSection):
    runtime: Literal["", "apptainer", "podman"] = "podman"


class ByPodman(Environments):
    settings = _PodmanSection


def test_an_engine_without_images_has_them_by_what_its_machines_run(tmp_path: Path) -> None:
    async def scene(world: Any, launched: list[Gang]) -> None:
        job = await submit(world, image=IMAGE, workdir="/srv")
        await world.until(lambda: world.plane.job(job).state is JobState.SUCCEEDED)
        (gang,) = launched
        assert (gang.image, gang.mounts) == ("", ())
        assert gang.enter[-3:] == ("--workdir", "/srv", IMAGE)
        with pytest.raises(Invalid, match="has no environments of lock files"):
            await submit(world, uv="uv.lock")

    on(tmp_path, (), scene, ByPodman)


def test_slurm_runs_an_image_in_its_bundle(tmp_path: Path) -> None:
    bundle = tmp_path / "bundles" / IMAGE
    target = Target(bundles=str(tmp_path / "bundles"))

    def gang(ranks: int, image: str = IMAGE) -> Gang:
        return Gang("j.1.run", ("true",), tuple(RankSpec(n, "pool") for n in range(ranks)), tmp_path, image=image)

    def given(one: Gang) -> list[str]:
        return [word for word in arguments(one, target, mark="m", device_types={}, pooled=True) if "container" in word]

    with pytest.raises(Refused, match=f"there is no bundle of the image {IMAGE}"):
        given(gang(1))
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text("{}")
    assert (given(gang(1)), given(gang(2)), given(gang(1, ""))) == ([f"--container={bundle}"], [], [])
    for alone in (True, False):
        text = script(
            tmp_path, "t", python="/p", runner=tmp_path / "r", alone=alone, container=target.container(gang(2))
        )
        assert (f"--container={bundle} " in text) is not alone
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(Refused):
        target.container(gang(1, "docker.io/x/../../.."))


def test_slurm_says_whether_it_has_images() -> None:
    def images(target: Target) -> Capability:
        found = SlurmCluster(Commands(), target, SystemClock()).capabilities()
        return next(one for one in found if one.name == "images")

    assert not images(Target()).available
    assert images(Target(bundles="/srv/bundles")).available
