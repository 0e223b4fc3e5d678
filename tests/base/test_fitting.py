"""Tables on narrow terminals."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from shoal.base.console import output
from shoal.base.console.fitting import GAP, ColumnWidth, cut, fit

WIDTHS = st.lists(
    st.builds(
        lambda natural, least, goes: ColumnWidth(natural, min(least, natural), goes),
        st.integers(1, 60), st.integers(1, 30), st.none() | st.integers(0, 9),
    ),
    min_size=1, max_size=8,
)  # fmt: skip


def taken(shown: Sequence[tuple[int, int]]) -> int:
    return sum(width for _, width in shown) + GAP * (len(shown) - 1)


@given(WIDTHS, st.integers(10, 200))
def test_what_is_shown_fits_if_it_can_and_no_more_is_left_out_than_needed(
    columns: list[ColumnWidth], width: int
) -> None:
    shown = fit(columns, width)
    kept = [at for at, _ in shown]
    assert kept == sorted(kept)
    for at, room in shown:
        assert columns[at].least <= room <= columns[at].natural
    stays = [at for at, one in enumerate(columns) if one.goes is None]
    assert set(stays) <= set(kept)
    gone = set(range(len(columns))) - set(kept)
    smallest = sum(columns[at].least for at in kept) + GAP * (len(kept) - 1)
    assert taken(shown) <= width or set(kept) == set(stays)
    if taken(shown) < width:  # nobody is cut while there is room
        assert all(room == columns[at].natural for at, room in shown)
    if gone:
        rank = {at: (columns[at].goes, at) for at in range(len(columns)) if columns[at].goes is not None}
        assert all(rank[one] < rank[at] for one in gone for at in kept if at in rank)
        last = max(gone, key=lambda at: rank[at])
        assert smallest + columns[last].least + GAP > width  # the last one that went had to


@given(st.text("abc-", max_size=60), st.integers(0, 70), st.booleans())
def test_a_text_is_cut_to_its_width_with_its_ends(text: str, width: int, middle: bool) -> None:
    short = cut(text, width, middle=middle)
    assert len(short) == min(len(text), width)
    if len(text) <= width:
        assert short == text
    elif width > 2:
        begin, _, end = short.partition("…")
        assert text.startswith(begin)
        assert text.endswith(end)
        assert bool(end) == middle
        assert not middle or abs(len(begin) - len(end)) <= 1


def drawn(width: int, **options: object) -> list[str]:
    rows = [
        ["j-0123456789ab", "a" * 20 + "z" * 20, "RUNNING", "1cpu", "because " * 10],
        ["j-1", "b", "QUEUED", "-", ""],
    ]
    made = output.table(["job", "name", "state", "needs", "why"], rows, **options)  # type: ignore[arg-type]
    console = Console(file=io.StringIO(), width=width)
    console.print(made)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


JOBS: Mapping[str, object] = {"drop": ("needs",), "cut_middle": ("name",)}


@pytest.mark.parametrize("width", [40, 60, 80, 120, 400])
def test_no_row_is_wrapped_and_none_is_wider_than_the_terminal(width: int) -> None:
    lines = drawn(width, **JOBS)
    assert len(lines) == 3
    assert max(map(len, lines)) <= width


def test_a_name_is_cut_in_the_middle_and_the_reason_at_its_end() -> None:
    head, first, second = drawn(56, **JOBS)
    assert head.split() == ["JOB", "NAME", "STATE", "WHY"]
    assert "aaa…" in first
    assert "…zzz" in first
    assert first.rstrip().endswith("…")
    assert second.split() == ["j-1", "b", "QUEUED"]
    assert drawn(400, **JOBS)[0].split() == ["JOB", "NAME", "STATE", "NEEDS", "WHY"]


def test_without_an_order_columns_go_from_the_right_and_the_ends_stay() -> None:
    assert drawn(40)[0].split() == ["JOB", "WHY"]
    assert drawn(90)[0].split() == ["JOB", "NAME", "STATE", "NEEDS", "WHY"]
