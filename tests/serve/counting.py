"""A runtime of tests that says how it is, keeps it, and works when nothing waits: y = x, counted."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.base import discover
from shoal.inference import BadRequest, ModelSpec, RuntimeDeclaration, RuntimeState, TensorSpec, describe, installed
from shoal.inference.types import DataType
from tests.packages import install

COUNTING = RuntimeDeclaration(name="counting", platform="test_counting", opener="tests.serve.counting:Counting")
DRIFT = 100.0
"""A row greater than this makes the model DRIFTED."""


class Counting:
    def __init__(self, spec: ModelSpec) -> None:
        x = (TensorSpec("x", DataType.FP32, (-1, 1)),)
        self.metadata = describe(spec, COUNTING.platform, x, (TensorSpec("y", DataType.FP32, (-1, 1)),))
        self._told: dict[str, Any] = {"rows": 0, "greatest": 0.0}
        self._idle = 0

    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str]) -> Mapping[str, Any]:
        x = inputs["x"]
        self._told["rows"] += len(x)
        self._told["greatest"] = max(self._told["greatest"], float(x.max()))
        return {"y": np.array(x)}

    def figures(self) -> Mapping[str, float]:
        return {"rows_total": self._told["rows"], "greatest": self._told["greatest"], "idle_total": self._idle, "No": 1}

    def state(self) -> RuntimeState:
        greatest = self._told["greatest"]
        return RuntimeState("DRIFTED", f"a row of {greatest:g}") if greatest > DRIFT else RuntimeState()

    def keep(self) -> bytes:
        return json.dumps(self._told).encode()

    def restore(self, kept: bytes) -> None:
        self._told = json.loads(kept)

    def idle(self, budget_s: float) -> bool:
        assert budget_s > 0
        self._idle += 1
        return self._idle % 10 != 0

    def close(self) -> None:
        pass


def install_runtimes(folder: Path, monkeypatch: pytest.MonkeyPatch, **declared: str) -> None:
    """Runtimes by name and dotted name, here and in the replicas that are started from here."""
    text = f"from shoal.extension import Component\n\nIT = Component(runtimes={declared!r})\n"
    install(folder, "of-tests", {"of_tests_declared.py": text}, {"of-tests": "of_tests_declared:IT"})
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    forget_runtimes()


def forget_runtimes() -> None:
    discover._catalogue.cache_clear()
    installed.cache_clear()
    sys.modules.pop("of_tests_declared", None)


STEPPING = RuntimeDeclaration(name="stepping", platform="test_stepping", opener="tests.serve.counting:Stepping")


class Stepping:
    """Works x steps of 2 ms on a request, and answers how many; at most four at once. A negative x fails at its first
    step, and x = 0 cannot join."""

    rows = 4

    def __init__(self, spec: ModelSpec) -> None:
        x = (TensorSpec("x", DataType.FP32, (-1, 1)),)
        self.metadata = describe(spec, STEPPING.platform, x, (TensorSpec("y", DataType.FP32, (-1, 1)),))
        self._left: dict[int, int] = {}
        self._asked: dict[int, int] = {}
        self.dropped: list[int] = []
        self.together: list[int] = []
        self.pause_s = 0.002

    def run(self, inputs: Mapping[str, Any], outputs: Sequence[str]) -> Mapping[str, Any]:
        return {"y": np.array(inputs["x"])}

    def join(self, requests: Mapping[int, Mapping[str, Any]]) -> None:
        for number, inputs in requests.items():
            wanted = int(inputs["x"].item())
            if wanted == 0:
                raise BadRequest("no step")
            self._left[number] = self._asked[number] = wanted

    def step(self) -> Mapping[int, Mapping[str, Any] | Exception]:
        assert 0 < len(self._left) <= self.rows
        time.sleep(self.pause_s)
        self.together.append(len(self._left))
        done: dict[int, Mapping[str, Any] | Exception] = {}
        for number in [*self._left]:
            self._left[number] -= 1
            if self._left[number] < -1:
                done[number] = ValueError("a negative number")
            elif self._left[number] == 0:
                done[number] = {"y": np.array([[self._asked[number]]], np.float32)}
        for number in done:
            del self._left[number]
        return done

    def figures(self) -> Mapping[str, float]:
        return {"dropped_total": len(self.dropped), "most_together": max(self.together, default=0)}

    def leave(self, request: int) -> None:
        if self._left.pop(request, None) is not None:
            self.dropped.append(request)

    def close(self) -> None:
        pass
