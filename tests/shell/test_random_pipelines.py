"""Pipelines put together at random from annotated commands, flags and data: bash and ours leave the same."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.shell.conftest import World

FIRST = {
    "cat": ["-A", "-n", "-s", "-E"], "grep alpha": ["-c", "-v", "-n", "-H", "-h", "-o", "-i", "-m3", "-l", "-A1", "-w"],
    "sort": ["-r", "-n", "-u", "-k2", "-t:", "-s"], "head": ["-3", "-c5", "-q", "-v", "-n2"], "tail": ["-2", "-c7", "-v"],  # noqa: E501
    "wc": ["-l", "-w", "-c", "-L"], "cut -d' '": ["-f1", "-f2-", "-s"], "md5sum": ["--tag", "-b"], "rev": [], "tac": [],
    "sed -n": ["-e p", "-e '2p'", "-e 's/a/b/p'", "-e '$='"], "nl": ["-ba"], "fold": ["-w5"], "od": ["-c", "-An", "-tx1"],  # noqa: E501
    "awk '{print NR, $2}'": ["-F:"], "paste": ["-s", "-d,"], "base64": ["-w10"], "strings": ["-n3"],
}  # fmt: skip
REST = {**FIRST, "tr a-z A-Z": [], "uniq": ["-c", "-d"], "tr -d": ["a"], "column": ["-t"], "tee copy": []}
FILES = ["a", "b", "empty", "bin", "nosuch", "d/c", "d"]

line = st.lists(st.sampled_from(["alpha", "beta", "a:b", "1", "22", "", "\t", "x y", "caf\u00e9"]), max_size=4).map(
    " ".join
)
text = st.lists(line, max_size=12).map(lambda lines: "\n".join(lines).encode())


@st.composite
def command(draw: st.DrawFn, choices: dict[str, list[str]]) -> str:
    name = draw(st.sampled_from(sorted(choices)))
    flags = draw(st.lists(st.sampled_from(choices[name] or [""]), max_size=2, unique=True))
    return " ".join([name, *flags])


@st.composite
def script(draw: st.DrawFn) -> str:
    files = draw(st.lists(st.sampled_from(FILES), min_size=1, max_size=3))
    named = " ".join(f"$M/{shlex.quote(one)}" for one in files)
    first = draw(command(FIRST))
    head = (
        f"{first} < $M/{files[0]}" if first.startswith("base64") or draw(st.integers(0, 4)) == 0 else f"{first} {named}"
    )
    parts = [head, *draw(st.lists(command(REST), max_size=3))]
    tail = draw(st.sampled_from(["", " > out", " 2>&1", " > $M/out", " 2>/dev/null", " > both 2>&1"]))
    return " | ".join(parts) + tail + '; echo "status $? ${PIPESTATUS[*]}"'


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(script(), text, text, st.binary(max_size=300))
def test_random_pipelines_leave_what_bash_leaves(
    world: World, made: str, first: bytes, second: bytes, binary: bytes
) -> None:
    files = {"a": first, "b": second + b"\n", "empty": b"", "bin": binary, "d/c": first + second}
    world.same(f"set -o pipefail; {made}", files=files, any_order=True)


ACROSS = {
    "cat": [], "grep a": ["-v", "-c", "-i", "-o", "-h", "-w"], "cut -d' ' -f1": ["-s", "--complement"], "rev": [],
    "sort": FIRST["sort"], "fold": ["-w5"], "head": ["-3", "-c50", "-n -2"], "tail": ["-2", "-c7", "-n +2"],
    "expand": [], "wc": ["-l", "-w", "-c", "-L", "-lw"], "uniq": ["-c", "-d", "-i"], "md5sum": [], "tr a-z A-Z": [],
}  # fmt: skip


@st.composite
def script_of_two_sites(draw: st.DrawFn) -> str:
    names = st.sampled_from(["one/a", "two/a", "one/b", "two/b", "two/empty", "one/nosuch"])
    files = " ".join(f"$M/{one}" for one in draw(st.lists(names, min_size=2, max_size=4)))
    parts = [f"{draw(command(ACROSS))} {files}", *draw(st.lists(command(ACROSS), max_size=3))]
    # Two stages that complain at once mix their messages byte by byte, in bash as well: the bytes are counted.
    return f"({' | '.join(parts)}) > out 2> errors; echo $?; od -An -v -tx1 -w1 errors | sort | uniq -c; rm errors"


@pytest.mark.slow
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(script_of_two_sites(), text, text, st.booleans())
def test_random_pipelines_over_two_sites(two: World, made: str, first: bytes, second: bytes, ends: bool) -> None:
    files = {"one/a": first + b"\n", "two/a": second + b"\n" * ends, "one/b": second, "two/b": first, "two/empty": b""}
    two.same(made, files=files, any_order=True)
