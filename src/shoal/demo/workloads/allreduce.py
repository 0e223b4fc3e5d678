"""Data-parallel softmax regression over a gang: each rank has a part of the rows, gradients are summed over TCP.

The ranks find each other by the variables that torchrun sets as well: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT.
"""

from __future__ import annotations

import os
import socket
import time
from types import TracebackType
from typing import Self

import numpy as np
import witness
from data import Floats, arguments, load
from softmax import gradient

from shoal import train


class Star:
    """Sums a vector over all ranks: each sends its own to rank 0, which sends the sum back."""

    def __init__(self, rank: int, size: int, address: tuple[str, int], *, patience_s: float = 30.0) -> None:
        if rank == 0:
            with socket.create_server(address) as door:
                door.settimeout(patience_s)
                self._peers = [door.accept()[0] for _ in range(size - 1)]
        else:
            self._peers = [_connect(address, patience_s)]
        self._leads = rank == 0

    def sum(self, vector: Floats) -> Floats:
        if not self._leads:
            self._peers[0].sendall(vector.tobytes())
            return _receive(self._peers[0], len(vector))
        total = np.sum([vector, *(_receive(peer, len(vector)) for peer in self._peers)], axis=0)
        for peer in self._peers:
            peer.sendall(total.tobytes())
        return total

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        for peer in self._peers:
            peer.close()


def _connect(address: tuple[str, int], patience_s: float) -> socket.socket:
    give_up_at = time.monotonic() + patience_s
    while True:
        try:
            return socket.create_connection(address, timeout=patience_s)
        except ConnectionRefusedError:  # rank 0 has not opened its door yet
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.05)


def _receive(peer: socket.socket, length: int) -> Floats:
    wanted = length * 8
    data = bytearray()
    while len(data) < wanted:
        part = peer.recv(wanted - len(data))
        if not part:
            raise ConnectionError("the other rank is gone")
        data += part
    return np.frombuffer(bytes(data))


def main() -> None:
    options = arguments(__doc__).parse_args()
    witness.started()
    rank, size = train.rank(), train.world_size()
    data = load(options.dataset)
    x, labels = data.train_x[rank::size], np.eye(data.classes)[data.train_y][rank::size]
    weights, done = np.zeros((x.shape[1], data.classes)), 0
    if checkpoint := train.resume_path():
        kept = np.load(checkpoint)
        weights, done = kept["weights"], int(kept["step"])
        print(f"rank {rank}: resumed after step {done}")

    master = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    with Star(rank, size, master) as star:
        for step in range(done + 1, options.steps + 1):
            for _ in range(10):
                slope, loss = gradient(weights, x, labels)
                weights -= 0.5 * star.sum(slope.ravel()).reshape(weights.shape) / size
            witness.trained(step)
            accuracy = float(np.mean(np.argmax(data.test_x @ weights, axis=1) == data.test_y))
            train.report(step, total=options.steps, loss=loss, accuracy=accuracy)
            # All ranks look, and follow rank 0: ranks that saved or left on their own would tear the gang apart.
            wishes = np.array([train.should_checkpoint(every_s=1.0), train.stop_requested()], dtype=float)
            save, leave = star.sum(wishes if rank == 0 else np.zeros(2)) > 0
            if step < options.steps and save:
                path = train.checkpoint_dir() / f"step-{step}.npz"
                if rank == 0:
                    np.savez(path, weights=weights, step=step)
                with witness.saving(step):
                    train.checkpoint(path, step=step, leave=bool(leave))
            time.sleep(options.pace)
    witness.finished()


if __name__ == "__main__":
    main()
