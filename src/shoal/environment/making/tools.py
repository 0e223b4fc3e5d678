"""Running the programs that make environments."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping, Sequence

_NETWORK = re.compile(
    r"timed out|timeout|connection (refused|reset)|temporary failure|dns error|no such host|network is unreachable"
    r"|error sending request|503 Service|502 Bad|429 Too",
    re.IGNORECASE,
)
"""What these programs say when the network, or who answers there, is the trouble."""
_FULL = re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE)
_SAID_LINES = 6


class Failed(Exception):
    """It cannot be made; `again` where another try may help."""

    def __init__(self, what: str, *, again: bool = False) -> None:
        super().__init__(what)
        self.again = again


def full(what: str) -> Failed:
    """Room may come: another try finds out."""
    return Failed(f"{what} found no space left on the disk of the server's home", again=True)


def run(argv: Sequence[str], env: Mapping[str, str]) -> str:
    """What the program prints. What it says beside that goes to the log. Raises Failed with its last lines."""
    try:
        process = subprocess.Popen(
            argv, env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="surrogateescape",
        )  # fmt: skip
    except FileNotFoundError as problem:
        raise Failed(f"{argv[0]} is not installed on this machine") from problem
    out, said = process.communicate()
    said = said.encode(errors="replace").decode()
    if said:
        print(said, flush=True)
    if process.returncode != 0:
        last = "; ".join([line.strip() for line in said.splitlines() if line.strip()][-_SAID_LINES:])
        if _FULL.search(said):
            raise full(argv[0])
        raise Failed(f"{argv[0]} failed: {last or process.returncode}", again=_NETWORK.search(said) is not None)
    return out
