"""Writes symbols.txt, the names that libcuda.so.1 exports, from the headers of a CUDA toolkit.

Usage: symbols.py /usr/local/cuda/include > symbols.txt

A line is SYMBOL BASE VERSION FLAVOUR: `cuGetProcAddress(BASE, VERSION)` answers with SYMBOL, in the flavour of
per-thread default streams (`ptsz` for functions that take a stream, `ptds` for those that do not) or in the usual one
(`-`). Version 0 means that the headers do not tell.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

INCLUDED = "#include <cuda.h>\n#include <cudaProfiler.h>\n"
# A name of its own that also answers to another one.
ALSO = [("cuGraphInstantiateWithFlags", "cuGraphInstantiate", 12000, "-")]


def exported(include: str) -> list[str]:
    """The functions that the headers declare, old versions and flavours too."""
    command = ["c++", "-E", "-P", "-D__CUDA_API_VERSION_INTERNAL", "-x", "c++", f"-I{include}", "-"]
    text = subprocess.run(command, input=INCLUDED, capture_output=True, text=True, check=True).stdout
    found = set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))
    for name in ("cudaGL.h", "cudaEGL.h", "cudaVDPAU.h"):  # they include headers that few machines have
        text = (Path(include) / name).read_text()
        found.update(re.findall(r"\b(cu(?:Graphics)?(?:GL|EGL|VDPAU)[A-Z]\w*)\s*(?:\(|\n|\))", text))
        found.update(
            f"{symbol}_{flavour.lower()}" for flavour, symbol in re.findall(r"__CUDA_API_(PT[SD][SZ])\((cu\w+)\)", text)
        )
    return sorted(found)


def split(symbol: str) -> tuple[str, int, str]:
    """A symbol's base, number (`_v2`) and flavour."""
    found = re.fullmatch(r"(\w+?)(?:_v(\d+))?(?:_(ptsz|ptds))?", symbol)
    assert found is not None
    return found[1], int(found[2] or 1), found[3] or "-"


def main(include: str) -> None:
    symbols = defaultdict(list)
    for symbol in exported(include):
        base, number, flavour = split(symbol)
        symbols[base, flavour].append((number, symbol))
    versions = defaultdict(set)
    typedefs = "".join(path.read_text() for path in sorted(Path(include).glob("cuda*Typedefs.h")))
    for base, version, flavour in re.findall(r"\bPFN_(cu[A-Z]\w*?)_v(\d+)(?:_(ptsz|ptds))?\b", typedefs):
        versions[base, flavour or "-"].add(int(version))
    lines = list(ALSO)
    for (base, flavour), numbered in symbols.items():
        known = sorted(versions[base, flavour])
        fits = len(known) == len(numbered)
        for index, (_, symbol) in enumerate(sorted(numbered)):
            lines.append((symbol, base, known[index] if fits else 0, flavour))
    for line in sorted(lines):
        print(*line)


if __name__ == "__main__":
    main(sys.argv[1])
