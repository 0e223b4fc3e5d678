"""Packages of others, as an installer leaves them: for tests of what joins Shoal from outside."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path


def install(folder: Path, package: str, files: Mapping[str, str], components: Mapping[str, str]) -> dict[str, str]:
    """Put a package with these modules and rows of `shoal.components` into a folder; the environment in which Python
    finds it there."""
    info = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    rows = "".join(f"{name} = {target}\n" for name, target in components.items())
    (info / "entry_points.txt").write_text(f"[shoal.components]\n{rows}")
    for name, text in files.items():
        (folder / name).write_text(text)
    return {**os.environ, "PYTHONPATH": str(folder)}
