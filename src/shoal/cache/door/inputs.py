"""A job's input as a folder of links, for what the cache can show without a copy."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shoal.cache.door.node import Node


def show_in(
    node: Node, url: str, options: dict[str, Any], view: str, target: Path, open_: Callable[[str], Any]
) -> bool:
    """Make the target, a file or a folder, of links into the job's view. What no link can show is copied by `open_`,
    which takes the name below the URL. False where there is no view: then it is all copied by others."""
    told = node.ask("show", url=url, options=options, view=view)
    if told is None or told["files"] is None:
        return False
    files, names = Path(told["files"]), json.loads(Path(told["names"]).read_bytes())["names"].values()
    for name in names:
        place = target if told["single"] else target / name
        place.parent.mkdir(parents=True, exist_ok=True)
        if not told["mounted"] and not _is_there(files / name):
            _fetch(lambda name=name: open_("" if told["single"] else f"/{name}"), files / name, place)  # type: ignore[misc]
        else:
            _link(files / name, place)
    return True


def _fetch(open_: Callable[[], Any], linked: Path, place: Path) -> None:
    """Opened, it is fetched into the cache if that wants it; else it is read from the source."""
    with open_() as reader:
        if _is_there(linked):
            _link(linked, place)
            return
        staged = place.with_name(f".{place.name}.{os.getpid()}.part")
        with staged.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
        staged.replace(place)


def _is_there(path: Path) -> bool:
    """Without following a link: that may lead to a mount which this process does not see."""
    return os.path.lexists(path)


def _link(to: Path, place: Path) -> None:
    staged = place.with_name(f".{place.name}.{os.getpid()}.part")
    staged.symlink_to(to)
    staged.replace(place)
