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


DEVICE = """
import contextlib
import numpy as np
from shoal.placement import Link

class Apart:
    def __init__(self, values):
        self.values = values

class Page:
    def send(self, values):
        return Apart(values.copy())

    def fetch(self, value, out):
        out[...] = value.values

    def keep(self, value):
        return value

    def kept(self, held):
        return held

    def apply(self, step, arguments):
        function = getattr(np, step.name)
        return Apart(function(*(each.values if isinstance(each, Apart) else each for each in arguments)))

    def finite(self, values):
        return all(np.isfinite(each.values).all() for each in values)

    def total(self, value):
        return float(value.values.sum())

class Fast:
    name = "elsewhere"
    link = Link(1e12)

    def can(self, step):
        return step.name in ("sin", "exp", "multiply") and step.loop[0] == "d"

    def element_s(self, step):
        return 1e-13

    def free_bytes(self):
        return 1 << 34

    def page(self):
        return contextlib.nullcontext(Page())
"""

ON_DEVICE = """
import numpy as np
import shoal.offload
from shoal.offload.profile import PROFILE
a = np.linspace(0, 1, 1_000_000)
b = np.exp(np.sin(np.exp(np.sin(a * 2.0))))
print(round(float(b.sum())), round(float(b.mean()), 3))
print(sorted({each.backend for each in PROFILE.records() if each.call in ("sin", "exp", "sum")}))
for each in shoal.offload.installation._current._evaluator.chooser.absent():
    if each.startswith("device"):
        print(each)
"""


def run(
    folder: Path, plugin: str, entry: str, program: str = PROGRAM, **options: str
) -> subprocess.CompletedProcess[str]:
    (folder / "other-1.dist-info").mkdir()
    (folder / "other-1.dist-info" / "entry_points.txt").write_text(entry)
    (folder / "plugin.py").write_text(plugin)
    (folder / "library.py").write_text(LIBRARY)
    (folder / "program.py").write_text(program)
    environ = environment({**os.environ, "PYTHONPATH": str(folder)}, home=folder, **options)
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


DEVICES = "[shoal.offload.devices]\nelsewhere = plugin:Fast\n"


def test_a_device_of_another_package_does_the_work(tmp_path: Path) -> None:
    ended = run(tmp_path, DEVICE, DEVICES, ON_DEVICE, device="elsewhere", compile="never")
    assert ended.stdout.splitlines() == ["2096184 2.096", "['elsewhere']"], ended.stderr


@pytest.mark.parametrize(
    ("plugin", "entry", "reason"),
    [
        ("raise OSError('no licence')", DEVICES, "device: it cannot be used: no licence"),
        ("def Fast():\n    raise OSError('no licence')", DEVICES, "device: it cannot be used: no licence"),
        (DEVICE, "", "device: it cannot be used: no package offers the device elsewhere"),
    ],
)
def test_a_device_that_cannot_be_used_leaves_the_work_at_home(
    tmp_path: Path, plugin: str, entry: str, reason: str
) -> None:
    ended = run(tmp_path, plugin, entry, ON_DEVICE, device="elsewhere", compile="never")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[0] == "2096184 2.096"
    assert reason in ended.stdout.splitlines()
