"""Outputs of pieces become what the command writes for the whole."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.shell.annotations import Split, load, match
from shoal.shell.pieces import added, joining_command

text = st.lists(st.text("ab \t", max_size=9), max_size=9).map(lambda lines: "".join(f"{one}\n" for one in lines))


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(["-l", "-w", "-c", "-lw", "-lwc", "-cl"]), st.lists(text, min_size=1, max_size=3))
def test_counts_of_pieces_are_those_of_the_whole(flags: str, pieces: list[str]) -> None:
    def counted(data: str) -> bytes:
        return subprocess.run(["wc", flags], input=data.encode(), capture_output=True, check=True).stdout

    assert added([counted(one) for one in pieces]) == counted("".join(pieces))


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [([b"1\n", b"2\n"], b"3\n"), ([b"1\n", b""], b"1\n"), ([b"", b""], b""), ([b"x\n", b"2\n"], b"x\n2\n"),
     ([b"1 2\n", b"3\n"], b"1 2\n3\n")],
)  # fmt: skip
def test_what_is_no_number_is_left_as_it_is(outputs: list[bytes], expected: bytes) -> None:
    assert added(outputs) == expected


def test_the_command_that_joins_has_the_options_and_no_inputs() -> None:
    words = ["sort", "-k2", "--", "a", "b"]
    assert joining_command(Split.MERGE, words, {3, 4}, [7, 8]) == ["sort", "-m", "-k2", "--", "/dev/fd/7", "/dev/fd/8"]
    assert joining_command(Split.AGAIN, ["head", "-3", "-"], {2}, [7]) == ["head", "-3"]


@pytest.mark.parametrize(
    ("call", "join"),
    [("sort -u", "merge"), ("sort -s", ""), ("sort -o x", ""), ("wc -l", "sum"), ("wc -L", ""), ("grep -c x", "sum"),
     ("grep -c -m1 x", ""), ("head -n 5", "again"), ("head -5", "again"), ("head -n -5", ""), ("tail -c +5", ""),
     ("tail --lines=5k", "again"), ("head -v", ""), ("uniq -i", "again"), ("uniq -c", ""), ("cat", "")],
)  # fmt: skip
def test_flags_change_how_pieces_are_joined(call: str, join: str) -> None:
    words = call.split()
    assert match(load([])[words[0]], words, {}).join.value == join
