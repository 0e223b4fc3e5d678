"""The shell tests of smoosh (github.com/mgree/smoosh, a checkout of it in FOLDER), which PaSh uses too, with bash and
dash alone and with the front end loaded: what passes without it passes with it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from common import Row, parser, report

from shoal.shell.agent.client import ensure_running, stop
from shoal.shell.sites import Site, Sites
from shoal.shell.table import LAUNCHER

LIMIT_S = 20.0


def passes(test: Path, program: Path, tools: Path, home: Path) -> bool:
    """As smoosh's own runner has it: the status, and output and errors where they are given."""
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "TEST_SHELL": str(program), "TEST_UTIL": str(tools), "SHOAL_HOME": str(home)}
        process = subprocess.Popen(
            [program, test], cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        try:
            out, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            return False
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, 9)
            process.wait()
    expected = test.with_suffix(".ec")
    status = int(expected.read_text()) if expected.exists() and expected.stat().st_size else 0
    given = {".out": out, ".err": errors}
    same = all(not (path := test.with_suffix(end)).exists() or path.read_bytes() == data for end, data in given.items())
    code = process.returncode if process.returncode >= 0 else 128 - process.returncode
    return code == status and same


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """Without the digits at which one of the tests splits the path of the shell."""
    while set("123") & set(name := tempfile.mkdtemp(prefix="shoal-posix-")):
        Path(name).rmdir()
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name)


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("folder", metavar="FOLDER", type=Path, nargs="?", help="without it nothing is run")
    options = arguments.parse_args()
    if options.folder is None:
        print("skipped: it needs a checkout of smoosh", file=sys.stderr)
        return 0
    rows = []
    with folder() as base:
        shutil.copytree(options.folder / "tests", base / "tests")
        tools, home = base / "tests" / "util", base / "home"
        for one in tools.glob("*.c"):
            subprocess.run(["gcc", "-w", "-o", one.with_suffix(""), one], check=True)
        for one in tools.iterdir():
            one.chmod(0o755)
        (base / "srv").mkdir()
        Sites.of(home).add(Site("here", "h", {str(base / "mnt"): str(base / "srv")}, ("false",)))
        ensure_running(home)
        try:
            tests = sorted((base / "tests" / "shell").glob("*.test"))
            for shell in ("bash", "dash"):
                wrapper = base / f"{shell}-near"
                wrapper.write_text(f'#!/bin/sh\nexec {LAUNCHER} --with {shell} "$@"\n')
                wrapper.chmod(0o755)
                plain = {one.name for one in tests if passes(one, Path(shutil.which(shell) or shell), tools, home)}
                ours = {one.name for one in tests if passes(one, wrapper, tools, home)}
                again = {one for one in plain - ours if passes(base / "tests/shell" / one, wrapper, tools, home)}
                new = sorted(plain - ours - again)
                print(*(f"new failure with {shell}: {one}" for one in new), sep="\n", end="", file=sys.stderr)
                rows += [Row(f"{shell}: tests", len(tests), ""), Row(f"{shell} alone passes", len(plain), ""),
                         Row(f"{shell} with the front end: new failures", len(new), "", "none", not new)]  # fmt: skip
        finally:
            stop(home)
    return report("smoosh's tests of shells, with the front end loaded", rows, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
