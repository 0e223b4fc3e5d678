"""What a job wrote, on a terminal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.cli.terminal import Harmless


def shown(*pieces: bytes) -> bytes:
    harmless = Harmless()
    return b"".join(harmless.feed(piece) for piece in pieces) + harmless.feed(b"", last=True)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (b"plain\ttext\r\n", b"plain\ttext\r\n"),
        (b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m\x1b[0m"),
        (b"\x1b]0;title\x07", b"^[]0;title^G"),
        (b"\x1b[2J\x1b[H", b"^[[2J^[[H"),
        (b"\x1b", b"^["),
        (b"\x00\x7f\x08", b"^@^?^H"),
        ("\u009b31m".encode(), b"\\x9b31m"),
        ("Grüße 🦈".encode(), "Grüße 🦈".encode()),
        (b"\xff", "\ufffd".encode()),
    ],
)
def test_colours_stay_and_other_sequences_are_only_shown(written: bytes, told: bytes) -> None:
    assert shown(written) == told


@given(st.binary(max_size=60) | st.text("\x1b[0;1m]A", max_size=40).map(str.encode), st.integers(0, 60))
def test_nothing_that_a_terminal_obeys_passes_wherever_the_pieces_are_cut(written: bytes, cut: int) -> None:
    told = shown(written[:cut], written[cut:])
    assert told == shown(written)
    for sequence in told.decode().split("\x1b")[1:]:
        code, end, _ = sequence.partition("m")
        assert end
        assert code[0] == "["
        assert set(code[1:]) <= set("0123456789;:")
