"""POSH's applications (USENIX ATC'20) and large repositories next to their data, against the same commands through
sshfs, over a link of 20 ms and 600 Mbit/s. Needs root. Outputs must be equal. `--only` takes some of the parts.

Where `mogrify` and `zannotate` are not installed, stand-ins are put into /usr/local/bin for the run: one reads each
image whole and writes a small one, the other adds a number to each line.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from common import Row, parser, report
from shell_network import Bench, commit_all, fill, ratio

from shoal.shell.agent.client import ask, ensure_running, stop
from shoal.shell.sites import Site, Sites
from tests.shell.network import Network, lacking, network

STAND_INS = {
    "zannotate": """#!/usr/bin/python3 -ISEs
import sys, zlib
paths = [one.partition("=")[2] for one in sys.argv if one.startswith("-routing-mrt-file=")]
seed = zlib.crc32(open(paths[0], "rb").read()) if paths else 0
for line in sys.stdin.buffer:
    number = zlib.crc32(line, seed) % 300
    sys.stdout.buffer.write(line.rstrip()[:-1] + b',"zannotate":{"routing":{"asn":%d}}}\\n' % number)
""",
    "mogrify": """#!/usr/bin/python3 -ISEs
import os, sys
folder = sys.argv[sys.argv.index("-path") + 1]
for name in [one for one in sys.argv if one.endswith(".ppm")]:
    data = open(name, "rb").read()
    width, height = (int(one) for one in data.split(maxsplit=3)[1:3])
    body, step = data[-3 * width * height:], max(width, height) // 100
    rows = []
    for y in range(0, height, step):
        rows.append(b"".join(body[at:at + 3] for at in range(3 * y * width, 3 * (y + 1) * width, 3 * step)))
    with open(os.path.join(folder, os.path.basename(name)), "wb") as out:
        out.write(b"P6 %d %d 255\\n" % (len(rows[0]) // 3, len(rows)) + b"".join(rows))
""",
}


@contextlib.contextmanager
def stand_ins() -> Iterator[None]:
    made = []
    for name, text in STAND_INS.items():
        if shutil.which(name) is None:
            made.append(Path("/usr/local/bin", name))
            made[-1].write_text(text)
            made[-1].chmod(0o755)
    try:
        yield
    finally:
        for one in made:
            one.unlink()


def thumbnails(bench: Bench, runs: int) -> list[Row]:
    images = bench.net.srv / "images"
    images.mkdir()
    for one in range(20):
        (images / f"{one}.ppm").write_bytes(b"P6 1200 800 255\n" + random.Random(one).randbytes(3 * 1200 * 800))
    script = (
        "rm -rf $M/thumbs; mkdir $M/thumbs; mogrify -format gif -path $M/thumbs -thumbnail 100x100 $M/images/*.ppm;"
        "cat $M/thumbs/* | md5sum"
    )
    return ratio(bench, "thumbnails of 58 MB of images", script, 1.7, runs)


def port_scan(bench: Bench, runs: int) -> list[Row]:
    number = random.Random(2).randrange
    (bench.net.srv / "mrt").write_bytes(random.Random(3).randbytes(2_000_000))
    (bench.net.srv / "scan.json").write_text("".join(
        f'{{"ip":"{number(256)}.{number(256)}.{number(256)}.9","port":{number(65536)},"text":"{"x" * 300}"}}\n'
        for _ in range(50_000)
    ))  # fmt: skip
    script = (
        "cd $M; cat scan.json | zannotate -routing -routing-mrt-file=$M/mrt -input-file-type=json > annotated;"
        "cat annotated | jq .ip | tr -d '\"' > file1; cat annotated | jq -c .zannotate.routing.asn > file2;"
        "pr -mts, file1 file2 | awk -F, '{a[$2]++} END {for (n in a) print n \",\" a[n]}' | sort -k2 -n -t, -r | head"
    )
    return ratio(bench, "port scan of 50,000 hosts (zannotate stands in)", script, 1.6, runs)


def git_workflow(bench: Bench, runs: int) -> list[Row]:
    script = (
        "cd $M/repo && date +%N > d0/f0; git status --porcelain | wc -l; git add .; git commit -q -m more;"
        "git status --porcelain | wc -l; git diff --name-only HEAD~1"
    )
    name = "git: status, add, commit, status, diff; 300 files"
    return ratio(bench, name, script, 10, runs)


def git_large(bench: Bench, runs: int) -> list[Row]:
    repo = bench.net.srv / "large"
    for one in range(3000):
        folder = repo / f"d{one % 60}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"f{one}").write_text(f"file {one}\n" * 20)
    commit_all(repo)
    return ratio(bench, "`git status`, 3,000 files", "cd $M/large && git status --porcelain", 500, runs)


def two_sites(bench: Bench, runs: int) -> list[Row]:
    """POSH's distributed logs; and the same on one site, with all of the files there."""
    net, far = bench.net, bench.net.folder / "srv2"
    far.mkdir()
    (far / "log").write_bytes((net.srv / "log").read_bytes()[: 50 << 20])
    (net.srv / "half").write_bytes((net.srv / "log").read_bytes()[50 << 20 :])
    (net.srv / "other").write_bytes((far / "log").read_bytes())
    mount = net.folder / "mnt2"
    mount.mkdir()
    words = ["sshfs", "-o", f"ssh_command={' '.join(net.ssh)}", f"far:{far}", mount]
    subprocess.run(words, check=True)
    Sites.of(bench.home).add(Site("far2", "far", {str(mount): str(far)}, net.ssh))
    ask(bench.home, do="reload")
    ask(bench.home, do="connect", site="far2")
    bench.environ["M2"] = str(mount)
    try:
        script = "cat $M/half $M2/log | grep -F 128.151.15 | sort | head -100"
        rows = ratio(bench, "distributed logs, 100 MB on 2 sites", script, 20, runs)
        ways = {"one": "cat $M/half $M/other", "two": "cat $M/half $M2/log"}
        work = " | grep -E '^1[0-9]+\\.(2|3)[0-9]*\\.' | sort -t. -k2,2n | cut -d. -f2 | uniq -c | tail -5"
        taken = {key: min(bench.seconds(bench.ours, feed + work)[0] for _ in range(runs)) for key, feed in ways.items()}
        rows += [Row(f"the same pipeline, data on {key} site(s)", seconds, "s") for key, seconds in taken.items()]
        return [*rows, Row("two sites over one", taken["one"] / taken["two"], "x")]
    finally:
        subprocess.run(["fusermount3", "-u", "-z", mount], check=False)


def cores(bench: Bench, runs: int) -> list[Row]:
    """A site with all of its cores and one with one of them."""
    net = bench.net
    script = net.folder / "one-core"
    script.write_text(f'#!/bin/bash\nexec {" ".join(net.ssh)} "${{@:1:$#-1}}" "taskset -c 0 ${{@: -1}}"\n')
    script.chmod(0o755)
    work = "grep -E '(1|2).*\\.(3|4)5,' $M/log | sort -t. -k2,2n | cut -d. -f2 | uniq -c | tail -5"
    taken = {}
    for name, ssh in (("all", net.ssh), ("one", (str(script),))):
        Sites.of(bench.home).add(Site("far", "far", {str(net.mnt): str(net.srv)}, ssh))
        ask(bench.home, do="reload")
        told = ask(bench.home, do="connect", site="far")
        assert told is not None
        assert told["ready"], told
        taken[name] = min(bench.seconds(bench.ours, work)[0] for _ in range(runs + 1))
    return [
        *(Row(f"100 MB on {name} core(s) of a site", seconds, "s") for name, seconds in taken.items()),
        Row("pieces on the cores of a site", taken["one"] / taken["all"], "x"),
    ]


PARTS: dict[str, Callable[[Bench, int], list[Row]]] = {
    "thumbnails": thumbnails, "port-scan": port_scan, "git": git_workflow, "git-3000": git_large, "sites": two_sites,
    "cores": cores,
}  # fmt: skip


def main() -> int:
    arguments = parser(__doc__)
    arguments.add_argument("--only", choices=PARTS, action="append", help="may be given more than once")
    arguments.add_argument("--runs", type=int, default=3)
    options = arguments.parse_args()
    if why := lacking():
        print(f"skipped: {why}", file=sys.stderr)
        return 0
    with (
        tempfile.TemporaryDirectory(prefix="shoal-shell-") as name,
        stand_ins(),
        network(Path(name) / "n") as net,
    ):
        rows = run(net, Path(name) / "home", [PARTS[one] for one in options.only or PARTS], options.runs)
    return report("POSH's applications next to their data, through a link of 20 ms", rows, as_json=options.json)


def run(net: Network, home: Path, parts: list[Callable[[Bench, int], list[Row]]], runs: int) -> list[Row]:
    fill(net.srv, 100)
    net.mount()
    Sites.of(home).add(Site("far", "far", {str(net.mnt): str(net.srv)}, net.ssh))
    ensure_running(home)
    told = ask(home, do="connect", site="far")
    assert told is not None
    assert told["ready"], told["why"]
    bench = Bench(net, home)
    try:
        return [row for part in parts for row in part(bench, runs)]
    finally:
        stop(home)


if __name__ == "__main__":
    raise SystemExit(main())
