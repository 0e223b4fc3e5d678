"""Steps that `report` tells go into the ring of the process, for the guard of the host."""

from __future__ import annotations

import os
from pathlib import Path

from shoal.ring import Reader
from shoal.train._hooks import Hooks
from shoal.train._steps import TELL_EVERY_S


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def hooks(folder: Path, clock: Clock) -> Hooks:
    environ = {"SHOAL_RING": str(folder), "SHOAL_CHECKPOINT_DIR": str(folder / "kept")}
    return Hooks(environ, monotonic=clock)


def ring(folder: Path) -> Reader:
    return Reader(folder / f"{os.getpid()}.ring")


def test_a_report_is_the_end_of_a_step(tmp_path: Path) -> None:
    clock = Clock()
    train = hooks(tmp_path, clock)
    assert list(tmp_path.iterdir()) == [], "nothing is kept before there is something to tell"
    for step in (1, 2, 2, 5):
        clock.now += 1
        train.report(step, loss=0.5)
    units = ring(tmp_path).read()
    assert [unit.units for unit in units] == [1, 3]
    assert all(unit.wall_s > 0 and unit.cpu_s >= 0 for unit in units)


def test_short_steps_are_told_together(tmp_path: Path) -> None:
    clock = Clock()
    train = hooks(tmp_path, clock)
    for step in range(11):
        train.report(step)
        clock.now += TELL_EVERY_S / 4
    assert [unit.units for unit in ring(tmp_path).read()] == [4, 4]


def test_a_checkpoint_and_a_step_back_are_nobodys(tmp_path: Path) -> None:
    clock = Clock()
    train = hooks(tmp_path, clock)
    kept = tmp_path / "model"
    kept.write_text("x")
    for step in (1, 2):
        clock.now += 1
        train.report(step)
    train.checkpoint(kept, step=2, leave=False)
    for step in (3, 4, 1, 2):
        clock.now += 1
        train.report(step)
    assert [unit.units for unit in ring(tmp_path).read()] == [1, 1, 1]


def test_where_no_ring_can_be_kept_training_goes_on(tmp_path: Path) -> None:
    train = Hooks({"SHOAL_RING": str(tmp_path / "no" / "such" / "place")}, monotonic=Clock())
    train.report(1, loss=0.5)
    train.report(2, loss=0.4)


def test_a_forked_child_has_a_ring_of_its_own(tmp_path: Path) -> None:
    clock = Clock()
    train = hooks(tmp_path, clock)
    train.report(1)
    child = os.fork()
    if child == 0:
        clock.now += 1
        train.report(2)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert {path.name for path in tmp_path.glob("*.ring")} == {f"{os.getpid()}.ring", f"{child}.ring"}
    assert ring(tmp_path).read() == ()
