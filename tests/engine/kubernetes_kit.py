"""Driving the Kubernetes engine on our own small cluster, with the small command of the local engine's kit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.engine import GangStatus
from shoal.engine.kubernetes import KubernetesEngine, KubernetesSettings
from shoal.engine.local.processes import marked
from tests.engine.kubernetes_server import FakeCluster, fake_cluster, kubeconfig
from tests.engine.local_kit import LocalKit

H200 = {"nvidia.com/gpu.product": "NVIDIA-H200"}


class KubernetesKit(LocalKit):
    engine: KubernetesEngine  # type: ignore[assignment]

    def __init__(self, root: Path, cluster: FakeCluster, **options: Any) -> None:
        self.cluster = cluster
        super().__init__(root, **options)

    def new_engine(self) -> None:
        settings: dict[str, Any] = {
            "image": "fake/image", "python": os.path.realpath(sys.executable), "ahead": 0.0, "lease_s": 3.0,
            **self.options,
        }  # fmt: skip
        del settings["slots"], settings["accelerators"]
        self.engine = KubernetesEngine(
            self.home, KubernetesSettings(**settings), look_every_s=0.3, poll_s=0.3
        )  # fmt: skip

    @property
    def node(self) -> str:
        return "kubernetes"

    @property
    def device(self) -> str:
        return "nvidia-h200:"

    async def until(self, holds: Callable[[GangStatus], bool], name: str) -> GangStatus:
        async with asyncio.timeout(60):
            async for status in self.engine.changes():
                if status.name == name and holds(status):
                    return status
        raise AssertionError("the engine was closed")

    async def lose_device(self) -> None:
        """The one of the last node."""
        self.cluster.remove("nodes", self.cluster.node("n2"))
        await self.engine.inventory()

    async def restore_devices(self) -> None:
        self.cluster.add_node("n2", cpus=16, gpus=1, labels=H200)
        await self.engine.inventory()


@contextlib.asynccontextmanager
async def kubernetes_kit(
    root: Path, monkeypatch: pytest.MonkeyPatch, *,
    nodes: tuple[int, ...] = (8, 1), groups: frozenset[str] = frozenset(), **options: Any,
) -> AsyncIterator[KubernetesKit]:  # fmt: skip
    """An open kit on a cluster of its own that leaves no process, no Job and no pod behind."""
    with fake_cluster(groups=groups) as (cluster, url):
        for number, gpus in enumerate(nodes, 1):
            cluster.add_node(f"n{number}", cpus=16, gpus=gpus, labels=H200 if gpus else {})
        (root / "kubeconfig").write_text(kubeconfig(url, cluster.token))
        monkeypatch.setenv("KUBECONFIG", str(root / "kubeconfig"))
        kit = KubernetesKit(root, cluster, **options)
        await kit.engine.open()
        try:
            yield kit
        finally:
            for name in await kit.engine.gangs():
                await kit.engine.forget(name)
            async with asyncio.timeout(30):  # one forgotten before a restart may still be leaving
                while any(cluster.list(kind) for kind in ("jobs", "pods", "services", "secrets", "podgroups")):
                    await asyncio.sleep(0.05)
            await kit.engine.close()
        async with asyncio.timeout(10):
            while marked(kit.home):
                await asyncio.sleep(0.05)


__all__ = ["H200", "KubernetesKit", "kubernetes_kit"]
