"""The ring file: what is written is read, once, or known to be torn or lost; and the sensor that reads it."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.host.sensors import Quantity, Scope, StepTimes
from shoal.host.sensors.base import Key
from shoal.host.types import Missing, Reading
from shoal.ring import MOST_SLOTS, Reader, Ring

EVER = float("-inf")


def add(ring: Ring, end_s: float, cpu_s: float, wall_s: float | None = None, units: int = 1) -> None:
    wall = cpu_s if wall_s is None else wall_s
    ring.add(round(wall * 1e9), round(cpu_s * 1e9), units=units, end_ns=round(end_s * 1e9))


@settings(max_examples=50, deadline=None)
@given(batches=st.lists(st.integers(0, 20), max_size=12), slots=st.integers(1, 16))
def test_units_are_read_once_in_order_or_counted_as_lost(
    tmp_path_factory: pytest.TempPathFactory, batches: list[int], slots: int
) -> None:
    ring = Ring(tmp_path_factory.mktemp("ring") / "r", slots=slots)
    reader = Reader(ring.path)
    written, seen = 0, []
    for batch in batches:
        for _ in range(batch):
            written += 1
            add(ring, written, 0.25, units=written)
        seen += [unit.units for unit in reader.read()]
    assert seen == sorted(set(seen))
    assert len(seen) + reader.lost == written
    assert reader.torn == 0


@settings(max_examples=60, deadline=None)
@given(at=st.integers(0, 39), bits=st.integers(1, 255))
def test_a_slot_that_is_half_written_is_not_believed(
    tmp_path_factory: pytest.TempPathFactory, at: int, bits: int
) -> None:
    path = tmp_path_factory.mktemp("ring") / "r"
    ring = Ring(path, slots=4)
    reader = Reader(path)
    add(ring, 1.0, 0.5)
    with path.open("r+b") as file:
        file.seek(64 + at)
        byte = file.read(1)[0]
        file.seek(64 + at)
        file.write(bytes([byte ^ bits]))
    add(ring, 2.0, 0.5)
    assert [unit.end_s for unit in reader.read()] == [2.0]
    assert reader.torn == 1


def test_a_sound_slot_of_another_round_is_lost_and_its_neighbours_are_not(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "r", slots=4)
    reader = Reader(ring.path)
    for number in (1, 2, 3):
        add(ring, number, 0.5)
    with ring.path.open("r+b") as file:
        file.seek(64)
        first = file.read(40)
        file.write(first)
    assert [unit.end_s for unit in reader.read()] == [1.0, 3.0]
    assert (reader.torn, reader.lost) == (0, 1)


def test_sums_of_all_that_was_written_outlive_its_slots(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "r", slots=4)
    reader = Reader(ring.path)
    assert reader.totals() is None
    add(ring, 0.0, 0.5)
    before = reader.totals()
    for number in range(1, 11):
        add(ring, number, 0.25, wall_s=0.5, units=2)
    after = reader.totals()
    assert before is not None
    assert after is not None
    new = after.since(before)
    assert (new.slots, new.units, new.cpu_ns, new.wall_ns) == (10, 20, 2_500_000_000, 5_000_000_000)
    assert new.end_ns == 10_000_000_000
    reader.skip(after.slots)
    assert reader.read() == ()
    assert reader.newest(9) == (125_000_000.0,) * 2, "half of the slots at most"


@settings(max_examples=60, deadline=None)
@given(at=st.integers(24, 63), bits=st.integers(1, 255))
def test_sums_that_are_half_written_are_not_believed(
    tmp_path_factory: pytest.TempPathFactory, at: int, bits: int
) -> None:
    path = tmp_path_factory.mktemp("ring") / "r"
    ring = Ring(path, slots=4)
    add(ring, 1.0, 0.5)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ bits]))
    assert Reader(path).totals() is None


def test_other_files_are_no_rings(tmp_path: Path) -> None:
    for name, content in {"short": b"x", "foreign": b"y" * 500}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match="ring"):
            Reader(tmp_path / name)
    ring = Ring(tmp_path / "later")
    with (tmp_path / "later").open("r+b") as file:
        file.seek(8)
        file.write(b"\x09")
    with pytest.raises(ValueError, match="version is 9"):
        Reader(tmp_path / "later")
    ring.close()
    ring.step()


def test_a_step_is_timed_by_wall_and_cpu(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "r")
    reader = Reader(tmp_path / "r")
    ring.start()
    sum(range(100_000))
    ring.step(3)
    (unit,) = reader.read()
    assert unit.units == 3
    assert unit.cpu_s > 0
    assert unit.wall_s > 0


def test_a_program_writes_without_knowing_whether_anyone_listens(tmp_path: Path) -> None:
    for environ in ({}, {"SHOAL_RING": str(tmp_path / "no" / "such")}):
        ring = Ring.from_environment(environ)
        ring.start()
        ring.step()
        ring.add(1, 1)
        ring.close()
    code = "from shoal.ring import Ring; Ring.from_environment().step()"
    source = str(Path(__file__).parents[2] / "src")
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "SHOAL_RING": str(tmp_path), "PYTHONPATH": source}, check=True
    )
    (path,) = tmp_path.glob("*.ring")
    assert len(Reader(path).read()) == 1


# --- the sensor ---


def step(sensor: StepTimes, now: float, since: float = EVER, quantity: Quantity = Quantity.STEP) -> Reading:
    return sensor.read(now, {}, since)[Key(quantity, Scope.GROUP, "service")]


def test_a_step_is_the_mean_cpu_time_of_new_units(tmp_path: Path) -> None:
    ring, sensor = Ring(tmp_path / "r"), StepTimes({"service": tmp_path / "r"})
    add(ring, 1.0, 0.2)
    add(ring, 1.4, 0.4, wall_s=0.4, units=2)
    assert step(sensor, 1.5).value == pytest.approx(0.6 / 3)
    add(ring, 1.6, 0.1)
    assert step(sensor, 1.7).value == pytest.approx(0.1)
    assert step(sensor, 1.7, quantity=Quantity.TAIL).value == pytest.approx(0.2)


@settings(max_examples=40, deadline=None)
@given(
    batches=st.lists(st.lists(st.integers(1, 9), max_size=6), min_size=1, max_size=6),
    frozen=st.integers(0, 6), without_sums=st.booleans(),
)  # fmt: skip
def test_a_step_is_the_same_by_sums_and_unit_by_unit(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[int]], frozen: int, without_sums: bool
) -> None:
    path = tmp_path_factory.mktemp("ring") / "r"
    ring, sensor = Ring(path), StepTimes({"service": path})
    end, since, expected = 10.0, EVER, None
    for number, batch in enumerate(batches):
        if number == frozen:
            since, expected = end, None  # what began before says nothing from here on
        for cpu in batch:
            end += 1.0
            add(ring, end, cpu / 10, wall_s=1.0)
        if batch:
            expected = sum(batch) / len(batch) / 10
        if without_sums:
            with path.open("r+b") as file:
                file.seek(60)
                file.write(bytes(4))
        reading = step(sensor, end, since)
        assert reading.known() == (None if expected is None else pytest.approx(expected))


def test_work_under_way_is_no_silence_but_silence_ages(tmp_path: Path) -> None:
    ring, sensor = Ring(tmp_path / "r"), StepTimes({"service": tmp_path / "r"})
    add(ring, 1.0, 0.5)
    assert step(sensor, 1.4).age_s == 0
    assert step(sensor, 9.0).age_s == pytest.approx(7.5)
    assert step(sensor, 9.0).known() is None


def test_units_from_before_the_conditions_changed_tell_nothing(tmp_path: Path) -> None:
    ring, sensor = Ring(tmp_path / "r"), StepTimes({"service": tmp_path / "r"})
    add(ring, 1.0, 0.2)
    assert step(sensor, 1.1).known() == pytest.approx(0.2)
    add(ring, 1.3, 0.2, wall_s=0.3)  # began at 1.0
    reading = step(sensor, 1.35, since=1.1)
    assert isinstance(reading.value, Missing)
    assert "since other work was frozen" in reading.value.reason
    add(ring, 1.4, 0.09)
    assert step(sensor, 1.45, since=1.1).known() == pytest.approx(0.09)
    assert step(sensor, 1.47, since=1.1).known() == pytest.approx(0.09)


def test_rings_of_several_processes_and_new_ones_are_found(tmp_path: Path) -> None:
    sensor = StepTimes({"service": tmp_path})
    first = step(sensor, 0.0)
    assert isinstance(first.value, Missing)
    assert "no program has written" in first.value.reason
    one, two = Ring(tmp_path / "1.ring"), Ring(tmp_path / "2.ring")
    add(one, 1.5, 0.1)
    add(two, 1.6, 0.3)
    assert step(sensor, 2.0).value == pytest.approx(0.2)
    again = Ring(tmp_path / "1.ring")  # the program was started again
    add(again, 3.0, 0.5)
    assert step(sensor, 3.5).value == pytest.approx(0.5)
    (tmp_path / "2.ring").unlink()
    assert step(sensor, 5.0).value == pytest.approx(0.5)


def test_a_ring_that_is_cut_short_or_says_nonsense_harms_nobody(tmp_path: Path) -> None:
    ring, sensor = Ring(tmp_path / "r"), StepTimes({"service": tmp_path / "r"})
    add(ring, 1.0, 0.2)
    add(ring, 1.1, 0.2, units=0)
    assert step(sensor, 1.2).value == pytest.approx(0.2)
    os.truncate(tmp_path / "r", 80)
    ring_of_another = Reader(_fresh(tmp_path / "other"))
    os.truncate(tmp_path / "other", 0)
    with pytest.raises(ValueError, match="cut short"):
        ring_of_another.read()
    assert step(sensor, 9.0).known() is None


def _fresh(path: Path) -> Path:
    Ring(path).close()
    return path


def test_a_file_that_is_no_ring_is_named(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("something else")
    reading = step(StepTimes({"service": tmp_path / "r"}), 0.0)
    assert isinstance(reading.value, Missing)
    assert "shorter than a ring" in reading.value.reason


@pytest.mark.parametrize(("slots", "length"), [(1 << 24, 64 + 40 * (1 << 24)), (1024, 64 + 40 * 1025), (1024, 4096)])
def test_a_reader_refuses_slots_without_bound_and_a_size_that_is_not_theirs(
    tmp_path: Path, slots: int, length: int
) -> None:
    with (tmp_path / "r").open("wb") as file:
        file.write(struct.pack("<8sIIIIQ", b"SHOALRNG", 1, slots, 1, 0, 1 << 40))
        file.truncate(length)
    with pytest.raises(ValueError, match="slots"):
        Reader(tmp_path / "r")


def test_a_ring_of_the_most_slots_is_read_and_a_larger_one_not_written(tmp_path: Path) -> None:
    ring = Ring(tmp_path / "r", slots=MOST_SLOTS)
    ring.add(1, 1)
    assert len(Reader(tmp_path / "r").read()) == 1
    with pytest.raises(ValueError, match="slots"):
        Ring(tmp_path / "s", slots=MOST_SLOTS + 1)
