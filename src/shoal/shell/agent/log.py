"""Log of decisions and their outcomes: one file of JSON lines for each run of a shell."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.core import NotFound

KEPT_RUNS = 100
MOST_BYTES = 16 << 20
"""Of one run: a loop that never ends must not fill the disk."""
_MOST_WORDS = 200


class RunLog:
    """`HOME/shell/runs/RUN.jsonl`; the last hundred runs are kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "runs"
        self._folder.mkdir(exist_ok=True, mode=0o700)

    def write(self, run: str, entry: Mapping[str, Any]) -> None:
        path = self._folder / f"{name_of(run)}.jsonl"
        new = not path.exists()
        if not new and path.stat().st_size > MOST_BYTES:
            return
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"at": time.time(), **entry}) + "\n")
        if new:
            self._prune()

    def _prune(self) -> None:
        for old in sorted(self._folder.glob("*.jsonl"))[:-KEPT_RUNS]:
            old.unlink(missing_ok=True)


def name_of(run: str) -> str:
    return "".join(one for one in run if one.isalnum() or one in "-_")[:100] or "unnamed"


def shown(argv: Sequence[str]) -> str:
    """A command as one line for people; long ones are cut."""
    import shlex

    text = shlex.join(one.encode("utf-8", "replace").decode() for one in argv[:40])
    return text if len(text) <= _MOST_WORDS else text[: _MOST_WORDS - 1] + "…"


def read_run(folder: Path, run: str | None) -> tuple[str, list[dict[str, Any]]]:
    """The entries of a run, of the last one unless it is named. Raises NotFound."""
    runs = folder / "runs"
    paths = (
        [runs / f"{name_of(run)}.jsonl"] if run else sorted(runs.glob("*.jsonl"), key=lambda one: one.stat().st_mtime)
    )
    if not paths or not paths[-1].exists():
        raise NotFound("no run was logged" if run is None else f"there is no run {run!r}", where=str(runs),
                       hint="only commands that have to do with a site are logged")  # fmt: skip
    return paths[-1].stem, [json.loads(line) for line in paths[-1].read_text().splitlines()]
