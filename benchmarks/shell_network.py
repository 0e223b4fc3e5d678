"""Commands next to their data against the same commands through sshfs, over a link of 20 ms and 600 Mbit/s between two
network namespaces that this run makes. Needs root. "First" is after a fresh mount, "again" the next run. The times are
the least of several.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import Row, parser, report

sys.path.insert(0, str(Path(__file__).parents[1]))
from shoal.shell.agent.client import ask, ensure_running, stop
from shoal.shell.sites import Site, Sites
from shoal.shell.table import LAUNCHER
from tests.shell.network import Network, lacking, network


class Bench:
    def __init__(self, net: Network, home: Path) -> None:
        self.net, self.home = net, home
        self.environ = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C", "M": str(net.mnt),
                        "SHOAL_HOME": str(home), "SHOAL_SHELL_RUN": "bench", "GIT_CONFIG_NOSYSTEM": "1"}  # fmt: skip
        self.ours = [str(LAUNCHER)]

    def seconds(self, program: list[str], script: str, environ: dict[str, str] | None = None) -> tuple[float, bytes]:
        began = time.perf_counter()
        done = subprocess.run([*program, "-c", script], env={**self.environ, **(environ or {})}, cwd=self.home,
                              capture_output=True, check=False)  # fmt: skip
        return time.perf_counter() - began, done.stdout

    def compare(self, script: str, runs: int, *, again: bool = False) -> tuple[float, float, float]:
        """Least seconds of ours; sshfs first; sshfs again (where asked for). Outputs must be equal."""
        self.net.mount()
        first, expected = self.seconds(["bash"], script)
        second = self.seconds(["bash"], script)[0] if again else 0.0
        self.net.mount()
        ours = []
        for _ in range(runs):
            taken, found = self.seconds(self.ours, script)
            assert found == expected, (script, found[-200:], expected[-200:])
            ours.append(taken)
        return min(ours), first, second


def fill(srv: Path, megabytes: int) -> None:
    random_ = random.Random(1)
    number = random_.randrange
    with (srv / "log").open("w") as file:
        while file.tell() < megabytes * 1_000_000:
            file.write("".join(
                f"{number(256)}.{number(256)}.{number(256)}.{number(256)},2017-01-01,{one:08d},0000320193,0000\n"
                for one in range(5000)
            ))  # fmt: skip
    for part in range(4):
        with (srv / f"ray{part}.INFO").open("w") as file:
            for one in range(240_000):
                kind = "[RAY] " if one % 40 == 0 else "[TASK]"
                file.write(
                    f"I0101 {kind}{590432 + one % 3},pathID={one if one % 5 == 0 else ''} ray {one} of part {part}\n"
                )
    repo = srv / "repo"
    repo.mkdir()
    for one in range(300):
        folder = repo / f"d{one % 15}"
        folder.mkdir(exist_ok=True)
        (folder / f"f{one}").write_text(f"file {one}\n" * 20)
    (srv / "small").write_text("x\n" * 100)
    commit_all(repo)


def commit_all(repo: Path) -> None:
    for words in (["init", "-q"], ["config", "user.name", "n"], ["config", "user.email", "e"], ["add", "."],
                  ["commit", "-qm", "x"]):  # fmt: skip
        subprocess.run(["git", *words], cwd=repo, check=True, capture_output=True)
    time.sleep(1.1)  # or the index would be racy
    subprocess.run(["git", "status"], cwd=repo, check=True, capture_output=True)


def no_op(bench: Bench, runs: int) -> list[Row]:
    log = bench.home / "shell" / "runs" / "bench.jsonl"
    log.unlink(missing_ok=True)
    bench.seconds(bench.ours, f"for i in $(seq {runs}); do wc -c $M/small; done")
    took = sorted(json.loads(line)["seconds"] for line in log.read_text().splitlines())
    status = ask(bench.home, do="status")
    assert status is not None
    trip = status["sites"][0]["round_trip_s"]
    began = time.perf_counter()
    subprocess.run([*bench.net.ssh, "far", "true"], check=True)
    new = time.perf_counter() - began
    return [
        Row("no-op by a new ssh (baseline)", 1e3 * new, "ms"),
        Row("round trip of the link", 1e3 * trip, "ms"),
        Row("no-op next to the data, least", 1e3 * took[0], "ms", "one round trip and 3 ms", took[0] <= trip + 0.003),
        Row("no-op next to the data, p50", 1e3 * took[len(took) // 2], "ms"),
    ]


def ratio(bench: Bench, name: str, script: str, target: float, runs: int = 5) -> list[Row]:
    ours, first, _ = bench.compare(script, runs)
    return [
        Row(f"{name}: sshfs, first (baseline)", first, "s"), Row(f"{name}: next to the data", ours, "s"),
        Row(f"{name}: times as fast as sshfs", first / ours, "x", f">= {target:g}", first / ours >= target),
    ]  # fmt: skip


def cpu_seconds(bench: Bench, program: list[str], script: str) -> float:
    """Work of the script and all that it starts: other programs on this machine play a smaller part in it."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    bench.seconds(program, script)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def local(bench: Bench, runs: int) -> list[Row]:
    """Pairs, one after the other; the median of their ratios."""
    (bench.home / "small").write_text("".join(f"line {one}\n" for one in range(50)))
    (bench.home / "words").write_text("".join(f"line {one * 7919 % 20_000}\n" for one in range(20_000)))
    loops = {
        "500 times `grep -q` of a small local file": ("for i in $(seq 500); do grep -q 'line 7' small; done", 0.93),
        "60 times `sort` of a local file": ("for i in $(seq 60); do sort words > sorted; done", 0.98),
    }  # fmt: skip
    rows = []
    for name, (script, bar) in loops.items():
        both = [["bash"], bench.ours]
        pairs = [[cpu_seconds(bench, words, script) for words in both] for _ in range(2 * runs + 1)]
        share = statistics.median(plain / ours for plain, ours in pairs)
        rows += [Row(f"{name}: bash, work (baseline)", min(one for one, _ in pairs), "s"),
                 Row(f"{name}: work of bash over ours", share, "x", f">= {bar}", share >= bar)]  # fmt: skip
    start = [(bench.seconds(["bash"], "true")[0], bench.seconds(bench.ours, "true")[0]) for _ in range(5 * runs)]
    more = 1e3 * (min(ours for _, ours in start) - min(plain for plain, _ in start))
    return [*rows, Row("start of `shoal-sh -c true` over bash", more, "ms", "<= 10", more <= 10)]


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--megabytes", type=int, default=100)
    arguments.add_argument("--runs", type=int, default=5)
    options = arguments.parse_args()
    if why := lacking():
        print(f"skipped: {why}", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory(prefix="shoal-shell-") as name, network(Path(name) / "n") as net:
        fill(net.srv, options.megabytes)
        net.mount()
        home = Path(name) / "home"
        Sites.of(home).add(Site("far", "far", {str(net.mnt): str(net.srv)}, net.ssh))
        ensure_running(home)
        told = ask(home, do="connect", site="far")
        assert told is not None
        assert told["ready"], told["why"]
        bench = Bench(net, home)
        try:
            rows = no_op(bench, 60)
            rows += ratio(bench, "`grep -F` in 100 MB", "grep -F 128.151.15 $M/log", 50, options.runs)
            rows += ratio(bench, "`ls -AR`, 300 files", "ls -AR $M/repo", 200, options.runs)
            rows += ratio(
                bench, "`find | sort | wc`, 300 files", "find $M/repo -type f | sort | wc -l", 200, options.runs
            )
            ours, first, again = bench.compare("cd $M/repo && git status --porcelain", options.runs, again=True)
            rows += [
                Row("`git status`, 300 files: sshfs, first (baseline)", first, "s"),
                Row("`git status`, 300 files: sshfs, again (baseline)", again, "s"),
                Row("`git status`, 300 files: next to the data", ours, "s"),
                Row("`git status`: times as fast as first", first / ours, "x", ">= 200", first / ours >= 200),
                Row("`git status`: times as fast as again", again / ours, "x", ">= 30", again / ours >= 30),
            ]
            rays = "cat $M/*.INFO | grep '\\[RAY\\]' | grep -v pathID=[0-9] | cut -c 7- > rays.csv; sed -n '/590432,/p' rays.csv | wc"  # noqa: E501
            rows += ratio(bench, "POSH's ray-tracing pipeline", rays, 8, options.runs)
            rows += ratio(
                bench, "copying 10 MB here (no gain)", "head -c 10000000 $M/log > copy; wc -c copy", 0.95, options.runs
            )
            rows += local(bench, options.runs)
        finally:
            stop(home)
    return report("Commands next to their data, through a link of 20 ms", rows, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
