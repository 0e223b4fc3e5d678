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
