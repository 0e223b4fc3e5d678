"""Change one operator, number, argument or word at a time and see whether a test notices: mutmut, part by part.

    python tests/mutation.py [PART ...]      all parts of `[tool.shoal.mutation]` in pyproject.toml without one

Each part has a folder of its own in build/mutation, so that a run notes the calls of its modules alone and makes only
the tests named there ready. What is known from an earlier run is kept. DRAW=60 tries so many of each module's changes,
drawn by a fixed seed. Ends with 1 when fewer than 90 % of the changes were noticed.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

BAR = 0.9
ROOT = Path(__file__).resolve().parent.parent
_LINKED = ("src", "tests", "examples", "docs", "benchmarks", "native", "Makefile", "README.md", "constraints.txt")
_PYTEST = ["--hypothesis-profile=mutation", "--timeout=900", "-p", "no:cacheprovider"]  # calls that are noted are slow
_UNNOTICED = {"survived", "no tests"}
_LINE = re.compile(r"\s*(?P<module>[\w.]+)\.x[_ǁ].*: (?P<status>[a-z ]+)$")


def prepare(folder: Path, part: Mapping[str, Sequence[str]]) -> None:
    """A folder that looks like the project to mutmut, which reads its settings nowhere else."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in _LINKED:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(ROOT / name)
    settings = {
        "source_paths": ["src"],
        "only_mutate": [f"src/shoal/{path}" for path in part["modules"]],
        "pytest_add_cli_args_test_selection": [f"tests/{path}" for path in part["tests"]],
        "pytest_add_cli_args": [*_PYTEST, *(["-k", part["only"]] if "only" in part else [])],
        "also_copy": ["benchmarks", "examples"],
        "timeout_multiplier": 4.0,
        "timeout_constant": 5.0,
    }
    told = "".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items())
    told += "track_dependencies = false\nuse_git_change_detection = false\n"
    (folder / "pyproject.toml").write_text(f"{(ROOT / 'pyproject.toml').read_text()}\n[tool.mutmut]\n{told}")


def counted(lines: Sequence[str]) -> dict[str, Counter[str]]:
    """How many changes of each module came to what; those that were not tried are left out."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        told = _LINE.match(line)
        if told and told["status"] != "not checked":
            found[told["module"]][told["status"]] += 1
    return dict(found)


def drawn(lines: Sequence[str], most: int) -> list[str]:
    """So many changes of each module, the same ones each time."""
    by_module: dict[str, list[str]] = defaultdict(list)
    for line in sorted(lines):
        if told := _LINE.match(line):
            by_module[told["module"]].append(line.rpartition(":")[0].strip())
    return [name for names in by_module.values() for name in random.Random(1).sample(names, min(most, len(names)))]


def main(names: Sequence[str]) -> int:
    parts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["shoal"]["mutation"]
    if unknown := set(names) - set(parts):
        print(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(parts)}", file=sys.stderr)
        return 2
    mutmut = Path(sys.executable).with_name("mutmut")
    total = Counter[str]()
    table = []
    for name in names or parts:
        folder = ROOT / "build" / "mutation" / name
        prepare(folder, parts[name])
        print(f"== {name}", flush=True)
        run = [str(mutmut), "run", "--max-children", os.environ.get("WORKERS", "2")]
        chosen: list[str] = []
        if "DRAW" in os.environ:
            subprocess.run([*run, "none"], cwd=folder, check=False, capture_output=True)  # makes the changes
            chosen = drawn(_results(mutmut, folder), int(os.environ["DRAW"]))
        subprocess.run([*run, *chosen], cwd=folder, check=True)
        for module, statuses in sorted(counted(_results(mutmut, folder)).items()):
            total += statuses
            table.append(_row(module, statuses))
    print(f"{'module':40} {'changes':>8} {'noticed':>8} {'share':>6}", *table, _row("all", total), sep="\n")
    return int(_noticed(total) < BAR * total.total())


def _results(mutmut: Path, folder: Path) -> list[str]:
    words = [mutmut, "results", "--all", "true"]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=True).stdout.splitlines()


def _noticed(statuses: Counter[str]) -> int:
    return sum(count for status, count in statuses.items() if status not in _UNNOTICED)


def _row(name: str, statuses: Counter[str]) -> str:
    tried, noticed = statuses.total(), _noticed(statuses)
    return f"{name:40} {tried:8} {noticed:8} {noticed / max(tried, 1):6.1%}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
