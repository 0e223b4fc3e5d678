"""The real assembler takes every variant, for each generation of devices."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from shoal.device.ptx.safety import Refusal
from tests.device.ptx.scenarios import CORPUS, transformed

pytestmark = pytest.mark.skipif(shutil.which("ptxas") is None, reason="there is no ptxas here")

ALL = (80, 90, 100, 120)
ARCHITECTURES = {"cuobjdump_sm80.ptx": (80,), "nvcc_sm100.ptx": (100, 120), "triton_wgmma.ptx": ("90a",)}
CASES = [(path.name, arch) for path in sorted(CORPUS.glob("*.ptx")) for arch in ARCHITECTURES.get(path.name, ALL)]


@pytest.mark.few(count=8)
@pytest.mark.parametrize(("file", "arch"), CASES)
def test_every_variant_is_assembled(file: str, arch: int | str, tmp_path: Path) -> None:
    done = transformed(file)
    (tmp_path / file).write_text(done.text)
    command = ["ptxas", "-v", f"-arch=sm_{arch}", file, "-o", "out.cubin"]
    told = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    assembled = set(re.findall(r"Compiling entry function '(\w+)'", told.stderr))
    wanted = {name for modes in done.variants.values() for name in modes.values() if not isinstance(name, Refusal)}
    assert wanted | set(done.variants) == assembled
