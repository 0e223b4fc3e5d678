"""What the PTX transformations cover, and what they cost in registers, over the tests' corpus.

    python benchmarks/device_ptx.py [--json] [FILE.ptx ...]

An entry gets both variants or is refused with a reason. Registers are those that `ptxas -v` reports for a variant, less
those of the original, for each generation of devices; the text is made for an older one, so every generation compiles
it anew. Nothing runs on a device. Other PTX files may be named instead of the corpus.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from common import Row, parser, report

from shoal.device.ptx.safety import Refusal
from shoal.device.ptx.transform import MODES, Transformed, transform

CORPUS = Path(__file__).resolve().parents[1] / "tests" / "device" / "ptx" / "corpus"
ARCHITECTURES = ("80", "90", "100", "120")
SPILLED = re.compile(r"(\d+) bytes spill stores")
ENTRY = re.compile(r"Compiling entry function '(?P<name>\w+)'.*?Used (?P<registers>\d+) registers", re.DOTALL)


def registers(text: str, arch: str) -> dict[str, tuple[int, int]] | None:
    """Registers and bytes of spills of each entry; None where the text is not for such devices."""
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(text)
        file.flush()
        command = ["ptxas", "-v", f"-arch=sm_{arch}", file.name, "-o", "/dev/null"]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
    if told.returncode:
        return None
    return {
        found["name"]: (int(found["registers"]), sum(map(int, SPILLED.findall(found.group()))))
        for found in ENTRY.finditer(told.stderr)
    }


def covered(done: list[Transformed]) -> Iterator[Row]:
    entries = [modes for one in done for modes in one.variants.values()]
    yield Row("entries", len(entries), "entries")
    for mode in MODES:
        transformed = sum(not isinstance(modes[mode], Refusal) for modes in entries)
        yield Row(f"transformed, {mode}", transformed, "entries")
    causes = Counter(modes["slice"].cause for modes in entries if isinstance(modes["slice"], Refusal))
    for cause, count in causes.most_common():
        yield Row(f"refused, {cause}", count, "entries")


def costs(done: list[Transformed], arch: str) -> Iterator[Row]:
    more: dict[str, list[int]] = {mode: [] for mode in MODES}
    spills = 0
    for one in done:
        found = registers(one.text, arch)
        for entry, modes in one.variants.items() if found is not None else ():
            for mode, name in modes.items():
                if not isinstance(name, Refusal) and found is not None:
                    more[mode].append(found[name][0] - found[entry][0])
                    spills += found[name][1] > found[entry][1]
    for mode, extra in more.items():
        what = f"sm_{arch}, {mode}"
        yield Row(f"{what}: variants assembled", len(extra), "variants")
        if extra:
            yield Row(f"{what}: registers more than the original, mean", sum(extra) / len(extra), "registers")
            yield Row(f"{what}: registers more than the original, most", max(extra), "registers")
    yield Row(f"sm_{arch}: variants that spill more", spills, "variants")


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("files", nargs="*", type=Path, metavar="FILE.ptx", help="instead of the corpus")
    asked = arguments.parse_args()
    # What cuobjdump extracted is nvcc's text again, and would count twice.
    files = asked.files or [path for path in sorted(CORPUS.glob("*.ptx")) if "cuobjdump" not in path.name]
    done = [transform(path.read_text()) for path in files]
    rows = list(covered(done))
    if shutil.which("ptxas") is None:
        print("there is no ptxas here: no registers", file=sys.stderr)
    else:
        for arch in ARCHITECTURES:
            rows += costs(done, arch)
    return report("PTX transformations", rows, as_json=asked.json)


if __name__ == "__main__":
    raise SystemExit(main())
