"""`shoal-ptxas`: an assembler for Triton that adds the variants of each kernel before the real ptxas sees the text.

Triton runs what TRITON_PTXAS_PATH names (TRITON_PTXAS_BLACKWELL_PATH from sm_100 on, for `shoal-ptxas-blackwell`). Its
cache knows an assembler by what `--version` prints, so that changes with this package. Whatever goes wrong with the
variants, the kernel itself is assembled as if this program were not there.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from shoal.device.ptx.transform import transform

REAL = {"ptxas": "SHOAL_PTXAS", "ptxas-blackwell": "SHOAL_PTXAS_BLACKWELL"}
"""The variable that names each real assembler."""

NOT_FOUND = 127


def main() -> None:
    raise SystemExit(run(sys.argv, os.environ))


def run(argv: Sequence[str], environment: Mapping[str, str]) -> int:
    program, *arguments = argv
    tool = "ptxas-blackwell" if "blackwell" in Path(program).name else "ptxas"
    real = real_assembler(tool, environment)
    if real is None:
        _note(f"there is no {tool}: name it in {REAL[tool]}")
        return NOT_FOUND
    if "--version" in arguments or "-V" in arguments:
        told = subprocess.run([real, *arguments], capture_output=True, text=True, check=False)
        print(f"{told.stdout}Shoal variants {fingerprint()}")
        return told.returncode
    sources = [one for one in arguments if one.endswith(".ptx") and Path(one).is_file()]
    if len(sources) == 1 and _with_variants(real, arguments, sources[0]):
        return 0
    return subprocess.call([real, *arguments])


def fingerprint() -> str:
    """Of all that decides what the variants look like."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _with_variants(real: str, arguments: Sequence[str], source: str) -> bool:
    """Whether the kernels and their variants were assembled."""
    try:
        # Comments may be in any encoding: every byte comes out as it came in.
        text = transform(Path(source).read_text("utf-8", "surrogateescape")).text
        with tempfile.TemporaryDirectory(prefix="shoal-ptxas-") as folder:
            changed = Path(folder, Path(source).name)
            changed.write_text(text, "utf-8", "surrogateescape")
            command = [real, *(str(changed) if one == source else one for one in arguments)]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    except Exception as error:  # a kernel must not fail for what is only added to it
        _note(f"{source} is assembled without variants: {error}")
        return False
    if done.returncode:
        reason = next((line for line in done.stderr.splitlines() if "error" in line or "fatal" in line), "")
        _note(f"{source} is assembled without variants: {reason}")
        return False
    sys.stderr.write(done.stderr)
    return True


def real_assembler(tool: str, environment: Mapping[str, str]) -> str | None:
    """The assembler that was named, or the one that comes with this Python's Triton, or the one on the path."""
    if named := environment.get(REAL[tool]):
        return named
    spec = importlib.util.find_spec("triton")
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        if (bundled := Path(folder, "backends", "nvidia", "bin", tool)).exists():
            return str(bundled)
    return shutil.which(tool, path=environment.get("PATH"))


def _note(what: str) -> None:
    print(f"shoal-ptxas: {what}", file=sys.stderr)
