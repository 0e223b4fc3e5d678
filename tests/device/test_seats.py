"""Where pages are kept, and what a program finds in its environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core import Capability, PriorityClass, Unavailable
from shoal.device import cuda, native, opencl, seats
from shoal.device.policy import Class, Rules

from .kit import native_only

G, B = PriorityClass.GUARANTEED, PriorityClass.BEST_EFFORT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOAL_DEVICE_FOLDER", str(tmp_path / "pages"))
    return tmp_path / "pages"


@pytest.fixture
def layer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the OpenCL layer was built."""
    monkeypatch.setattr(opencl, "environment", lambda base: {"OPENCL_LAYERS": f"{base.get('OPENCL_LAYERS', '')}:ours"})
    monkeypatch.setattr(seats, "_driver", lambda: None)


@pytest.mark.usefixtures("layer")
def test_a_seat_is_told_in_the_environment(folder: Path) -> None:
    seat = seats.Seat("GPU-1/a b", B, "train.py", weight=300, memory_bytes=1 << 30, transform=False)
    assert seats.environment(seat, {"OPENCL_LAYERS": "theirs"}) == {
        "OPENCL_LAYERS": "theirs:ours",
        "SHOAL_DEVICE_PAGE": str(folder / "GPU-1-a-b.page"),
        "SHOAL_DEVICE_PROFILE": str(folder / "GPU-1-a-b.profile"),
        "SHOAL_DEVICE_CLASS": "best-effort",
        "SHOAL_DEVICE_NAME": "train.py",
        "SHOAL_DEVICE_WEIGHT": "300",
        "SHOAL_DEVICE_MEMORY": str(1 << 30),
        "SHOAL_DEVICE_WAYS": "whole",
    }
    plain = seats.environment(seats.Seat("d", G, "serve"), {})
    assert plain["SHOAL_DEVICE_CLASS"] == "guaranteed"
    assert not plain.keys() & {"SHOAL_DEVICE_MEMORY", "SHOAL_DEVICE_WAYS"}


def test_without_anything_that_intercepts_launches_there_is_no_seat(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(base: object) -> dict[str, str]:
        raise Unavailable("the layer was not built")

    monkeypatch.setattr(opencl, "environment", none)
    monkeypatch.setattr(seats, "_driver", lambda: None)
    with pytest.raises(Unavailable, match=r"no libcuda.so.1 on this machine; the layer was not built"):
        seats.environment(seats.Seat("d", G, "serve"), {})
    if native.capability().available:
        assert seats.problem(accelerator=False) == "the layer was not built"
        assert seats.problem(accelerator=True) is not None


def test_programs_that_use_cuda_go_through_the_shim(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cuda, "shim", lambda: Capability("CUDA shim", True, "here"))
    monkeypatch.setattr(seats, "_driver", lambda: tmp_path / "libcuda.so.1")
    given = seats.environment(seats.Seat("d", B, "train"), {"LD_LIBRARY_PATH": "/theirs"})
    assert given["LD_LIBRARY_PATH"] == f"{cuda.FOLDER}:/theirs"
    assert given["SHOAL_REAL_LIBCUDA"] == str(tmp_path / "libcuda.so.1")
    if native.capability().available:
        assert seats.problem(accelerator=True) is None


def test_a_folder_that_others_may_write_to_is_not_used(folder: Path) -> None:
    assert seats.folder() == folder
    assert folder.stat().st_mode & 0o777 == 0o700
    folder.chmod(0o722)
    with pytest.raises(Unavailable, match="others may write to it"):
        seats.folder()
    folder.rmdir()
    folder.symlink_to(folder.parent)
    with pytest.raises(Unavailable):
        seats.folder()


@native_only
def test_a_page_keeps_its_rules_until_others_are_given(folder: Path) -> None:
    seats.open_page("d", Rules(bound_ns=7)).close()
    with seats.open_page("d") as page:
        assert page.rules().bound_ns == 7
    with seats.open_page("d", Rules(bound_ns=9)) as page:
        assert page.rules() == Rules(bound_ns=9)
    (folder / "broken.page").write_bytes(b"nothing")
    found = seats.pages()
    assert [page.device for page in found] == ["d"]
    for page in found:
        page.close()


@native_only
def test_a_page_of_another_version_is_replaced_unless_a_process_maps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOAL_DEVICE_FOLDER", str(tmp_path / "pages"))
    with seats.open_page("GPU-1") as page:
        assert (page.struct.header.magic, page.struct.header.version) == (native.PAGE_MAGIC, native.PAGE_VERSION)
        page.struct.header.version -= 1
        page.join(Class.GUARANTEED)
        with pytest.raises(Unavailable, match="another version of Shoal"):
            seats.open_page("GPU-1")
    with seats.open_page("GPU-1") as page:
        assert page.occupants() == []
