"""Processes on a device without a seat are found by the files that they hold open."""

from __future__ import annotations

from pathlib import Path

from shoal.device.unseated import Unseated, unseated

UUID = "GPU-11111111-2222-3333-4444-555555555555"


def process(proc: Path, pid: int, name: str, *files: str, inner: int | None = None) -> None:
    folder = proc / str(pid)
    (folder / "fd").mkdir(parents=True)
    (folder / "comm").write_text(name + "\n")
    (folder / "status").write_text(f"Name:\t{name}\nNSpid:\t{pid}" + (f"\t{inner}" if inner else "") + "\n")
    for number, target in enumerate(files):
        (folder / "fd" / str(number)).symlink_to(target)


def machine(proc: Path) -> None:
    for number, uuid in enumerate((UUID, UUID.replace("1", "9"))):
        folder = proc / f"driver/nvidia/gpus/0000:0{number}:00.0"
        folder.mkdir(parents=True)
        (folder / "information").write_text(f"Model: \t\t H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {number}\n")


def test_who_holds_a_device_open_and_has_no_seat_is_found_with_the_device(tmp_path: Path) -> None:
    machine(tmp_path)
    process(tmp_path, 7, "seated", "/dev/nvidia0")
    process(tmp_path, 8, "numba", "/dev/null", "/dev/nvidiactl", "/dev/nvidia0", "/dev/nvidia0")
    process(tmp_path, 9, "both", "/dev/nvidia1", "/dev/nvidia0")
    process(tmp_path, 10, "other", "/dev/nvidia-uvm", "/dev/nvidiactl", "/dev/nvidia-caps/nvidia-cap1")
    process(tmp_path, 100, "contained", "/dev/nvidia3", inner=11)
    (tmp_path / "self").mkdir()
    (tmp_path / "12").mkdir()  # gone while it was looked at
    ninth = UUID.replace("1", "9")
    found = [Unseated(UUID, 8, "numba"), Unseated(UUID, 9, "both"), Unseated(ninth, 9, "both")]
    assert unseated([7, 11], tmp_path) == found
    assert unseated([7], tmp_path) == [*found, Unseated("/dev/nvidia3", 100, "contained")]


def test_where_nothing_can_be_read_none_is_found(tmp_path: Path) -> None:
    assert unseated([], tmp_path / "none") == []
