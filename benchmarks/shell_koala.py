"""Scripts of the Koala suite (github.com/binpash/benchmarks, a checkout of it in FOLDER) under bash and under ours.

Output, errors, status and files must be equal, byte for byte. Inputs are generated; they lie on a site on this machine,
behind a stand-in for `ssh`. Needs root for the mount.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from common import Row, parser, report

from shoal.shell.agent.client import ask, ensure_running, stop
from shoal.shell.sites import Site, Sites
from shoal.shell.table import LAUNCHER

SSH = Path(__file__).parents[1] / "tests" / "shell" / "fake_ssh.py"
WORDS = """the of and a Unix bell 1969 Ken Dennis Thompson light AT&T 127.0.0.1 10.2.3.4 pawn x4 Kx e2 poet c++ 3.2
"quoted" dark (1970) TELEPHONE abba aba""".split()  # noqa: SIM905

PAGES = ("", "poweredby.png", "wp-admin/install.php", "a.php?ref=1", "x/ref", "index.html")


def fill(folder: Path) -> None:
    random_ = random.Random(3)

    def text(lines: int) -> list[str]:
        return [" ".join(random_.choices(WORDS, k=random_.randrange(1, 9))) + "\n" for _ in range(lines)]

    (folder / "text").write_text("".join(text(6000)))
    for name in ("file1", "file2"):
        (folder / name).write_text("".join(sorted(text(500))))
    (folder / "dict.txt").write_text("\n".join(sorted({word.lower() for word in WORDS})) + "\n")
    number = random_.randrange
    (folder / "covid.csv").write_text("".join(
        f"2020-0{number(1, 9)}-1{number(9)}T{number(10, 24)}:00:{number(10, 60)},{number(40)},{number(90)},x\n"
        for _ in range(8000)
    ))  # fmt: skip
    (folder / "temperatures").write_text("".join(
        f"{number(10**9):088d}{random_.choice('+-')}{number(400):03d}1+9999\n" for _ in range(20_000)
    ))  # fmt: skip
    (folder / "tuft").write_text("".join(
        f"{1 + day % 360 // 30}\t{1 + day % 30}\t{1995 + day // 360}\t{number(40) - 9}.{number(10)}\tX\t{city}\tY\n"
        for city in ("Athens", "New York") for day in range(720)
    ))  # fmt: skip
    (folder / "nginx").mkdir()
    for log in ("log1", "log2"):
        (folder / "nginx" / log).write_text("".join(
            f'10.1.2.{number(9)} - - [12/Jan/2016:12:08:{number(10, 60)} +0000] "GET /{random_.choice(PAGES)} '
            f'HTTP/1.1" {random_.choice((200, 304, 404, 502))} {number(9000)} "-" "Mozilla/5.0" "-"\n'
            for _ in range(3000)
        ))  # fmt: skip


@dataclass(frozen=True)
class Script:
    """With its arguments, and what it reads from the environment."""

    path: Path
    words: tuple[str, ...]
    environ: Mapping[str, str] = field(default_factory=dict)


def scripts(suite: Path, inputs: Path) -> list[Script]:
    """The shown half of the suite."""
    at = suite / "oneliners" / "scripts"
    lines = [one for one in sorted(at.glob("*.sh")) if "aux" not in one.name]
    found = [Script(suite / f"unixfun/scripts/{one}.sh", (f"{inputs}/text",)) for one in range(1, 19)]
    found += [Script(suite / f"covid/scripts/{one}.sh", (f"{inputs}/covid.csv",)) for one in range(1, 6)]
    found += [Script(one, (str(inputs if one.name == "comm.sh" else inputs / "text"),)) for one in lines]
    statistics = {"input_file": f"{inputs}/temperatures", "statistics_dir": "."}
    found.append(Script(suite / "weather/scripts/temp-analytics.sh", (), statistics))
    found.append(Script(suite / "weather/scripts/tuft-weather.sh", (f"{inputs}/tuft",)))
    found.append(Script(suite / "analytics/scripts/nginx.sh", (f"{inputs}/nginx", "out")))
    return [one for one in found if one.path.exists()]


PLOT = "import sys, hashlib\nprint(sys.argv[1:], hashlib.md5(sys.stdin.buffer.read()).hexdigest())\n"
"""In place of a picture drawn with matplotlib, whose bytes hold versions."""


def copied(suite: Path, folder: Path) -> Path:
    """The scripts, as the top of a repository of their own, which some ask for."""
    for one in ("oneliners", "unixfun", "covid", "weather", "analytics"):
        shutil.copytree(suite / one / "scripts", folder / one / "scripts")
    (folder / "weather" / "scripts" / "plot.py").write_text(PLOT)
    subprocess.run(["git", "init", "-q", folder], check=True)
    return folder


Left = tuple[int, bytes, bytes, dict[str, tuple[int, bytes]]]


def left(program: list[str], one: Script, folder: Path, environ: Mapping[str, str]) -> Left:
    """Status, output, errors, and the files with their modes."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    done = subprocess.run(
        [*program, one.path, *one.words], cwd=folder, env={**environ, **one.environ}, capture_output=True, timeout=170,
        check=False,
    )  # fmt: skip
    files = {str(path): (path.stat().st_mode, path.read_bytes()) for path in folder.rglob("*") if path.is_file()}
    return done.returncode, done.stdout, done.stderr, files


