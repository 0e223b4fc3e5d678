"""A few threads that share the blocks of one evaluation, the caller among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """The threads start with the first work, and again in a forked child."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._pool = None

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None

    def share(self, work: Callable[[T], None], pieces: Iterable[T], threads: int) -> None:
        """Do the work for each piece. An error in one ends the others after the piece they are at, and is raised."""
        remaining = iter(list(pieces))
        failed: list[BaseException] = []

        def loop() -> None:
            for piece in remaining:  # a list's iterator gives each piece to one thread
                if failed:
                    return
                try:
                    work(piece)
                except BaseException as error:
                    failed.append(error)
                    return

        others: list[Future[None]] = []
        if threads > 1:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(max(threads - 1, os.cpu_count() or 1), "shoal-offload")
            others = [self._pool.submit(loop) for _ in range(threads - 1)]
        try:
            loop()
        finally:
            for each in others:
                if not each.cancel():
                    each.result()
        if failed:
            raise failed[0]


THREADS = Threads()
