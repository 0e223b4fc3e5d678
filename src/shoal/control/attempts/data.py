"""Fetches a job's inputs and stores its outputs: run as a process of its own, in the job's run directory.

    python -m shoal.control.attempts.data download|store '[{"from": URL-or-path, "to": URL-or-path, "optional": false}]'

A target appears whole or not at all: everything is copied to a temporary name beside it first, so a repeated run
after a crash starts over harmlessly.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any


def main(argv: list[str]) -> int:
    phase, moves = argv[0], json.loads(argv[1])
    for move in moves:
        try:
            copy(move["from"], move["to"], optional=bool(move.get("optional")))
        except (OSError, ValueError, ImportError, RuntimeError) as error:
            print(f"{phase}: {move['from']} -> {move['to']}: {str(error) or type(error).__name__}", flush=True)
            return 1
        print(f"{phase}: {move['from']} -> {move['to']}", flush=True)
    return 0


def copy(source: str, target: str, *, optional: bool = False) -> None:
    """Copy a file or a directory tree between local paths and fsspec URLs.

    Raises FileNotFoundError for a missing source unless it is optional, and what the filesystem raises otherwise.
    """
    if "://" not in source and "://" not in target:
        _copy_local(Path(source), Path(target), optional=optional)
    else:
        _copy_by_url(source, target, optional=optional)


def _copy_local(source: Path, target: Path, *, optional: bool) -> None:
    if not source.exists():
        if optional:
            return
        raise FileNotFoundError(f"no such file or directory: {source}")
    target.parent.mkdir(parents=True, exist_ok=True)
    staged = target.with_name(f".{target.name}.{os.getpid()}.part")
    if source.is_dir():
        shutil.copytree(source, staged)
        if target.is_dir():
            shutil.rmtree(target)
    else:
        shutil.copy2(source, staged)
    staged.replace(target)


def _absence(filesystem: Any, path: str, source: str) -> OSError:
    """Why a source is not there. fsspec calls a server that does not answer a missing file as well; the cause of its
    error tells."""
    try:
        filesystem.info(path)
    except FileNotFoundError as error:
        if isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, FileNotFoundError):
            return ConnectionError(f"{source} cannot be reached: {error.__cause__}")
    return FileNotFoundError(f"no such file or directory: {source}")


def _copy_by_url(source: str, target: str, *, optional: bool) -> None:
    from fsspec.core import url_to_fs  # heavy, and needed for URLs only

    source_fs, source_path = url_to_fs(source)
    if not source_fs.exists(source_path):
        if optional:
            return
        raise _absence(source_fs, source_path, source)
    target_fs, target_path = url_to_fs(target)
    show_in = getattr(source_fs, "show_in", None)  # of a file system whose files lie on this machine's disk
    if show_in is not None and "://" not in target and show_in(source_path, target_path):
        return
    if not _is_tree(source_fs, source_path):
        _copy_file(source_fs, source_path, target_fs, target_path)
        return
    root = source_path.rstrip("/")
    for path in source_fs.find(root):
        _copy_file(source_fs, path, target_fs, f"{target_path.rstrip('/')}/{path[len(root) :].lstrip('/')}")


def _is_tree(filesystem: Any, path: str) -> bool:
    return bool(filesystem.isdir(path))


def _copy_file(source_fs: Any, source: str, target_fs: Any, target: str) -> None:
    target_fs.makedirs(target_fs._parent(target), exist_ok=True)
    with source_fs.open(source, "rb") as reader:
        if isinstance(target_fs.protocol, str) and target_fs.protocol != "file":
            with target_fs.open(target, "wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
            return
        staged = f"{target}.{os.getpid()}.part"
        with target_fs.open(staged, "wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
        target_fs.mv(staged, target)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