def check(suite: Path, sites: int) -> list[Row]:
    """With all inputs local, on one site, or the inputs of a script on one and those of its suite on another."""
    with tempfile.TemporaryDirectory(prefix="shoal-koala-") as name:
        base = Path(name)
        for folder in ("srv/one/inputs", "srv/two/inputs", "mnt", "home"):
            (base / folder).mkdir(parents=True)
        for site in ("one", "two"):
            fill(base / "srv" / site / "inputs")
        subprocess.run(["mount", "--bind", base / "srv", base / "mnt"], check=True)
        home, names = base / "home", [("one",), ("two",)][:sites] if sites != 1 else [("one", "two")]
        environ = {"PATH": os.environ["PATH"], "HOME": name, "LC_ALL": "C", "SUITE_DIR": f"{name}/mnt/two"}
        for folders in names:
            mounts = {f"{name}/mnt/{one}": f"{name}/srv/{one}" for one in folders}
            Sites.of(home).add(Site(folders[0], "s", mounts, (sys.executable, str(SSH))))
        ensure_running(home)
        for folders in names:
            ask(home, do="connect", site=folders[0])
        all_of = scripts(copied(suite.absolute(), base / "suite"), base / "mnt" / "one" / "inputs")
        equal = away = well = 0
        try:
            for number, one in enumerate(all_of):
                run = {**environ, "SHOAL_HOME": str(home), "SHOAL_SHELL_RUN": f"k{number}"}
                # Within the suite, so that its top is found.
                expected, found = (
                    left(words, one, base / "suite" / "work", run) for words in (["bash"], [str(LAUNCHER)])
                )
                equal += found == expected
                well += expected[0] == 0
                if found != expected:
                    print(f"differs with {sites} sites: {one.path}", file=sys.stderr)
                log = home / "shell" / "runs" / f"k{number}.jsonl"
                lines = log.read_text().splitlines() if log.exists() else []
                away += any(json.loads(line)["where"] != "here" for line in lines)
        finally:
            stop(home)
            subprocess.run(["umount", "--lazy", base / "mnt"], check=True)
    where = ("all inputs local", "one site", "two sites")[sites]
    return [
        Row(f"{where}: scripts run", len(all_of), ""), Row(f"{where}: with status 0 in bash", well, ""),
        Row(f"{where}: equal to bash, byte for byte", equal, "", "all", equal == len(all_of)),
        Row(f"{where}: with commands on a site", away, ""),
    ]  # fmt: skip


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("folder", metavar="FOLDER", type=Path, nargs="?", help="without it nothing is run")
    options = arguments.parse_args()
    if options.folder is None or os.geteuid() != 0:
        print("skipped: it needs root, and a checkout of the suite", file=sys.stderr)
        return 0
    rows = [row for sites in (0, 1, 2) for row in check(options.folder, sites)]
    return report("Scripts of the Koala suite, next to their data", rows, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
