"""Starts a Python program with capture on, in it and in its child processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from shoal.core import NotFound
from shoal.offload.settings import PREFIX

HOOK = Path(__file__).parent / "hook"
"""Has the `sitecustomize` that turns capture on."""


def environment(environ: Mapping[str, str], **settings: object) -> dict[str, str]:
    """The environment of a program that is captured. `settings` by the names of `OffloadSettings`."""
    path = environ.get("PYTHONPATH", "")
    folders = [str(HOOK), *(each for each in path.split(os.pathsep) if each and each != str(HOOK))]
    given = {PREFIX + name.upper(): str(value) for name, value in settings.items()}
    return {**environ, "PYTHONPATH": os.pathsep.join(folders), **given}


def command_of(argv: Sequence[str]) -> list[str]:
    """`program.py ARGUMENT...` by this Python; a command that is no Python file as it is. Raises NotFound."""
    if argv[0].endswith((".py", ".pyc")) or argv[0] in ("-m", "-c"):
        if argv[0] not in ("-m", "-c") and not Path(argv[0]).exists():
            raise NotFound("there is no such program", where=argv[0])
        return [sys.executable, *argv]
    found = shutil.which(argv[0])
    if found is None:
        raise NotFound(f"there is no program {argv[0]!r}", where=argv[0], hint="is it on PATH, and executable?")
    return [found, *argv[1:]]


def become(argv: Sequence[str], environ: Mapping[str, str]) -> NoReturn:
    """Replace this process by the program."""
    command = command_of(argv)
    sys.stdout.flush()
    os.execve(command[0], command, dict(environ))  # noqa: S606  (no shell: the user's own command, as it was given)


def run(argv: Sequence[str], environ: Mapping[str, str], *, quiet: bool = False) -> int:
    """Run the program to its end; its exit code. `quiet`: what it prints goes to stderr."""
    ended = subprocess.run(command_of(argv), env=dict(environ), stdout=sys.stderr if quiet else None, check=False)
    return ended.returncode if ended.returncode >= 0 else 128 - ended.returncode
