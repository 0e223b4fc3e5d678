"""Softmax regression over gloo on transient ranks: any of them, rank 0 included, may be killed at any moment.

The survivors leave as soon as a collective fails, the gang starts again as a whole, and goes on from the last
checkpoint. Nothing but the steps since then is done twice.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from shoal import train

try:
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel
except ImportError:
    sys.exit("this example needs PyTorch: install it with `pip install torch`, then run it again")

GO_ON, KEEP, KEEP_AND_LEAVE = 0, 1, 2


def decide(every_s: float) -> int:
    """Rank 0 decides whether all keep a checkpoint now, and whether they leave."""
    wanted = train.should_checkpoint(every_s=every_s)
    word = torch.tensor([(KEEP_AND_LEAVE if train.stop_requested() else KEEP) if wanted else GO_ON])
    dist.broadcast(word, src=0)
    return int(word)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--pace", type=float, default=0.02, help="seconds to wait after each step")
    parser.add_argument("--every", type=float, default=1.0, help="seconds between checkpoints")
    parser.add_argument("--hidden", type=int, default=0, help="width of a hidden layer; without, there is none")
    options = parser.parse_args()

    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2048, 64, generator=draw)
    y = (x @ torch.randn(64, 10, generator=draw)).argmax(1)
    mine = slice(rank, None, size)
    width = options.hidden
    net = nn.Sequential(nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 10)) if width else nn.Linear(64, 10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    first = 0
    if path := train.resume_path():
        kept = torch.load(path, weights_only=True)
        net.load_state_dict(kept["net"])
        first = kept["step"]
    print(f"rank {rank} of {size} (process {os.getpid()}) begins after step {first}", flush=True)
    model = DistributedDataParallel(net)
    began = time.monotonic()
    for step in range(first + 1, options.steps + 1):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[mine]), y[mine])
        loss.backward()
        optimizer.step()
        time.sleep(options.pace)
        train.report(step, total=options.steps, loss=loss.item())
        if (word := decide(options.every)) != GO_ON:
            path = train.checkpoint_dir() / f"step-{step}.pt"
            if rank == 0:
                saving = time.monotonic()
                torch.save({"net": net.state_dict(), "step": step}, path)
                train.checkpoint(path, step=step, leave=False)
                print(f"checkpoint of {path.stat().st_size} bytes in {time.monotonic() - saving:.5f} s", flush=True)
            dist.barrier()
            if word == KEEP_AND_LEAVE:
                train.checkpoint(path, step=step, leave=True)
    print(f"rank {rank} of {size}: {options.steps - first} steps in {time.monotonic() - began:.3f} s", flush=True)
    with torch.no_grad():
        accuracy = (net(x).argmax(1) == y).float().mean().item()
    print(f"rank {rank} of {size}: accuracy {accuracy:.2f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
