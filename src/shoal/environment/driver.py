"""The driver's libraries of this machine, which a program in an image needs to reach a GPU and an image never holds.

They are named by the Container Device Interface where NVIDIA's toolkit has written it down (`nvidia-ctk cdi generate`),
else by the loader's own list.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

_FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_KIND = "nvidia.com/gpu"
_LIBRARY = re.compile(r"lib[\w+.-]+\.so(\.[\w.]+)?")
_DRIVER = re.compile(r"lib(cuda|cudadebugger|nvcuvid|nvidia-[\w-]+|nvoptix)\.so[\w.]*")
_LISTED = re.compile(r"^\s*(?P<name>\S+) \((?P<kind>[^)]*)\) => (?P<path>/\S+)$", re.MULTILINE)
_LOADER = ("/sbin/ldconfig", "-p")
_WAIT_S = 10.0


def driver_files(folders: Iterable[Path] = _FOLDERS, loader: Iterable[str] = _LOADER) -> dict[str, str]:
    """The path of each library by each name that a program may load it by. Empty where there is no driver. Blocks."""
    named = [path for spec in _specs(folders) for path in libraries_of(spec)]
    if named:
        return {name: path for path in named for name in _names(Path(path))}
    try:
        told = subprocess.run([*loader], capture_output=True, text=True, timeout=_WAIT_S, check=False).stdout
    except (OSError, subprocess.SubprocessError):
        return {}
    return {name: str(Path(path).resolve()) for name, path in listed(told).items() if Path(path).exists()}


def libraries_of(spec: Any) -> list[str]:
    """The libraries of the machine that a specification of NVIDIA's devices mounts into every container. Pure."""
    if not isinstance(spec, Mapping) or spec.get("kind") != _KIND:
        return []
    devices = [one for one in spec.get("devices") or () if isinstance(one, Mapping) and one.get("name") == "all"]
    found = dict[str, None]()
    for edits in (one.get("containerEdits") for one in (spec, *devices)):
        for mount in (edits or {}).get("mounts") or ():
            path = str(mount.get("hostPath", ""))
            if path.startswith("/") and _LIBRARY.fullmatch(path.rpartition("/")[2]):
                found[path] = None
    return list(found)


def listed(told: str) -> dict[str, str]:
    """The driver's libraries in what `ldconfig -p` prints, those for 64 bits. Pure."""
    return {
        one["name"]: one["path"]
        for one in _LISTED.finditer(told)
        if _DRIVER.fullmatch(one["name"]) and ("x86-64" in one["kind"] or "AArch64" in one["kind"])
    }


def _specs(folders: Iterable[Path]) -> Iterator[Any]:
    for folder in folders:
        for path in sorted(folder.glob("*")) if folder.is_dir() else ():
            try:
                if path.suffix == ".json":
                    yield json.loads(path.read_bytes())
                elif path.suffix in (".yaml", ".yml"):
                    import yaml

                    yield yaml.safe_load(path.read_bytes())
            except Exception:  # noqa: S112 - whatever a broken file does to a parser: the next one may say it
                continue


def _names(path: Path) -> list[str]:
    """Of a library: its own, and those of the links beside it."""
    try:
        links = [one.name for one in path.parent.iterdir() if one.is_symlink() and one.resolve() == path.resolve()]
    except OSError:
        return []
    return [path.name, *links] if path.exists() else []
