"""The table of a mutation run, by file, from what `mutmut results` says:

    python tests/mutation.py

ends with 1 when fewer than 90 % of the changes that were tried were noticed.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

BAR = 0.9
_UNNOTICED = {"survived", "no tests"}
_LINE = re.compile(r"\s*(?P<module>[\w.]+)\.x[_ǁ].*?: (?P<status>[a-z ]+)$")


def counted(lines: list[str]) -> dict[str, Counter[str]]:
    """How many changes of each module came to what; those that were not tried are left out."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        told = _LINE.match(line)
        if told and told["status"] != "not checked":
            found[told["module"]][told["status"]] += 1
    return dict(found)


def main() -> int:
    mutmut = Path(sys.executable).with_name("mutmut")
    said = subprocess.run([mutmut, "results", "--all", "true"], capture_output=True, text=True, check=True)
    total = Counter[str]()
    print(f"{'module':45} {'changes':>8} {'noticed':>8} {'share':>6}")
    for module, statuses in sorted(counted(said.stdout.splitlines()).items()):
        total += statuses
        _print(module, statuses)
    _print("all", total)
    return int(_noticed(total) < BAR * total.total())


def _noticed(statuses: Counter[str]) -> int:
    return sum(count for status, count in statuses.items() if status not in _UNNOTICED)


def _print(name: str, statuses: Counter[str]) -> None:
    tried, noticed = statuses.total(), _noticed(statuses)
    print(f"{name:45} {tried:8} {noticed:8} {noticed / max(tried, 1):6.1%}")


if __name__ == "__main__":
    sys.exit(main())
