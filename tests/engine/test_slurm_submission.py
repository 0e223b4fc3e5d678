"""What is handed to `sbatch` for a gang that a cluster spreads over nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core import Unavailable
from shoal.engine import Gang, RankSpec
from shoal.engine.batch.job import NotTaken
from shoal.engine.slurm.commands import failure
from shoal.engine.slurm.submission import Target, arguments


@pytest.mark.parametrize(
    ("per_node", "told"),
    [(0, []), (1, ["--nodes=4", "--ntasks-per-node=1"]), (2, ["--nodes=2", "--ntasks-per-node=2"])],
)
def test_slurm_is_told_how_many_ranks_each_node_gets(per_node: int, told: list[str]) -> None:
    ranks = tuple(RankSpec(rank, "pool", ("h200:0",)) for rank in range(4))
    gang = Gang("a.1.run", ("train",), ranks, Path("/nowhere"), ranks_per_node=per_node)
    given = arguments(gang, Target(), mark="shoal", device_types={}, pooled=True)
    assert "--ntasks=4" in given
    assert [one for one in given if one.startswith(("--nodes=", "--ntasks-per-node="))] == told


@pytest.mark.parametrize(("ranks", "together_s", "told"), [(4, 30, ["--switches=1@0:30"]), (4, 0, []), (1, 30, [])])
def test_a_gang_waits_a_while_for_nodes_under_one_switch(ranks: int, together_s: int, told: list[str]) -> None:
    gang = Gang("a.1.run", ("train",), tuple(RankSpec(n, "pool", ("h200:0",)) for n in range(ranks)), Path("/nowhere"))
    given = arguments(gang, Target(together_s=together_s), mark="shoal", device_types={}, pooled=True)
    assert [one for one in given if one.startswith("--switches")] == told


@pytest.mark.parametrize(
    ("said", "kind", "message"),
    [
        ("scontrol: error: Unable to contact slurm controller (connect failure)", Unavailable, "does not answer"),
        ("sbatch: error: Batch job submission failed: Invalid account", NotTaken, "Invalid account"),
        ("", NotTaken, "failed without a word"),
    ],
)
def test_a_silent_controller_is_told_from_a_refusal(said: str, kind: type[Exception], message: str) -> None:
    found = failure("sbatch", said)
    assert type(found) is kind
    assert message in str(found)
