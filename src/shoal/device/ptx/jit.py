"""`shoal-ptx`: adds the variants of its kernels to a program's PTX, before the driver compiles it.

    shoal-ptx SOURCE TARGET

The CUDA shim runs it once for each text that a best-effort program loads. Where it fails the text is loaded as it is.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from shoal.device.ptx.transform import transform


def main() -> None:
    gc.disable()  # trees have no cycles, the process ends soon, and collecting takes a fifth of its time
    source, target = map(Path, sys.argv[1:])
    target.write_text(transform(source.read_text()).text)
