"""The Kubernetes engine keeps the protocol, on an API server of our own whose pods are processes of this machine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.engine.conformance import EngineConformance
from tests.engine.kubernetes_kit import KubernetesKit, kubernetes_kit

pytest.importorskip("lightkube", reason="the Kubernetes client is not installed")


@pytest.mark.slow  # what is its own is in test_kubernetes_faults; the shared suite runs on the local engine and Slurm
class TestKubernetes(EngineConformance):
    @pytest.fixture
    async def kit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[KubernetesKit]:
        async with kubernetes_kit(tmp_path, monkeypatch) as kit:
            yield kit
