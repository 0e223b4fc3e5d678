"""Data-parallel training by a gang: each rank learns on its share, gradients are averaged over sockets, in NumPy alone.

Rank 0 listens on MASTER_ADDR:MASTER_PORT. Run alone, without a gang, it is its only rank.
"""

from __future__ import annotations

import argparse
import os
import socket
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

from shoal import train

GO_ON, KEEP, KEEP_AND_LEAVE = 0, 1, 2
CONNECT_WITHIN_S = 30.0


class Gang:
    """A star of sockets: every rank sends its array to rank 0, which answers all of them."""

    def __init__(self, rank: int, size: int) -> None:
        self._peers: list[socket.socket] = []
        if size == 1:
            return
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        if rank == 0:
            with socket.create_server(address, backlog=size) as server:
                server.settimeout(CONNECT_WITHIN_S)
                self._peers = [server.accept()[0] for _ in range(size - 1)]
        else:
            self._peers = [_connect(address)]
        for peer in self._peers:
            peer.settimeout(60.0)
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._leads = rank == 0
        self._size = size

    def mean(self, values: np.ndarray) -> np.ndarray:
        """The mean over all ranks of float64 arrays of one shape."""
        if not self._peers:
            return values
        if not self._leads:
            self._peers[0].sendall(values.tobytes())
            return _receive(self._peers[0], values)
        result = (values + sum(_receive(peer, values) for peer in self._peers)) / self._size
        for peer in self._peers:
            peer.sendall(result.tobytes())
        return result

    def from_rank_0(self, word: int) -> int:
        """What rank 0 said, on every rank."""
        if not self._peers:
            return word
        if self._leads:
            for peer in self._peers:
                peer.sendall(bytes([word]))
            return word
        return _exactly(self._peers[0], 1)[0]


def _connect(address: tuple[str, int]) -> socket.socket:
    until = time.monotonic() + CONNECT_WITHIN_S
    while True:
        try:
            return socket.create_connection(address, timeout=CONNECT_WITHIN_S)
        except ConnectionRefusedError:  # rank 0 does not listen yet
            if time.monotonic() > until:
                raise
            time.sleep(0.05)


def _exactly(peer: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = peer.recv(size - len(data))
        if not part:
            raise ConnectionError("another rank of the gang has gone")
        data += part
    return bytes(data)


def _receive(peer: socket.socket, like: np.ndarray) -> np.ndarray:
    return np.frombuffer(_exactly(peer, like.nbytes)).reshape(like.shape)


def decide() -> int:
    """What rank 0 wants all ranks to do now. Every rank asks, which tells Shoal that it heeds the answer."""
    wanted = train.should_checkpoint(every_s=2.0)
    return (KEEP_AND_LEAVE if train.stop_requested() else KEEP) if wanted else GO_ON


def save(path: Path, step: int, weights: np.ndarray) -> None:
    draft = path.with_name("draft.npz")
    np.savez(draft, step=step, weights=weights)
    draft.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--rate", type=float, default=0.5)
    parser.add_argument("--pace", type=float, default=0.0, metavar="SECONDS", help="wait after each step")
    parser.add_argument(
        "--share", type=float, default=0.0, metavar="SECONDS", help="as --pace, divided among the ranks"
    )
    args = parser.parse_args()

    rank, size = train.rank(), train.world_size()
    images, labels = load_digits(return_X_y=True)
    x = np.hstack([images / 16.0, np.ones((len(images), 1))])
    order = np.random.default_rng(0).permutation(len(x))
    x, labels = x[order], labels[order]
    test_x, test_y = x[:450], labels[:450]
    learn_x, learn_y = x[450:][rank::size], labels[450:][rank::size]

    weights, start = np.zeros((x.shape[1], 10)), 0
    path = train.checkpoint_dir() / "softmax.npz"
    if kept := train.resume_path():
        with np.load(kept, allow_pickle=False) as file:
            weights, start = file["weights"], int(file["step"])
        print(f"rank {rank} of {size} resumes at step {start}", flush=True)

    def accuracy() -> float:
        return float(((test_x @ weights).argmax(axis=1) == test_y).mean())

    gang = Gang(rank, size)
    for step in range(start + 1, args.steps + 1):
        rows = np.random.default_rng((rank, step)).integers(0, len(learn_x), 64)
        scores = learn_x[rows] @ weights
        probability = np.exp(scores - scores.max(axis=1, keepdims=True))
        probability /= probability.sum(axis=1, keepdims=True)
        probability[np.arange(len(rows)), learn_y[rows]] -= 1
        weights = weights - args.rate * gang.mean(learn_x[rows].T @ probability / len(rows))

        train.report(step, total=args.steps, accuracy=accuracy())
        if rank == 0 and step % 50 == 0:
            print(f"step {step}/{args.steps} on {size} ranks accuracy={accuracy():.4f}", flush=True)

        word = gang.from_rank_0(decide())
        if word != GO_ON and step < args.steps:
            if rank == 0:
                save(path, step, weights)
            gang.mean(np.zeros(1))  # a barrier: the checkpoint is complete before any rank leaves
            train.checkpoint(path, step=step, leave=word == KEEP_AND_LEAVE)
        time.sleep(args.pace + args.share / size)

    if rank == 0:
        print(f"final accuracy={accuracy():.4f}", flush=True)


if __name__ == "__main__":
    main()
