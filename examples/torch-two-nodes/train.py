"""Softmax regression on handwritten digits with DistributedDataParallel over gloo: each rank has a part of the rows.

Shoal sets what torchrun would, so `init_process_group` needs no arguments beside the backend.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from sklearn.datasets import load_digits

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    sys.exit("this example needs PyTorch: install it with `pip install torch`, then run it again")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--pace", type=float, default=0.0, help="seconds to wait after each step")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    images, digits = load_digits(return_X_y=True)
    x = torch.tensor(images / 16.0, dtype=torch.float32)
    y = torch.tensor(digits, dtype=torch.long)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    learn, test = order[:1500][rank::size], order[1500:]

    model = DistributedDataParallel(nn.Linear(64, 10))  # all ranks begin with the weights of rank 0
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    for _ in range(options.steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[learn]), y[learn]).backward()
        optimizer.step()
        time.sleep(options.pace)
    with torch.no_grad():
        accuracy = (model(x[test]).argmax(1) == y[test]).float().mean().item()
    print(f"rank {rank} of {size} on node {os.environ['NODE_RANK']}: accuracy {accuracy:.2f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
