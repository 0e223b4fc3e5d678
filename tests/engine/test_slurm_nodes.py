"""Ranks on several nodes of a real Slurm find each other by torchrun's variables."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from clusters.slurm import PrivateSlurm

from shoal.engine import Phase
from shoal.engine.slurm.submission import Target
from tests.engine.slurm_kit import RankSpec, SlurmKit, needs_slurm, slurm_kit

pytestmark = needs_slurm

EXAMPLE = Path(__file__).parents[2] / "examples/torch-two-nodes/train.py"

MEET = """
import json, os, socket, time
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
master = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    with socket.create_server(master) as door:
        peers = [door.accept()[0] for _ in range(size - 1)]
    said = [peer.makefile().readline().strip() for peer in peers]
else:
    while True:
        try:
            peer = socket.create_connection(master)
            break
        except ConnectionRefusedError:
            time.sleep(0.05)
    peer.sendall(f"{rank}\\n".encode())
    said = []
names = "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK"
print(json.dumps([sorted(said), *(int(os.environ[name]) for name in names)]))
"""


@pytest.mark.few
@pytest.mark.parametrize("delegate", [False, True], ids=["placed", "delegated"])
async def test_ranks_on_two_nodes_meet_at_the_first(tmp_path: Path, delegate: bool) -> None:
    nodes = ["shoal"] * 4 if delegate else ["n1", "n1", "n2", "n2"]
    with PrivateSlurm((4, 4)) as cluster:
        async with slurm_kit(tmp_path, cluster, SlurmKit, delegate=delegate) as kit:
            devices = [f"h200:{rank}" if delegate else f"gpu{rank % 2}" for rank in range(4)]
            ranks = tuple(
                RankSpec(rank, node, (device,)) for rank, (node, device) in enumerate(zip(nodes, devices, strict=True))
            )
            gang = replace(kit.python("meet.1.run", MEET), ranks=ranks, ranks_per_node=2)
            await kit.engine.launch(gang)
            status = await kit.settle("meet.1.run")
            assert [rank.exit.code for rank in status.ranks if rank.exit is not None] == [0, 0, 0, 0]
            assert [rank.node for rank in status.ranks] == ["n1", "n1", "n2", "n2"]
            told = [json.loads((await kit.engine.read("meet.1.run", rank, "log", 0)).data) for rank in range(4)]
    assert told == [[["1", "2", "3"], 0, 2, 0], [[], 1, 2, 0], [[], 0, 2, 1], [[], 1, 2, 1]]


@pytest.mark.slow
async def test_pytorch_averages_gradients_over_two_nodes(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    with PrivateSlurm((1, 1)) as cluster:
        async with slurm_kit(tmp_path, cluster, SlurmKit, delegate=True) as kit:
            ranks = tuple(RankSpec(rank, "shoal", ("h200:0",)) for rank in range(2))
            gang = kit.script("ddp.1.run", sys.executable, str(EXAMPLE), env={"PYTHONPATH": os.pathsep.join(sys.path)})
            await kit.engine.launch(replace(gang, ranks=ranks, ranks_per_node=1))
            status = await kit.settle("ddp.1.run", within_s=120)
            told = [(await kit.engine.read("ddp.1.run", rank, "log", 0)).data.decode() for rank in range(2)]
    assert [rank.exit.code for rank in status.ranks if rank.exit is not None] == [0, 0], told
    assert [rank.node for rank in status.ranks] == ["n1", "n2"]
    accuracies = {line.rpartition(" ")[2] for text in told for line in text.splitlines() if "accuracy" in line}
    (accuracy,) = accuracies  # the same weights on both
    assert float(accuracy) > 0.9


async def test_a_gang_is_kept_under_one_switch_and_nodes_are_labelled_with_theirs(tmp_path: Path) -> None:
    for name in ("placed", "pooled"):
        (tmp_path / name).mkdir()
    with PrivateSlurm((1, 1, 1, 1), switches=("n1,n3", "n2,n4")) as cluster:
        target = Target(together_s=30)
        async with slurm_kit(tmp_path / "placed", cluster, SlurmKit, target=target) as kit:
            labels = {node.name: node.labels["switch"] for node in (await kit.engine.inventory()).nodes}
        async with slurm_kit(tmp_path / "pooled", cluster, SlurmKit, target=target, delegate=True) as kit:
            taken = kit.script("one.1.run", "sleep", "600")
            await kit.engine.launch(replace(taken, ranks=(RankSpec(0, "shoal", ("h200:0",)),)))
            await kit.until(lambda status: status.phase is Phase.RUNNING, "one.1.run")
            ranks = tuple(RankSpec(rank, "shoal", ("h200:0",)) for rank in range(2))
            await kit.engine.launch(replace(kit.script("two.1.run", "true"), ranks=ranks, ranks_per_node=1))
            status = await kit.settle("two.1.run")
    assert labels == {"n1": "s1", "n2": "s2", "n3": "s1", "n4": "s2"}
    assert [rank.node for rank in status.ranks] == ["n2", "n4"]
