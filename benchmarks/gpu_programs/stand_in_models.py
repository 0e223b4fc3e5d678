"""What stands in for `torch_models` where there is no GPU: kernels of the fake driver. Its figures mean nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from driver import Module, finish, launch, spin_text, stream

from shoal.device.ptx.transform import transform

_priority = 0


def request(name: str, mode: str) -> Callable[[], None]:  # noqa: ARG001
    return _work(10, 1)


def training(name: str, mode: str) -> Callable[[], None]:  # noqa: ARG001
    return _work(100, 20)


def _work(us: int, blocks: int) -> Callable[[], None]:
    module, on = Module(transform(spin_text(us)).text), stream(_priority)
    kernel = module[f"nothing_us{us}"]

    def once() -> None:
        for _ in range(3):
            launch(kernel, blocks, on)
        finish(on)

    return once


@contextmanager
def on_stream(*, high: bool) -> Iterator[None]:
    global _priority
    _priority = -1 if high else 0
    yield


def durations_us(step: Callable[[], None]) -> list[float]:
    step()
    return [400.0] * 3
