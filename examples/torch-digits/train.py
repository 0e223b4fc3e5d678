"""A small PyTorch network on handwritten digits, on whatever accelerator it is given, resumably."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from sklearn.datasets import load_digits

from shoal import train

try:
    import torch
    from torch import nn
except ImportError:
    sys.exit("this example needs PyTorch: install it with `pip install torch`, then run it again")


def save(path: Path, epoch: int, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    draft = path.with_name("draft.pt")
    torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, draft)
    draft.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="wait after each epoch")
    args = parser.parse_args()

    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    x = torch.tensor(images / 16.0, dtype=torch.float32, device=device)
    y = torch.tensor(labels, dtype=torch.long, device=device)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0)).to(device)
    x, y = x[order], y[order]
    learn_x, learn_y, test_x, test_y = x[450:], y[450:], x[:450], y[:450]

    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    start = 0
    if kept := train.resume_path():
        state = torch.load(kept, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        start = state["epoch"]
        print(f"resumed at epoch {start} on {device}", flush=True)

    def accuracy() -> float:
        with torch.no_grad():
            return (model(test_x).argmax(dim=1) == test_y).float().mean().item()

    for epoch in range(start + 1, args.epochs + 1):
        for rows in torch.randperm(len(learn_x), generator=torch.Generator().manual_seed(epoch)).to(device).split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(learn_x[rows]), learn_y[rows])
            loss.backward()
            optimizer.step()
        train.report(epoch, total=args.epochs, accuracy=(reached := accuracy()), loss=loss.item())
        print(f"epoch {epoch}/{args.epochs} on {device} accuracy={reached:.4f}", flush=True)
        if train.should_checkpoint(every_s=5.0) and epoch < args.epochs:
            path = train.checkpoint_dir() / "model.pt"
            save(path, epoch, model, optimizer)
            train.checkpoint(path, step=epoch)
        time.sleep(args.pace)

    print(f"final accuracy={accuracy():.4f}", flush=True)


if __name__ == "__main__":
    main()
