"""Another package's declarations: found by entry points, used once the library is imported, taken back in the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.offload.launch import environment
from shoal.offload.plugins import declared

PLUGIN = """
import threading
from shoal.offload.annotations import Broadcast, NdArraySplit, annotate
print("plugin")

def declare():
    import library
    return annotate(library, "twice", (NdArraySplit(),), {}, NdArraySplit(), threshold=1000)
"""

LIBRARY = """
pieces = []

def twice(array):
    pieces.append(len(array))
    return array * 2
"""

PROGRAM = """
import numpy as np
import shoal.offload
print("program")
import library
assert (library.twice(np.ones(100_000)) == 2).all()
print(len(library.pieces) > 1, sum(library.pieces))
assert library.twice(np.ones(10)).sum() == 20
shoal.offload.uninstall()
print(library.twice.__module__, len(library.twice(np.ones(100_000))), library.pieces[-1])
"""


def run(folder: Path, plugin: str, entry: str) -> subprocess.CompletedProcess[str]:
    (folder / "other-1.dist-info").mkdir()
    (folder / "other-1.dist-info" / "entry_points.txt").write_text(entry)
    (folder / "plugin.py").write_text(plugin)
    (folder / "library.py").write_text(LIBRARY)
    (folder / "program.py").write_text(PROGRAM)
    environ = environment({**os.environ, "PYTHONPATH": str(folder)}, home=folder)
    argv = [sys.executable, folder / "program.py"]
    return subprocess.run(argv, env=environ, capture_output=True, text=True, check=False)


def test_a_declaration_is_used_once_the_library_is_imported(tmp_path: Path) -> None:
    ended = run(tmp_path, PLUGIN, "[shoal.offload]\nlibrary = plugin:declare\n[console_scripts]\nx = y:z\n")
    assert ended.stdout.splitlines() == ["program", "plugin", "True 100000", "library 100000 100000"], ended.stderr


@pytest.mark.parametrize("plugin", ["raise OSError('no licence')", "def declare():\n    raise OSError('no licence')"])
def test_a_plugin_that_fails_leaves_the_library_as_it_was(tmp_path: Path, plugin: str) -> None:
    ended = run(tmp_path, plugin, "[shoal.offload]\nlibrary = plugin:declare\n")
    assert "plugin:declare declares nothing for library: no licence" in ended.stderr
    assert ended.stdout.splitlines()[1:] == ["False 100000", "library 100000 100000"]


@pytest.mark.parametrize(
    "text", ["[shoal.offload", "[shoal.offload]\n\0", "", "[other]\na = b:c\n", "[shoal.offload]\n==\n"]
)
def test_lists_that_are_no_lists_are_left_out(tmp_path: Path, text: str) -> None:
    (tmp_path / "a-1.dist-info").mkdir()
    (tmp_path / "a-1.dist-info" / "entry_points.txt").write_text(text)
    assert not set(declared([str(tmp_path), "/nowhere"])) - {"\0"}
