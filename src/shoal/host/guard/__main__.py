"""`python -m shoal.host.guard FILE --parent PID`: a guard that is another program's child. It follows the groups in the
file, keeps its write-ahead log and journal beside it, and ends with its parent, limits taken back."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from shoal.base.processes import end_with_parent
from shoal.core import ShoalError


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m shoal.host.guard", description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--parent", type=int, required=True, help="the pid that started it")
    told = parser.parse_args(arguments)
    if not end_with_parent(told.parent, signal.SIGTERM):
        return 0
    try:
        _guard(told.file)
    except ShoalError as problem:
        print(f"{problem}", file=sys.stderr)
        return 1
    return 0


def _guard(path: Path) -> None:
    from shoal.host.guard.daemon import guard_here, spare_the_collector
    from shoal.host.guard.follow import FollowedFile

    def note(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    spare_the_collector()
    file = FollowedFile(path)
    config = file.changed()
    assert config is not None, "it was not looked at before"
    guard_here(config, file, path.parent, config.journal.path or path.parent / "journal.jsonl", note=note)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
