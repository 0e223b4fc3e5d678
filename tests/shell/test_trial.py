"""Where a plan hangs on how much a command writes, the command is tried on the beginning of its data first."""

from __future__ import annotations

import bz2
import gzip
import random
from dataclasses import replace

import pytest

from shoal.shell.plan import plan, ratio_key, uncertain
from shoal.shell.stages import Reachable
from tests.shell.conftest import World
from tests.shell.test_plan import REACHABLE, pipeline
from tests.shell.test_proxy import TOOLS, Client, Frame, decode, encode

LARGE = {"/mnt/s/f": 1e8}


@pytest.mark.parametrize(
    ("commands", "sizes", "keys"),
    [
        (["zcat /mnt/s/f"], LARGE, ["zcat"]),
        (["zcat /mnt/s/f", "wc -l"], LARGE, []),  # whatever it writes, the count is small
        (["cat /mnt/s/f", "grep x"], LARGE, []),  # the mount is slower than the link: it runs there at any ratio
        (["zcat /mnt/s/f"], {"/mnt/s/f": 1e6}, []),
        (["zcat /mnt/s/f", "grep x"], LARGE, ["zcat", "grep"]),
        (["head -1 /mnt/s/f"], LARGE, []),
        (["zcat local", "grep x"], LARGE, []),
    ],
)
def test_a_trial_is_worth_it_where_a_ratio_decides(
    commands: list[str], sizes: dict[str, float], keys: list[str]
) -> None:
    stages = pipeline(*commands, sizes=sizes)
    assert list(uncertain(stages, REACHABLE, {})) == keys
    assert not uncertain(stages, REACHABLE, dict.fromkeys(keys, 1.0))


def test_a_measured_ratio_is_what_decides() -> None:
    stages = pipeline("zcat /mnt/s/f", sizes=LARGE)
    fast: dict[str, Reachable] = {"s": replace(REACHABLE["s"], mount_bytes_per_s=20e6)}
    key = ratio_key(stages[0])
    assert [plan(stages, fast, {key: ratio})[0].site for ratio in (1.5, 15.0)] == ["s", ""]


@pytest.mark.parametrize(("name", "where"), [("bzcat", "store"), ("zcat", "here")])
def test_the_first_mib_is_tried_and_then_decided(own_world: World, name: str, where: str) -> None:
    own_world.begin()
    small = bz2.compress(random.Random(1).randbytes(300_000))
    files = {"f": small if name == "bzcat" else gzip.compress(bytes(8_000_000))}
    entry = own_world.same(f"{name} $M/f > out", files=files)[-1]
    assert entry["where"] == where
    assert f"({name} tried on the first MiB)" in str(entry["why"])
    assert "tried" not in str(own_world.same(f"{name} $M/f > out", files=files)[-1]["why"]), "it is known by now"


def test_a_trial_tells_counts_and_is_confined(tmp_path) -> None:  # type: ignore[no-untyped-def]
    srv = tmp_path / "srv"
    srv.mkdir()
    (srv / "f").write_bytes(b"a line\n" * 400_000)
    client = Client(srv, "/mnt/site", TOOLS)
    try:
        if not client.welcome["namespaces"]:
            pytest.skip("no namespaces here: bubblewrap is missing or may not make them")

        def tried(*words: list[str], feed: str = "/mnt/site/f") -> list[int]:
            stages = [
                {"path": f"/usr/bin/{one[0]}", "argv": one, "cwd": "/mnt/site", "env": {"PATH": "/usr/bin:/bin"},
                 "umask": 0o22, "reads": [], "writes": [], "stdin": {}} for one in words
            ]  # fmt: skip
            client.send(7, Frame.TRY, encode({"stages": stages, "feeds": [[feed, 0]]}))
            return [int(one) for one in decode(client.take(Frame.TRIED))]

        whole = 7 * ((1 << 20) // 7)
        assert tried(["cat"], ["sed", "s/line//"]) == [whole, whole, whole * 3 // 7]
        assert tried(["cat"], ["sh", "-c", "cat; touch /mnt/site/new; sleep 9"]) == [whole, whole]  # too slow
        assert tried(["sh", "-c", "yes"], ["cat"])[1] == 16 << 20
        assert not (srv / "new").exists()
        assert tried(["env"]) == []
        assert tried(["cat"], feed="/etc/passwd") == []
        assert client.run(["cat", "f"], reads=["/mnt/site/f"], credit=1 << 26)[0] == 0  # type: ignore[index]
    finally:
        client.process.kill()
        client.process.wait()
