"""What a program needs in its environment, and what is said of a machine's driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core import Unavailable
from shoal.device import cuda
from tests.device.cuda.kit import FAKE, needs_fake


@needs_fake
def test_a_driver_is_found_on_the_library_path_and_asked_in_a_process_of_its_own(tmp_path: Path) -> None:
    found = cuda.find_driver({"LD_LIBRARY_PATH": f"{tmp_path}:{cuda.FOLDER}:{FAKE}"})
    assert found == FAKE / cuda.LIBRARY  # and never the shim itself
    driver = cuda.probe(found)
    assert driver.version == (13, 0)
    assert [(one.name, one.memory_bytes) for one in driver.devices] == [("Fake device", 1 << 30)]
    assert driver.devices[0].uuid == "GPU-fafafafa-fafa-fafa-fafa-fafafafafafa"


@needs_fake
def test_the_shim_comes_first_once_and_the_rest_of_the_path_stays() -> None:
    first = cuda.environment({"LD_LIBRARY_PATH": "/a:/b", "LD_PRELOAD": "/x.so:/y.so"}, Path("/driver"))
    assert first == {
        "LD_LIBRARY_PATH": f"{cuda.FOLDER}:/a:/b",
        "LD_PRELOAD": f"/x.so /y.so {cuda.PRELOAD}",
        "SHOAL_REAL_LIBCUDA": "/driver",
    }
    assert cuda.environment(first, Path("/driver")) == first


def test_a_program_keeps_its_own_assembler(tmp_path: Path) -> None:
    own = {"HOME": str(tmp_path), "TRITON_PTXAS_PATH": "/mine"}
    assert "TRITON_PTXAS_PATH" not in cuda.environment(own, Path("/driver"), variants=True)


def test_a_library_that_is_no_driver_is_named_with_the_reason(tmp_path: Path) -> None:
    library = tmp_path / cuda.LIBRARY
    library.write_text("nonsense")
    with pytest.raises(Unavailable, match=r"cannot be used: .*file too short"):
        cuda.probe(library)


def test_the_assembler_is_that_of_the_triton_beside_the_program(tmp_path: Path) -> None:
    bundled = tmp_path / "venv/lib/python3.12/site-packages/triton/backends/nvidia/bin/ptxas"
    bundled.parent.mkdir(parents=True)
    bundled.touch(mode=0o755)
    program = str(tmp_path / "venv/bin/python")
    assert cuda.assembler({"PATH": ""}, program) == bundled
    mine = tmp_path / "mine"
    assert cuda.assembler({"PATH": "", "SHOAL_PTXAS": str(mine)}, program) is None, "the one that was named is absent"
    mine.touch(mode=0o755)
    assert cuda.assembler({"PATH": "", "SHOAL_PTXAS": str(mine)}, program) == mine


def test_the_glibc_that_a_library_needs_is_read_from_it(tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.write_bytes(b"\0GLIBC_2.4\0GLIBC_2.36\0xGLIBC_2.99\0GLIBC_2.2.5\0GLIBCXX_3.4.30\0")
    assert cuda.glibc_needed(library) == (2, 36)


@needs_fake
def test_on_an_older_c_library_the_shim_is_left_out_and_that_is_said() -> None:
    assert cuda.shim().available
    needed = cuda.glibc_needed(cuda.FOLDER / cuda.LIBRARY)
    assert (2, 2) < needed < (3, 0)
    assert cuda.shim(needed).available
    older = cuda.shim((needed[0], needed[1] - 1))
    assert not older.available
    assert f"needs glibc {needed[0]}.{needed[1]}, and this machine has 2.{needed[1] - 1}" in older.detail
