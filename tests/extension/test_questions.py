"""Questions between extensions: asked by a protocol, answered by objects, known to neither the seam nor the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

import pytest

from shoal.control.extensions.loaded import Chosen
from shoal.control.plane import ControlPlane
from shoal.core import Estimate, FinishTimes, Node, NodeOffers, first
from shoal.engine.simulated import Script
from shoal.extension import Extension, NoSection, Server
from tests.control import simulation
from tests.control.simulation import World, nodes

pytestmark = pytest.mark.virtual_time


class Weather(Protocol):
    """A question of this test's own: no file of Shoal knows it."""

    def degrees(self, city: str) -> float | None: ...


class Other(Protocol):
    def anything(self) -> int: ...


class _Degrees:
    def __init__(self, known: Mapping[str, float]) -> None:
        self._known = known

    def degrees(self, city: str) -> float | None:
        return self._known.get(city)


class North(Extension):
    name: ClassVar[str] = "north"

    def answers(self) -> Mapping[type, object]:
        return {Weather: _Degrees({"Oslo": -3.0, "Bergen": 4.0})}


class South(Extension):
    name: ClassVar[str] = "south"

    def answers(self) -> Mapping[type, object]:
        return {Weather: _Degrees({"Oslo": 99.0, "Rome": 17.0}), FinishTimes: self, NodeOffers: self}

    def finish_at(self, job_id: str, progress: Mapping[str, Any]) -> Estimate | None:
        raise ZeroDivisionError("a defect of an extension")

    def offered(self, node: Node) -> Node:
        raise ZeroDivisionError("a defect of an extension")


class West(Extension):
    name: ClassVar[str] = "west"

    def answers(self) -> Mapping[type, object]:
        return {FinishTimes: self, NodeOffers: self}

    def finish_at(self, job_id: str, progress: Mapping[str, Any]) -> Estimate | None:
        return Estimate(7.0, 6.0, 8.0, 0.9, "by the west")

    def offered(self, node: Node) -> Node:
        return replace(node, labels={**node.labels, "west": "yes"})


class Broken(Extension):
    name: ClassVar[str] = "aa-broken"

    def answers(self) -> Mapping[type, object]:
        raise ZeroDivisionError("a defect of an extension")


class Asker(Extension):
    name: ClassVar[str] = "asker"
    server: ClassVar[Server]

    def __init__(self, server: Server, settings: Any) -> None:
        Asker.server = server


@pytest.fixture
async def plane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ControlPlane]:
    on = [Chosen(one, NoSection()) for one in (Broken, Asker, North, South, West)]
    monkeypatch.setattr(simulation, "chosen", lambda **_: on)
    world = World.make(tmp_path, nodes(1, 1), lambda _: Script(run_s=1.0))
    yield await world.start()
    await world.kill()


async def test_a_question_of_a_strangers_package_is_answered_by_another(plane: ControlPlane) -> None:
    server = Asker.server
    found = server.ask(Weather)
    assert found is not None
    assert found.degrees("Oslo") == -3.0  # of two that know, the first by name
    assert [one.degrees("Oslo") for one in server.ask_all(Weather)] == [-3.0, 99.0]
    assert first(server.ask_all(Weather), lambda one: one.degrees("Rome")) == 17.0
    assert first(server.ask_all(Weather), lambda one: one.degrees("Lima")) is None


async def test_what_nobody_answers_is_none(plane: ControlPlane) -> None:
    server = Asker.server
    assert server.ask(Other) is None
    assert list(server.ask_all(Other)) == []


async def test_an_answer_that_raises_is_none_and_costs_no_other(plane: ControlPlane) -> None:
    machine = plane.extensions.offer(nodes(1, 1)[0])
    assert machine.labels["west"] == "yes"
    found = plane.extensions.answers.first(FinishTimes, lambda one: one.finish_at("j-1", {}))
    assert found is not None
    assert found.source == "by the west"
