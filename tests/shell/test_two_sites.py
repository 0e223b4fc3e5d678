"""Inputs on two sites: dealt out where the annotation allows it, in the order of the inputs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.shell.conftest import World

FILES = {
    f"{site}/{number}.csv": b"".join(b"%s %d 128.151.%d\n" % (site.encode(), line, line % 7) for line in range(2000))
    for site in ("one", "two")
    for number in range(3)
}
STATUS = '; echo "status $? ${PIPESTATUS[*]}"'


@pytest.mark.few(count=10)
@pytest.mark.parametrize(
    ("script", "away"),
    [
        ("cat $M/one/*.csv $M/two/*.csv | grep 128.151.3 | tail -3", 3),
        ("cat $M/two/0.csv $M/one/1.csv $M/two/2.csv | cut -d' ' -f1,3 | uniq -c", 2),
        ("grep -c '151.3' $M/one/*.csv $M/two/*.csv", 1),
        ("grep nothing $M/one/0.csv $M/two/0.csv", 1),
        ("grep one $M/one/0.csv $M/two/0.csv | wc -l", 2),
        ("grep one $M/one/0.csv $M/two/nosuch | wc -l", 2),
        ("cut $M/one/0.csv $M/two/0.csv; grep '[' $M/one/0.csv $M/two/0.csv", 2),
        ("cat $M/one/no $M/two/0.csv $M/one/no | wc; cat $M/one/no $M/two/no | wc -l", None),
        ("md5sum $M/one/*.csv $M/two/*.csv", 1),
        ("cat $M/one/0.csv $M/nosuch $M/two/0.csv | wc -l", 0),
        ("cat -n $M/one/0.csv $M/two/0.csv | tail -1", 0),
        ("sort $M/one/0.csv $M/two/0.csv | tail -1", 1),
        ("sort -t' ' -k3,3 -k2,2nr -u -- $M/two/0.csv $M/one/*.csv | md5sum", 1),
        ("sort -rn -k2 $M/one/0.csv $M/two/nosuch $M/one/2.csv | head -2", 1),
        ("sort $M/one/no1 $M/two/no2 $M/one/2.csv; sort $M/two/1.csv $M/one/no1 | wc", 2),
        ("sort -s -k3 $M/one/0.csv $M/two/0.csv | md5sum", 0),
        ("sort $M/one/0.csv $M/two/0.csv -o $M/one/new; tail -1 $M/one/new", 1),
        ("cat $M/one/*.csv $M/two/*.csv | grep -v 151.3 | sort -k2,2n -k1,1 | head -4", 3),
        ("cat $M/one/*.csv $M/two/*.csv | cut -d' ' -f1,3 | wc", 3),
        ("cat $M/one/*.csv $M/two/*.csv | wc -lc", 2),
        ("cat $M/one/*.csv $M/two/*.csv | wc -L", 1),
        ("cat $M/one/*.csv $M/two/*.csv | grep -c 128.151.3", 2),
        ("cat $M/one/*.csv $M/two/*.csv | grep -c nothing; cat $M/one/1.csv $M/two/1.csv | grep -c two", 4),
        ("cat $M/one/0.csv $M/two/0.csv | cut -c1-3 | uniq", 3),
        ("(cat $M/one/0.csv $M/two/0.csv | head -n 3000 | md5sum)", 2),
        ("cat $M/one/0.csv $M/two/0.csv | head -n -5 | md5sum", 1),
        ("cat $M/one/0.csv $M/two/0.csv | tail -n +10 | md5sum", 1),
        ("printf end > $M/one/e; cat $M/one/e $M/two/0.csv | grep end; cat $M/two/0.csv $M/one/e | tail -c 4", None),
        ("comm $M/one/0.csv $M/two/0.csv | wc -l", 0),
        ("cat $M/one/0.csv | grep -f $M/two/0.csv | wc -l", None),
    ],
)
def test_inputs_of_two_sites(two: World, script: str, away: int | None) -> None:
    two.same(script + STATUS, files=FILES, away=away)


def test_a_copy_between_sites(two: World) -> None:
    two.same("cp $M/one/0.csv $M/two/new; cat $M/one/1.csv > $M/two/newer; ls $M/two; wc $M/two/*", files=FILES)


def test_a_folder_above_the_sites(two: World, tmp_path: Path) -> None:
    two.same("cd $M; wc -l one/0.csv two/0.csv; grep -rc one . | sort; find . | sort | head -4" + STATUS, files=FILES)
