"""The text that is sent to a site: the modules of the proxy as one file, without their imports of each other."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

PARTS = ("pieces", "frames", "machine", "executor", "proxy")
_OURS = re.compile(r"^from (?:shoal\.|__future__).*? import (?:\([^)]*\)|[^\n]*)\n", re.MULTILINE)


@cache
def source() -> bytes:
    folder = Path(__file__).parent
    texts = (_OURS.sub("", (folder / f"{one}.py").read_text()) for one in PARTS)
    return ("from __future__ import annotations\n" + "\n".join(texts)).encode()
