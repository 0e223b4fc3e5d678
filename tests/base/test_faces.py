"""Names of a package's face are imported on first use, and all of them are there."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("package", ["measure", "schedule"])
def test_a_face_has_what_it_names_and_nothing_else(package: str) -> None:
    face = importlib.import_module(f"shoal.{package}")
    assert [name for name in face.__all__ if getattr(face, name) is None] == []
    modules = {path.stem for path in Path(face.__path__[0]).iterdir()}
    assert modules & set(face.__all__) == set(), "importing the module would hide the name"
    with pytest.raises(AttributeError, match=f"module 'shoal.{package}' has no attribute 'nothing'"):
        face.nothing  # noqa: B018


@pytest.mark.parametrize("package", ["measure", "schedule"])
def test_a_package_loads_no_library_before_it_is_used(package: str) -> None:
    program = f"import sys, shoal.{package}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
