"""Declarations of other packages, by entry points of the group `shoal.offload`: `"library.module" =
"package.module:declare"`.

`declare` is called once that module of the library is imported, and answers what takes its declarations back. The
installed packages' own lists are read, which takes a few milliseconds; nothing of theirs is imported before.
"""

from __future__ import annotations

import configparser
import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

GROUP = "shoal.offload"

Undo = Callable[[], None]
Declare = Callable[[], Undo]


def declared(path: Sequence[str]) -> Mapping[str, str]:
    """By the library's module, the function to be called. A list that cannot be read is left out."""
    found: dict[str, str] = {}
    for folder in map(Path, path):
        try:
            names = [each.name for each in os.scandir(folder) if each.name.endswith((".dist-info", ".egg-info"))]
        except OSError:
            continue
        for name in names:
            try:
                text = (folder / name / "entry_points.txt").read_text()
            except OSError:
                continue
            if f"[{GROUP}]" in text:
                found |= _section(text)
    return found


def _section(text: str) -> Mapping[str, str]:
    parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
    parser.optionxform = str  # type: ignore[assignment, method-assign]  # names keep their case
    try:
        parser.read_string(text)
        return dict(parser[GROUP])
    except (configparser.Error, KeyError):
        return {}


def actions(path: Sequence[str], undo: list[Undo]) -> Mapping[str, Callable[[], None]]:
    """By module, what is to be done once it is imported. One that fails says so, and the library is as it was."""
    return {module: partial(_declare, module, target, undo) for module, target in declared(path).items()}


def _declare(module: str, target: str, undo: list[Undo]) -> None:
    name, _, function = target.partition(":")
    try:
        declare: Declare = getattr(importlib.import_module(name), function)
        undo.append(declare())
    except Exception as error:  # another package's error must not keep the program from running
        print(f"shoal offload: {target} declares nothing for {module}: {error}", file=sys.stderr)
