"""Software of jobs on other engines than the local one: taken by the cluster, or refused by name at submission."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.contract.lifecycle import JobState
from shoal.core import Capability, Invalid
from shoal.engine import Gang, RankSpec
from shoal.engine.kubernetes import KubernetesSettings, objects
from shoal.engine.simulated import Script
from shoal.environment.live.extension import Environments
from tests.calendar.kit import Planned, play
from tests.control.simulation import manifest

IMAGE = "docker.io/library/python:3.12"
CONTAINERS = (Capability("images", True, "pods run in them"),)


def on(
    folder: Path, capabilities: Sequence[Capability], scene: Callable[[Planned, list[Gang]], Awaitable[None]],
    extension: type[Environments] = Environments,
) -> None:  # fmt: skip
    launched: list[Gang] = []

    def run(gang: Gang) -> Script:
        launched.append(gang)
        return Script(run_s=1.0)

    async def whole(world: Planned) -> None:
        world.engine.capabilities = lambda: tuple(capabilities)  # type: ignore[method-assign, union-attr]
        await scene(world, launched)

    play(folder, whole, run, others=(extension,))


async def submit(world: Planned, **environment: Any) -> str:
    assert world.plane is not None
    job, _ = await world.plane.submit(manifest(environment=environment), tenant="ada", actor="tenant:ada")
    return job.id


@pytest.mark.parametrize(
    ("capabilities", "environment", "said"),
    [
        ((), {"image": IMAGE}, "the engine simulated has no images"),
        ((), {"image": "oci:/images/x"}, "the engine simulated has no images"),
        ((), {"uv": "uv.lock"}, "the engine simulated has no environments of lock files"),
        (CONTAINERS, {"uv": "uv.lock"}, "the engine simulated has no environments of lock files"),
        (CONTAINERS, {"image": "oci:/images/x"}, "the engine simulated has no images but that of a registry"),
        (CONTAINERS, {"image": IMAGE, "workdir": "/srv"}, "the engine simulated takes the image alone"),
        (CONTAINERS, {"image": IMAGE, "mounts": ["/data"]}, "the engine simulated takes the image alone"),
    ],
)
def test_what_an_engine_cannot_do_is_refused_at_submission(
    tmp_path: Path, capabilities: Sequence[Capability], environment: dict[str, Any], said: str
) -> None:
    async def scene(world: Planned, launched: list[Gang]) -> None:
        with pytest.raises(Invalid, match=said):
            await submit(world, **environment)
        assert world.plane is not None
        with pytest.raises(Invalid, match=said):
            await world.plane.check(manifest(environment=environment), tenant="ada")
        assert launched == []

    on(tmp_path, capabilities, scene)


def test_an_engine_with_containers_is_given_the_image_and_what_its_machines_have_is_entered(tmp_path: Path) -> None:
    async def scene(world: Planned, launched: list[Gang]) -> None:
        for environment in ({"image": IMAGE}, {"venv": "/opt/v"}):
            job = await submit(world, **environment)
            await world.until(lambda job=job: world.plane.job(job).state is JobState.SUCCEEDED)  # type: ignore[misc, union-attr]
        image, venv = launched
        assert (image.image, image.enter, image.argv) == (IMAGE, (), ("train",))
        assert (venv.image, venv.argv) == ("", (*venv.enter, "train"))
        assert "/opt/v" in venv.enter

    on(tmp_path, CONTAINERS, scene)


def test_pods_of_kubernetes_run_in_the_image_of_their_gang() -> None:
    def image_of(gang: Gang) -> str:
        made = objects.job(
            gang, mark="m", token="t", command="true", user=(1000, 1000), sealed=False, mount=Path("/srv"),
            settings=KubernetesSettings(image="site/python"), kinds={}, pod_groups=False,
        )  # fmt: skip
        return str(made["spec"]["template"]["spec"]["containers"][0]["image"])

    plain = Gang("j-1.1.run", ("true",), (RankSpec(0, "kubernetes"),), Path("/srv/run"))
    assert image_of(plain) == "site/python"
    named = Gang("j-1.1.run", ("true",), (RankSpec(0, "kubernetes"),), Path("/srv/run"), image=IMAGE)
    assert image_of(named) == IMAGE
