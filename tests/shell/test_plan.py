"""Plans: the least time by trying all assignments, whatever the pipeline; and the reasons that people read."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.shell.annotations import Split, load
from shoal.shell.calls import Call, Descriptor, Open
from shoal.shell.plan import HERE, OUTSIDE_BYTES, PASSING_S, flows, plan, ratio_key
from shoal.shell.sites import Site, Sites
from shoal.shell.stages import Known, Reachable, Stage, absolute, examine, locales_of
from tests.shell.posh import dynamic_program, heuristic

ANNOTATIONS = load([])
SITES = Sites(Path("/x"), {"s": Site("s", "s", {"/mnt/s": "/srv/s"}), "t": Site("t", "t", {"/mnt/t": "/srv/t"})})
TOOLS = frozenset(f"/usr/bin/{name}" for name in ANNOTATIONS)
REACHABLE = {
    name: Reachable(name, True, tools=TOOLS, locales=frozenset({"C.UTF-8"})) for name in ("s", "t")
}  # fmt: skip


def call(*argv: str, cwd: str = "/home/u", before: int = 0, after: int = 0, **more: object) -> Call:
    stdin = Descriptor(Open.PIPE, before) if before else Descriptor(Open.NULL)
    stdout = Descriptor(Open.PIPE, after) if after else Descriptor(Open.FILE, 9, path="/home/u/out")
    made = Call("run", f"/usr/bin/{argv[0]}", cwd, 1, 2, 0o22, False, False, False, stdin, stdout,
                Descriptor(Open.TERMINAL), argv, {"LC_ALL": "C.UTF-8"})  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


def stage(*argv: str, sizes: dict[str, float] | None = None, reachable: object = None, **more: object) -> Stage:
    known = Known(SITES, reachable or REACHABLE, ANNOTATIONS, sizes or {})  # type: ignore[arg-type]
    return examine(call(*argv, **more), known)  # type: ignore[arg-type]


def pipeline(*commands: str, sizes: dict[str, float] | None = None) -> list[Stage]:
    last = len(commands) - 1
    return [
        stage(*one.split(), sizes=sizes, before=100 + at if at else 0, after=101 + at if at < last else 0)
        for at, one in enumerate(commands)
    ]  # fmt: skip


def where(stages: list[Stage]) -> list[str]:
    return [one.site for one in plan(stages, REACHABLE, {})]


def test_what_reads_much_and_writes_little_runs_there() -> None:
    assert where(pipeline("cat /mnt/s/f", "grep x", "sort", "head")) == ["s"] * 4
    assert where(pipeline("gunzip", "grep x")) == [HERE, HERE]


def test_what_makes_more_of_it_runs_here() -> None:
    quick = {"s": replace(REACHABLE["s"], mount_bytes_per_s=60e6)}
    assert plan(pipeline("zcat /mnt/s/f.gz", sizes={"/mnt/s/f.gz": 1e9}), quick, {})[0].site == HERE
    assert where(pipeline("zcat /mnt/s/f.gz", "wc -l")) == ["s", "s"]


STAGES = ["cat", "grep x", "grep -v x", "sort", "wc -l", "od -c", "tr a b", "sed p", "gunzip", "column", "ssh far"]


def cost_of(stages: list[Stage], size: float, site: Reachable) -> Callable[[tuple[str, ...]], float]:
    """What an assignment of a pipeline over one file takes, worked out by itself."""
    flow = flows(stages, {})
    rate, trip = site.link_bytes_per_s, site.round_trip_s

    def seconds(sites: tuple[str, ...]) -> float:
        total = 0.0
        for at, one in enumerate(stages):
            if sites[at] and sites[at] not in one.sites:
                return float("inf")
            total += PASSING_S if sites[at] == HERE else 0.0
            total += flow[at][0] / (one.match.annotation.bytes_per_s if one.match else 1e9)
            after = sites[at + 1] if at + 1 < len(sites) else HERE
            total += trip + flow[at][1] / rate if after != sites[at] else 0.0
        through = size / site.mount_bytes_per_s + 3 * trip
        return total + (through + trip if sites[0] == HERE else 0.0)

    return seconds


@given(
    st.sampled_from(["cat", "grep x", "sort", "wc", "zcat", "od"]), st.lists(st.sampled_from(STAGES), max_size=4),
    st.floats(1, 1e10), st.floats(1e5, 1e9), st.floats(1e-4, 1),
)  # fmt: skip
def test_no_assignment_is_faster(first: str, rest: list[str], size: float, rate: float, trip: float) -> None:
    stages = pipeline(f"{first} /mnt/s/f", *rest, sizes={"/mnt/s/f": size})
    site = replace(REACHABLE["s"], link_bytes_per_s=rate, round_trip_s=trip)
    found = [one.site for one in plan(stages, {"s": site}, {})]
    seconds = cost_of(stages, size, site)
    best = min(seconds(one) for one in itertools.product((HERE, "s"), repeat=len(stages)))
    assert seconds(tuple(found)) <= best * (1 + 1e-6)
    for baseline in (heuristic(stages), dynamic_program(stages, ["s"], rate)):
        assert best <= seconds(tuple(baseline)) < float("inf")


def test_the_baselines_place_as_published() -> None:
    stages = pipeline("cat /mnt/s/f", "grep x", "sort", "tr a b", "ssh far")
    assert heuristic(stages) == ["s", "s", "s", "s", HERE]
    assert heuristic(pipeline("cat /mnt/s/f", "tr a b", "od")) == ["s", "s", "s"]
    assert heuristic(pipeline("comm /mnt/s/f /mnt/t/g", "wc")) == [HERE, HERE]
    placed = dynamic_program(stages, ["s"], 1e6)
    assert (placed[:2], placed[-1]) == (["s", "s"], HERE)


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (stage("grep", "x", "/mnt/s/f", "local"), "/home/u/local is not on s"),
        (stage("grep", "x", "/mnt/s/f", "/tmp/y"), "/tmp/y is not on s"),
        (stage("grep", "x", "/mnt/s/../t/f"), "no data of a site comes to it"),
        (stage("sort", "-R", "/mnt/s/f"), "with -R it always runs here"),
        (stage("nosuch", "/mnt/s/f"), "it has no annotation"),
        (stage("cat", "/mnt/s/f", ignores_pipe=True), "survive a closed pipe"),
        (stage("cat", "/mnt/s/f", limited=True), "ulimit"),
        (stage("cat", "/mnt/s/f", stdout=Descriptor(Open.CLOSED)), "its output is closed"),
        (stage("cat", "/mnt/s/f", stdout=Descriptor(Open.FILE, path="/mnt/s/f")), "a file that it reads"),
        (stage("cat", stdin=Descriptor(Open.OUTER, 7)), "others read its input too"),
        (stage("cat", stdin=Descriptor(Open.PIPE, 7, shared=True)), "others read its input too"),
        (stage("ls", "/mnt/s", stdout=Descriptor(Open.TERMINAL)), "it writes to a terminal"),
        (stage("sort", "/mnt/s/f", environ={"LC_ALL": "de_DE.UTF-8"}), "lacks the locale de_DE.UTF-8"),
        (stage("cat", "/mnt/s/f", environ={"LD_PRELOAD": "x"}), "its loader is changed"),
        (stage("cat", "/mnt/s/f", path="/home/u/bin/cat"), "another /home/u/bin/cat"),
        (stage("cat", "/mnt/s/f", reachable={"s": replace(REACHABLE["s"], ready=False, why="away")}), "s is not connected: away"),  # noqa: E501
        (stage("grep", "x", "/mnt/s/f", reachable={"s": replace(REACHABLE["s"], namespaces=False)}), "has no namespaces"),  # noqa: E501
        (stage("sort", "/mnt/s/f", reachable={"s": replace(REACHABLE["s"], same_libc=False)}), "another C library"),
    ],
)  # fmt: skip
def test_why_a_command_runs_here(made: Stage, why: str) -> None:
    assert made.sites == frozenset()
    assert why in made.why_here


def test_the_folder_decides_for_relative_names() -> None:
    assert stage("cat", "f", cwd="/mnt/s/d").data == {"s": 16e6}
    assert stage("cat", "../f", "./g", cwd="/mnt/s/d").sites == {"s"}
    assert stage("cat", "../../t/f", cwd="/mnt/s/d").sites == frozenset()
    assert stage("grep", "-r", "x", cwd="/mnt/s/d").sites == {"s"}
    assert stage("wc", stdin=Descriptor(Open.FILE, path="/mnt/s/f")).data == {"s": 16e6}


@pytest.mark.parametrize(
    ("path", "cwd", "expected"),
    [("/a/b/", "/", "/a/b"), ("b", "/a", "/a/b"), ("./b", "/a", "/a/b"), ("../b", "/a/c", "/a/b"), ("..", "/a/c", "/a"),
     (".", "/a", "/a"), ("b/../c", "/a", "/a/b/../c"), ("../../..", "/a", "/"), ("/", "/a", "/"), ("b", "/", "/b")],
)  # fmt: skip
def test_paths_become_absolute(path: str, cwd: str, expected: str) -> None:
    assert absolute(path, cwd) == expected


def test_inputs_of_two_sites_are_dealt_out_as_far_as_pieces_go() -> None:
    stages = pipeline("cat /mnt/s/a /mnt/s/b /mnt/t/c /mnt/s/d", "grep x", "sort", "head")
    found = plan(stages, REACHABLE, {})
    assert [one.away for one in found] == [True, True, True, False]
    assert [one.join for one in found] == [Split.NEVER, Split.NEVER, Split.MERGE, Split.NEVER]
    assert [(one.site, one.positions) for one in found[0].pieces] == [("s", (1, 2)), ("t", (3,)), ("s", (4,))]
    found = plan(pipeline("sort /mnt/s/a /mnt/t/c", "uniq", "head"), REACHABLE, {})
    assert [(one.away, one.join) for one in found] == [(True, Split.MERGE), (False, Split.NEVER), (False, Split.NEVER)]
    found = plan(pipeline("cat /mnt/s/a /mnt/t/c", "cut -f1", "wc -l", "wc -c"), REACHABLE, {})
    assert [one.join for one in found] == [Split.NEVER, Split.NEVER, Split.SUM, Split.NEVER]
    assert [one.away for one in found] == [True, True, True, False]
    assert "its numbers are added here" in found[2].why


def test_measured_ratios_take_the_place_of_expected_ones() -> None:
    stages = pipeline("cat /mnt/s/f", "grep x", "od -c", sizes={"/mnt/s/f": 1e9})
    assert flows(stages, {})[1] == (1e9, 5e7)
    key = ratio_key(stages[1])
    assert key == "grep"
    assert flows(stages, {key: 0.5})[1] == (1e9, 5e8)
    assert flows(pipeline("sort", "wc"), {})[0][0] == OUTSIDE_BYTES


def test_reasons_are_sentences() -> None:
    found = [
        one.why for one in plan(pipeline("grep x /mnt/s/f", "sort", "ssh far", sizes={"/mnt/s/f": 72e3}), REACHABLE, {})
    ]
    assert found == [
        "on s: its data, about 72 kB, lies there",
        "on s: it reads 3.6 kB from grep there, and sends on 3.6 kB",
        "here: it has no annotation",
    ] or found[1] == "here. It reads 3.6 kB from grep; sending it would save nothing"  # fmt: skip


def test_plain_locales_are_everywhere() -> None:
    assert locales_of({"LANG": "C", "LC_ALL": "", "LC_TIME": "POSIX", "OTHER": "x"}) == set()
    assert locales_of({"LANG": "de_DE.UTF-8", "LC_ALL": "C"}) == {"de_DE.UTF-8"}


def test_jobs_prefer_the_nodes_beside_their_sites() -> None:
    from shoal.shell.live.extension import NEAR_S, Shell, ShellSection

    sites = {"store": {"host": "h", "mounts": {}, "near": ["n1", "n2"]}, "far": {"host": "f", "mounts": {}}}
    extension = Shell(SimpleNamespace(), ShellSection.model_validate({"sites": sites}))  # type: ignore[arg-type]

    def prefers(*names: str) -> object:
        told = {"shell": {"sites": list(names)}} if names else {}
        return extension.prefers(SimpleNamespace(manifest=SimpleNamespace(extensions=told)))  # type: ignore[arg-type]

    assert prefers("far", "store", "gone") == {"n1": NEAR_S, "n2": NEAR_S}
    assert prefers("far") == prefers() == {}


@pytest.mark.parametrize(
    "text", ["git add .", "git commit -q -m x", "git diff --stat", "git log --oneline", "ls", "find"]
)
def test_what_works_on_its_folder_has_its_data_there(text: str) -> None:
    assert plan([stage(*text.split(), cwd="/mnt/s/repo")], REACHABLE, {})[0].site == "s"


def test_output_to_a_file_of_the_site_draws_the_last_stage_there() -> None:
    def output(**more: object) -> Stage:
        flags = {"flags": 0o1101, **more}
        told = Descriptor(Open.FILE, 9, path="/mnt/s/out", **flags)  # type: ignore[arg-type]
        return stage("od", "-c", before=101, stdout=told)

    first = stage("cat", "/mnt/s/f", sizes={"/mnt/s/f": 1e8}, after=101)
    there, shared = output(), output(shared=True)
    assert (there.output, shared.output, output(flags=0).output) == ("s", "", "")
    found = plan([first, there], REACHABLE, {})
    assert [one.site for one in found] == ["s", "s"]
    assert found[1].why.endswith("and writes 300 MB there")
    assert plan([first, shared], REACHABLE, {})[1].site == HERE
