"""Scripts of the Koala suite (github.com/binpash/benchmarks, a checkout of it in FOLDER) under bash and under ours.

Output, errors and status must be equal, byte for byte. Inputs are generated; they lie on a site on this machine, behind
a stand-in for `ssh`. Needs root for the mount.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from common import Row, parser, report

from shoal.shell.agent.client import ask, ensure_running, stop
from shoal.shell.sites import Site, Sites
from shoal.shell.table import LAUNCHER

SSH = Path(__file__).parents[1] / "tests" / "shell" / "fake_ssh.py"
WORDS = """the of and a Unix bell 1969 Ken Dennis Thompson light AT&T 127.0.0.1 10.2.3.4 pawn x4 Kx e2 poet c++ 3.2
"quoted" dark (1970) TELEPHONE abba aba""".split()  # noqa: SIM905


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


def scripts(suite: Path, inputs: Path) -> list[tuple[Path, Path]]:
    """Each with its input."""
    found = [(suite / f"unixfun/scripts/{one}.sh", inputs / "text") for one in range(1, 19)]
    found += [(suite / f"covid/scripts/{one}.sh", inputs / "covid.csv") for one in range(1, 6)]
    for script in sorted((suite / "oneliners" / "scripts").glob("*.sh")):
        if "aux" not in script.name:
            found.append((script, inputs if script.name == "comm.sh" else inputs / "text"))
    return [(script, one) for script, one in found if script.exists()]


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
        suite_folder = f"{name}/mnt/two"
        environ = {"PATH": os.environ["PATH"], "HOME": name, "LC_ALL": "C", "SUITE_DIR": suite_folder}
        for folders in names:
            mounts = {f"{name}/mnt/{one}": f"{name}/srv/{one}" for one in folders}
            Sites.of(home).add(Site(folders[0], "s", mounts, (sys.executable, str(SSH))))
        ensure_running(home)
        for folders in names:
            ask(home, do="connect", site=folders[0])
        all_of = scripts(suite.absolute(), base / "mnt" / "one" / "inputs")
        equal = away = 0
        try:
            for number, (script, one) in enumerate(all_of):
                run = {"SHOAL_HOME": str(home), "SHOAL_SHELL_RUN": f"k{number}"}
                done = [
                    subprocess.run(
                        [*program, script, one], cwd=script.parents[1], env={**environ, **run}, capture_output=True,
                        timeout=120, check=False,
                    )
                    for program in (["bash"], [LAUNCHER])
                ]  # fmt: skip
                same = len({(each.returncode, each.stdout, each.stderr) for each in done}) == 1
                equal += same
                if not same:
                    print(f"differs with {sites} sites: {script}", file=sys.stderr)
                log = home / "shell" / "runs" / f"k{number}.jsonl"
                lines = log.read_text().splitlines() if log.exists() else []
                away += any(json.loads(line)["where"] != "here" for line in lines)
        finally:
            stop(home)
            subprocess.run(["umount", "--lazy", base / "mnt"], check=True)
    where = ("all inputs local", "one site", "two sites")[sites]
    return [
        Row(f"{where}: scripts run", len(all_of), ""),
        Row(f"{where}: equal to bash, byte for byte", equal, "", "all", equal == len(all_of)),
        Row(f"{where}: with commands on a site", away, ""),
    ]


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
