"""What is handed to `sbatch` for a gang that a cluster spreads over nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.engine import Gang, RankSpec
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
