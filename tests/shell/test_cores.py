"""Pipelines whose input is cut into pieces that the cores of one site work on at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.shell.pieces import FEED_S, LOOK_S, WORTH_S, Feeds
from tests.shell.conftest import World

LARGE = b"".join(b"%d alpha %d\n" % (number, number * 7919 % 1000) for number in range(420_000))
STATUS = '; echo "status $? ${PIPESTATUS[*]}"'


@pytest.mark.parametrize(
    ("script", "binary"),
    [
        ("cat $M/a | grep 'alpha 7' | sort | uniq -c | sort -rn | head -4", False),
        ("cat $M/a $M/a | tr a-z A-Z | sed 's/ALPHA/x/;/ 9/d' | cut -d' ' -f3 | wc", False),
        ("sort -k3,3n -k1,1r $M/a | md5sum; grep -c 'alpha 77' $M/a; sort -u -k3,3 < $M/a | md5sum", False),
        ("rev < $M/a | grep -v 1 | awk '{print $1}' | tail -3; grep nothing $M/a", False),
        ("cat $M/a | grep 7 | head -2; cat $M/a | grep '[' | wc -l; cut $M/a; cat $M/a | tr x", False),
        ("cat $M/a $M/nosuch | grep 77 | md5sum; cat $M/a $M | grep 77 | md5sum; grep 77 $M/a 2>&1 | md5sum", False),
        ("cat $M/a | grep 'alpha 7' | md5sum; grep -a 'alpha 7' $M/a | md5sum; cat $M/a | sort -z | md5sum", True),
    ],
)
def test_pieces_leave_what_the_whole_leaves(world: World, script: str, binary: bool) -> None:
    data = LARGE[:-1] + (b"\0" if binary else b"")
    assert any(one["where"] != "here" for one in world.same(script + STATUS, files={"a": data}))


def test_cuts_lie_at_ends_of_lines(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b", "c")]
    for path, data in zip(paths, (LARGE, b"", LARGE[:-1]), strict=True):
        path.write_bytes(data)
    feeds = Feeds([[str(path), 0] for path in paths])
    parts = feeds.cut(1e-6, 8)
    pieces = [b"".join(feeds.read(*one)) for one in parts]
    assert len(parts) > 2
    assert b"".join(pieces) == LARGE + LARGE[:-1]
    assert all(one.endswith(b"\n") for one in pieces[:-1])
    assert len(feeds.cut(1e-12, 8)) == 1  # too little work
    seconds = 2 * (WORTH_S / feeds.size + (FEED_S + LOOK_S / 2) / 2)
    assert [len(feeds.cut(seconds, 2, looked_through=looked)) for looked in (False, True)] == [2, 1]


def test_long_lines_and_folders_are_left_whole(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(b"x" * 12_000_000)
    assert Feeds([[str(path), 0]]).cut(1e-6, 2) == [(0, None)]
    assert Feeds([[str(path), 0], [str(tmp_path), 0]]).cut(1e-6, 2) == [(0, None)]
