"""`python -m shoal.environment.making KIND JSON`, in the tenant's folder: makes an environment, and tells its size.

What it prints last is one JSON object, `{"key": ..., "bytes": ..., "files": ...}`. It leaves with 1 where what was
asked for cannot be made, and with 75 where another try may help.
"""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from shoal.environment.making import image, uv
from shoal.environment.making.tools import Failed, full

_KINDS: Mapping[str, Callable[[Path, Mapping[str, Any]], Mapping[str, Any]]] = {"image": image.make, "uv": uv.make}
_AGAIN = 75


def main(kind: str, told: str) -> int:
    os.umask(0o022)  # people of the tenant whose jobs run as themselves read it; its place keeps others out
    Path.cwd().chmod(0o711)
    try:
        made = _KINDS[kind](Path.cwd(), json.loads(told))
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        print(full(kind))
        return _AGAIN
    except Failed as problem:
        print(problem)
        return _AGAIN if problem.again else 1
    print(json.dumps(made))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
